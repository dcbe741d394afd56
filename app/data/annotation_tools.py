"""Lists of label issues -> tasks for Label Studio and doccano, and what people decided there -> a file of
fixes.

Neither format can say "not looked at" for a label that is filled in. So the suggested label goes to Label
Studio as a prediction, and to doccano beside the given one: a row that was not looked at is never a fix.
Labels of rows with any number of them are JSON lists, in the list of issues and in the fixes.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, excerpt, listed
from .formats import read_records, row_unit
from .label_cells import encode_set
from .readers import BadRow, ReadOptions
from .text_files import read_start

TOOLS = ("label-studio", "doccano")
NEEDED = ("text", "given", "suggested", "score", "text_hash")
ABOUT = ("given", "suggested", "score", "file", "line", "text_hash")
FIX_COLUMNS = ("text_hash", "text", "text_pair", "given", "label")


def read_issues(path: Path) -> Iterator[dict[str, str]]:
    """Yield the rows of a label_issues.csv by column name; raises InputError, with file and line, for what is
    none."""
    names: list[str] | None = None
    for line, record in read_records(path, ReadOptions(), "csv"):
        if isinstance(record, BadRow):
            raise InputError(f"{path}, line {line}: {record.problem}")
        if names is None:
            names = record
            if missing := [name for name in NEEDED if name not in names]:
                raise InputError(
                    f"{path}, line {line}: a label_issues.csv has the columns {listed(missing)}, found "
                    f"{listed(names)}"
                )
        elif len(record) != len(names):
            raise InputError(f"{path}, line {line}: {len(names)} columns are needed, found {len(record)}")
        else:
            yield dict(zip(names, record, strict=True))


def export_issues(source: Path, target: Path, tool: str, limit: int | None = None) -> tuple[int, list[str]]:
    """Write the first `limit` issues (none: all) as tasks for a tool; return how many there are, and their
    labels, sorted.

    Label Studio gets a JSON array of tasks with predictions, doccano a line of JSON for each text. Raises
    InputError for a target that exists.
    """
    labels: set[str] = set()
    count = 0
    convert = label_studio_task if tool == "label-studio" else doccano_line
    with new_file(target) as file:
        file.write("[\n" if tool == "label-studio" else "")
        for issue in read_issues(source):
            if limit is not None and count >= limit:
                break
            separator = ",\n" if tool == "label-studio" and count else ""
            file.write(
                separator
                + json.dumps(convert(issue), ensure_ascii=False)
                + ("\n" if tool == "doccano" else "")
            )
            labels.update(*(labels_in(issue[name]) for name in ("given", "suggested")))
            count += 1
        file.write("\n]\n" if tool == "label-studio" else "")
    return count, sorted(labels)


def label_list(cell: str) -> list[str] | None:
    """Return the labels of a JSON list, None for a cell with one label."""
    try:
        found = json.loads(cell) if cell.startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) and all(isinstance(name, str) for name in found) else None


def labels_in(cell: str) -> list[str]:
    """Return the labels of a cell, one or any number."""
    found = label_list(cell)
    return [cell] if found is None else found


def label_studio_task(issue: dict[str, str]) -> dict:
    """Return one issue as a task whose prediction is the suggested label; its score is 1 - that of the given
    label."""
    choices = labels_in(issue["suggested"])
    result = {"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": choices}}
    score = round(1 - _number(issue), 6)
    texts = {name: issue[name] for name in ("text", "text_pair") if name in issue}
    about = {name: issue[name] for name in ABOUT if name in issue}
    return {
        "data": texts | about,
        "predictions": [
            {"model_version": "cross-validate", "score": score, "result": [result] if choices else []}
        ],
    }


def doccano_line(issue: dict[str, str]) -> dict:
    """Return one issue as doccano imports it: the given label is the label, all else is metadata."""
    about = {name: issue[name] for name in ("text_pair", *ABOUT) if name in issue}
    return {"text": issue["text"], "label": labels_in(issue["given"]), **about}


def labelling_configuration(labels: list[str], has_pairs: bool = False, several: bool = False) -> str:
    """Return the labelling interface of Label Studio for these tasks; with `several`, a row may have any
    number of labels."""
    from xml.sax.saxutils import quoteattr

    pair = '  <Text name="text_pair" value="$text_pair"/>\n' if has_pairs else ""
    choices = "".join(f"    <Choice value={quoteattr(label)}/>\n" for label in labels)
    return (
        f'<View>\n  <Text name="text" value="$text"/>\n{pair}  <Header value="$given"/>\n'
        f'  <Choices name="label" toName="text" choice="{"multiple" if several else "single"}">\n{choices}  </Choices>\n</View>'
    )


@dataclass
class Imported:
    """What an export of a tool had: `changed` labels, `confirmed` ones, `open` rows without a decision, and
    rows with `several` different ones.
    """

    changed: int = 0
    confirmed: int = 0
    open: int = 0
    several: int = 0
    fixes: list[dict] = field(default_factory=list)


def import_fixes(source: Path, target: Path) -> Imported:
    """Write the decisions in an export of Label Studio (JSON, JSON-MIN) or doccano (JSONL) as a file of
    fixes.

    A label that is the given one is no fix; rows with several different decisions are left out. Raises
    InputError, with file and place, for what is neither, and for a target that exists.
    """
    start = read_start(source, 1 << 10).decode(errors="replace").lstrip("\ufeff \t\r\n")[:1]
    format = {"[": "json", "{": "jsonl"}.get(start)
    if format is None:
        raise InputError(
            f"{source}: an export of Label Studio (an array in JSON) or doccano (an object a line) is "
            "needed, found a file that "
            f"begins with {excerpt(start)}"
        )
    found = Imported()
    for place, record in read_records(source, ReadOptions(), format):
        where = f"{source}, {row_unit(format)} {place}"
        if isinstance(record, BadRow):
            raise InputError(f"{where}: {record.problem}")
        if not isinstance(record, dict):
            raise InputError(f"{where}: an object is needed, found {excerpt(record)}")
        _add(found, _about(record), list(_decisions(where, record)), where)
    with new_file(target) as file:
        writer = csv.DictWriter(file, FIX_COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(found.fixes)
    return found


def _add(found: Imported, about: dict[str, str], decisions: list[list[str]], where: str) -> None:
    given = about.get("given")
    decided = {label for labels in decisions for label in labels}
    if given is not None and (sets := label_list(given)) is not None:
        given, decided = encode_set(sets), {encode_set(labels) for labels in decisions}
    if not decided:
        found.open += 1
    elif len(decided) > 1:
        found.several += 1
    elif decided == {given}:
        found.confirmed += 1
    else:
        if not about.get("text_hash") and not about.get("text"):
            raise InputError(
                f"{where}: a decided row needs its text_hash or text; export with the data of the tasks"
            )
        found.changed += 1
        found.fixes.append(about | {"label": decided.pop()})


def _about(record: dict) -> dict[str, str]:
    """Return the fields by which a row is found again, wherever a tool puts them."""
    inner = [record[name] for name in ("data", "meta", "metadata") if isinstance(record.get(name), dict)]
    found = {}
    for values in (*inner, record):
        found |= {name: values[name] for name in FIX_COLUMNS[:-1] if isinstance(values.get(name), str)}
    # Some versions of doccano
    if "text" not in found and isinstance(record.get("data"), str):
        found["text"] = record["data"]
    return found


def _decisions(where: str, record: dict) -> Iterator[list[str]]:
    """Yield the labels that each person has chosen for a row; only an annotation can say that there are none."""
    if "annotations" in record:
        for annotation in _list(where, "annotations", record["annotations"]):
            results = annotation.get("result") if isinstance(annotation, dict) else None
            if results is None:
                raise InputError(
                    f"{where}: an annotation needs a result with choices, found {excerpt(annotation)}; "
                    "export from doccano as "
                    "JSONL with the names of the labels"
                )
            if not annotation.get("was_cancelled"):
                values = [
                    result.get("value") if isinstance(result, dict) else None
                    for result in _list(where, "result", results)
                ]
                choices = (value.get("choices") if isinstance(value, dict) else None for value in values)
                yield [name for chosen in choices for name in _names(where, chosen)]
        return
    if names := _names(where, record.get("label", record.get("labels"))):
        yield names


def _names(where: str, value: Any) -> list[str]:
    if isinstance(value, dict) and "choices" in value:
        value = value["choices"]
    names = [] if value is None else [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise InputError(
            f"{where}: labels must be names, found {excerpt(value)}; export with the names of the labels"
        )
    return [name for name in names if name.strip()]


def _list(where: str, name: str, value: Any) -> list:
    if not isinstance(value, list):
        raise InputError(f"{where}: {name} must be a list, found {excerpt(value)}")
    return value


def _number(issue: dict[str, str]) -> float:
    try:
        return float(issue["score"])
    except ValueError as error:
        raise InputError(f"label issues: score must be a number, found {excerpt(issue['score'])}") from error


def new_file(path: Path):
    """Open a file that is not there yet to write text; raises InputError for one that is there or cannot be
    written."""
    try:
        return path.open("x", encoding="utf-8", newline="")
    except FileExistsError as error:
        raise InputError(f"{path}: there is such a file; choose another name") from error
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from error
