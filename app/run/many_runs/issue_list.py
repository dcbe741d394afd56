"""Which labels of the train file may be wrong: label_issues.csv."""

import csv
from pathlib import Path

from ...data.read import ReadOptions, named_rows, recognised
from ...data.relabel import written_hash
from ...errors import InputError, excerpt, listed
from ...report.label_issues import LabelIssues, find_issues, judge
from ...runtime.disk import whole_file
from .out_of_fold import OutOfFold

ISSUES = "label_issues.csv"
COLUMNS = (
    *("rank", "file", "line", "row_id", "text", "text_pair"),
    *("given", "suggested", "score", "flagged", "text_hash", "label"),
)


def list_issues(folder: Path, oof_rows: OutOfFold) -> dict:
    """Write label_issues.csv, the least plausible label first; return the figures about it. Nothing is
    written where the models are no better than the most frequent answer."""
    scores = oof_rows.scores()
    judged = judge(oof_rows.task, scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(oof_rows.task, scores, oof_rows.split.logits)
    write_issues(folder / ISSUES, oof_rows, issues)
    figures = judged | {"ranked": len(issues.order), "flagged": int(issues.flagged[issues.order].sum())}
    return figures | issues.patterns


def write_issues(path: Path, oof_rows: OutOfFold, issues: LabelIssues) -> None:
    """Write the ranked rows as CSV, with a column `label` for fixes, which data.relabel reads. What a person
    has filled in stays, in the row of its text, or at the end where the text is not ranked any more. Raises
    InputError as `filled_rows` does."""
    table, split, task = oof_rows.table, oof_rows.split, oof_rows.task
    filled = filled_rows(path)
    header = [name for name in COLUMNS if name != "text_pair" or table.has_pairs]
    header += dict.fromkeys(name for row in filled.values() for name in row if name not in header)
    hashes = [written_hash(int(split.hashes[at])) for at in issues.order]
    ranked = set(hashes)
    with whole_file(path, encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="")
        writer.writeheader()
        for rank, (at, text_hash) in enumerate(zip(issues.order.tolist(), hashes, strict=True), 1):
            row = int(split.rows[at])
            texts = [table.text(row), table.pair(row)] if table.has_pairs else [table.text(row)]
            given, suggested = (task.cell(labels[at]) for labels in (split.labels, oof_rows.predicted))
            about = [given, suggested, f"{issues.score[at]:.6f}", "yes" if issues.flagged[at] else "no"]
            values = [rank, table.file_of(row), table.line(row), row, *texts, *about, text_hash]
            # What was filled in comes after these columns
            writer.writerow(filled.get(text_hash, {}) | dict(zip(header, values, strict=False)))
        writer.writerows(filled[text_hash] for text_hash in filled if text_hash not in ranked)


def filled_rows(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a list of issues, by text_hash, whose label or a column of their own people have
    filled in, and saved as spreadsheets do. Raises InputError for a file that cannot be read as such a list.
    """
    if not path.exists():
        return {}
    filled: dict[str, dict[str, str]] = {}
    try:
        options = recognised(path, ReadOptions(encoding="utf-8", quoting="double"))
        for line, values in named_rows(path, options, _check_names):
            row = {name: str(value) for name, value in values.items() if value not in (None, "")}
            if not any(name == "label" or name not in COLUMNS for name in row):
                continue
            if "text_hash" not in row:
                raise InputError(f"{path}, line {line}: a row that is filled in needs its text_hash")
            before = filled.setdefault(row["text_hash"], {})
            if "label" in before and row.get("label", before["label"]) != before["label"]:
                labels = f"{excerpt(before['label'])} and {excerpt(row['label'])}"
                raise InputError(f"{path}, line {line}: one text has two labels, {labels}; keep one of them")
            before |= row
    except InputError as error:
        raise InputError(f"what is filled in must stay: {error}; or move the file elsewhere") from error
    return filled


def _check_names(where: str, names: list[str]) -> None:
    if not {"text_hash", "label"} <= set(names):
        raise InputError(
            f"{where}: a list of label issues needs its columns text_hash and label, found {listed(names)}"
        )
