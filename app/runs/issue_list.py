"""Which labels of the train file may be wrong: label_issues.csv, for people to fill in."""

import csv
from pathlib import Path

from ..data.read import ReadOptions, named_rows, recognised
from ..data.relabel import written_hash
from ..errors import InputError, excerpt
from ..report.label_issues import find_issues, judge
from ..runtime.disk import whole_file
from .folds import OutOfFold

ISSUES = "label_issues.csv"
COLUMNS = (
    *("rank", "file", "line", "row_id", "text", "text_pair"),
    *("given", "suggested", "score", "flagged", "text_hash", "label"),
)


def list_issues(path: Path, oof_rows: OutOfFold) -> dict:
    """Write the rows whose label may be wrong as CSV, the least plausible label first; return the figures
    about it. Nothing is written where the models are no better than the most frequent answer.

    The column `label` is for fixes, which data.relabel reads. What a person has filled in stays, in the row
    of its text, or at the end where the text is not ranked any more. Raises InputError as `filled_rows` does.
    """
    table, split, task, scores = oof_rows.table, oof_rows.split, oof_rows.task, oof_rows.scores()
    judged = judge(task, scores)
    if not judged["can_judge"]:
        return judged
    issues, filled = find_issues(task, scores, split.logits), filled_rows(path)
    header = [name for name in COLUMNS if name != "text_pair" or table.has_pairs]
    header += dict.fromkeys(name for row in filled.values() for name in row if name not in header)
    with whole_file(path, encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, header, restval="", extrasaction="ignore")
        writer.writeheader()
        for rank, at in enumerate(issues.order.tolist(), 1):
            row, text_hash = int(split.rows[at]), written_hash(int(split.hashes[at]))
            given, suggested = (task.cell(labels[at]) for labels in (split.labels, oof_rows.predicted))
            about = {
                "rank": rank,
                "file": table.file_of(row),
                "line": table.line(row),
                "row_id": row,
                "text": table.text(row),
                "text_pair": table.pair(row),
                "given": given,
                "suggested": suggested,
                "score": f"{issues.score[at]:.6f}",
                "flagged": "yes" if issues.flagged[at] else "no",
                "text_hash": text_hash,
            }
            writer.writerow(filled.get(text_hash, {}) | about)
        ranked = {written_hash(int(value)) for value in split.hashes[issues.order]}
        writer.writerows(filled[text_hash] for text_hash in filled if text_hash not in ranked)
    flagged = int(issues.flagged[issues.order].sum())
    return judged | {"ranked": len(issues.order), "flagged": flagged} | issues.patterns


def filled_rows(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a list of issues, by text_hash, whose label or a column of their own people have
    filled in, and saved as spreadsheets do. Raises InputError for a file that cannot be read as such a list.
    """
    filled: dict[str, dict[str, str]] = {}
    if not path.exists():
        return filled
    try:
        options = recognised(path, ReadOptions(encoding="utf-8", quoting="double"))
        for line, values in named_rows(path, options, [{"text_hash"}, {"label"}]):
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
