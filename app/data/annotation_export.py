"""Lists of label issues -> tasks for Label Studio and doccano.

Neither format can say "not looked at" for a label that is filled in. So the suggested label goes to Label
Studio as a prediction, and to doccano beside the given one: a row that was not looked at is never a fix.
Labels of rows with any number of them are JSON lists, in the list of issues and in the fixes.
"""

import json
import math
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from ..errors import InputError, excerpt, listed
from .formats import named_rows
from .readers import ReadOptions

NEEDED = ("text", "given", "suggested", "score", "text_hash")
ABOUT = ("given", "suggested", "score", "file", "line", "text_hash")


def read_issues(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a label_issues.csv by column name; raises InputError with file and line."""
    for line, issue in named_rows(path, ReadOptions(), "csv", _check_names):
        try:
            is_number = math.isfinite(float(issue["score"]))
        except ValueError:
            is_number = False
        if not is_number:
            found = excerpt(issue["score"])
            raise InputError(f"{path}, line {line}: score must be a number, found {found}; correct it")
        yield issue


def _check_names(where: str, names: list[str]) -> None:
    if missing := [name for name in NEEDED if name not in names]:
        raise InputError(
            f"{where}: a label_issues.csv has the columns {listed(missing)}, found {listed(names)}"
        )


def export_issues(source: Path, target: Path, tool: str, limit: int | None = None) -> tuple[int, str | None]:
    """Write the first `limit` issues (none: all) as tasks for one of `TOOLS`; return their number, and the
    labelling interface for people to paste, if it needs one. Raises InputError for a target that exists."""
    issues = list(islice(read_issues(source), limit))
    write, interface = TOOLS[tool]
    with new_file(target) as file:
        file.write(write(issues))
    return len(issues), interface(issues) if issues and interface else None


def label_list(cell: str) -> list[str] | None:
    """Return the labels of a JSON list, None for a cell with one label."""
    try:
        labels = json.loads(cell) if cell.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return labels if isinstance(labels, list) and all(isinstance(name, str) for name in labels) else None


def labels_in(cell: str) -> list[str]:
    """Return the labels of a cell, one or several."""
    labels = label_list(cell)
    return [cell] if labels is None else labels


def label_studio_task(issue: dict[str, str]) -> dict:
    """Return one issue as a task whose prediction is the suggested label; score: 1 - the given one's."""
    choices = labels_in(issue["suggested"])
    result = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": choices}}
    score = round(1 - float(issue["score"]), 6)
    texts = {name: issue[name] for name in ("text", "text_pair") if name in issue}
    about = {name: issue[name] for name in ABOUT if name in issue}
    return {
        "data": texts | about,
        "predictions": [
            {"model_version": "cross-validate", "score": score, "result": [result] if choices else []}
        ],
    }


def label_studio_file(issues: list[dict[str, str]]) -> str:
    """Return a JSON array of tasks, one a line."""
    tasks = (json.dumps(label_studio_task(issue), ensure_ascii=False) for issue in issues)
    return "[\n" + ",\n".join(tasks) + "\n]\n"


def doccano_file(issues: list[dict[str, str]]) -> str:
    """Return a line of JSON for each text: the given label is the label, all else is metadata."""
    lines = []
    for issue in issues:
        about = {name: issue[name] for name in ("text_pair", *ABOUT) if name in issue}
        line = {"text": issue["text"], "label": labels_in(issue["given"]), **about}
        lines.append(json.dumps(line, ensure_ascii=False) + "\n")
    return "".join(lines)


def label_studio_interface(issues: list[dict[str, str]], others: Sequence[str] = ()) -> str:
    """Return the labelling interface of Label Studio for these tasks, whose labels may be `others` too."""
    from xml.sax.saxutils import quoteattr

    labels = {name for issue in issues for key in ("given", "suggested") for name in labels_in(issue[key])}
    labels |= set(others)
    has_pairs = "text_pair" in issues[0]
    choice = "single" if label_list(issues[0]["given"]) is None else "multiple"
    pair = '  <Text name="text_pair" value="$text_pair"/>\n' if has_pairs else ""
    choices = "".join(f"    <Choice value={quoteattr(label)}/>\n" for label in sorted(labels))
    return (
        f'<View>\n  <Text name="text" value="$text"/>\n{pair}  <Header value="$given"/>\n'
        f'  <Choices name="label" toName="text" choice="{choice}">\n{choices}  </Choices>\n</View>'
    )


# By the name of the tool: what writes its tasks, and what its labelling interface is, if it needs one
TOOLS = {"label-studio": (label_studio_file, label_studio_interface), "doccano": (doccano_file, None)}


def new_file(path: Path):
    """Open a new text file to write; raises InputError where it is there, or cannot be written."""
    try:
        return path.open("x", encoding="utf-8", newline="")
    except FileExistsError as error:
        raise InputError(f"{path}: there is such a file; choose another name") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
