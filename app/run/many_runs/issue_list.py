"""Which labels of the train file may be wrong: label_issues.csv."""

import csv
import logging
from itertools import count
from pathlib import Path

from ...data.relabel import written_hash
from ...outcomes.label_issues import LabelIssues, find_issues, judge
from ...runtime.disk import whole_file
from .out_of_fold import OutOfFold

logger = logging.getLogger(__name__)
ISSUES = "label_issues.csv"


def list_issues(folder: Path, oof_rows: OutOfFold) -> dict:
    """Write label_issues.csv, the least plausible label first; return the figures about it. Nothing is
    written where the models are no better than the most frequent answer."""
    scores = oof_rows.scores()
    judged = judge(oof_rows.outcome, scores)
    if not judged["can_judge"]:
        return judged
    issues = find_issues(oof_rows.outcome, scores, oof_rows.split.logits)
    write_issues(folder / ISSUES, oof_rows, issues)
    figures = judged | {"ranked": len(issues.order), "flagged": int(issues.flagged[issues.order].sum())}
    return figures | issues.patterns


def write_issues(path: Path, oof_rows: OutOfFold, issues: LabelIssues) -> None:
    """Write the ranked rows as CSV, with a column `label` for fixes, which data.relabel reads. What a person
    has filled in stays, in the row of its text, or at the end where the text is not ranked any more."""
    table, split, outcome = oof_rows.table, oof_rows.split, oof_rows.outcome
    pairs = ["text_pair"] if table.has_pairs else []
    header = [*("rank", "file", "line", "row_id", "text"), *pairs]
    header += ["given", "suggested", "score", "flagged", "text_hash", "label"]
    filled = filled_rows(path, header)
    with whole_file(path, encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        carried = set()
        for rank, at in enumerate(issues.order.tolist(), 1):
            row = int(split.rows[at])
            texts = [table.text(row), *(table.pair(row) for _ in pairs)]
            given, suggested = (outcome.cell(labels[at]) for labels in (split.labels, oof_rows.predicted))
            about = [given, suggested, f"{issues.score[at]:.6f}", "yes" if issues.flagged[at] else "no"]
            line, text_hash = table.line(row), written_hash(int(split.hashes[at]))
            label = filled[text_hash][-1] if text_hash in filled else ""
            carried.add(text_hash)
            writer.writerow([rank, table.file_of(row), line, row, *texts, *about, text_hash, label])
        writer.writerows(row for text_hash, row in filled.items() if text_hash not in carried)


def filled_rows(path: Path, header: list[str]) -> dict[str, list[str]]:
    """Return the rows of a list of issues, by text_hash, whose last column a person has filled in: they stay.
    A file in another form, as a spreadsheet may have saved it, is renamed, with a warning."""
    if not path.exists():
        return {}
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            is_ours = next(reader, None) == header
            rows = list(reader)
        if not is_ours or any(len(row) != len(header) for row in rows if row):
            raise ValueError("its columns are others than those of a list of label issues")
        place = header.index("text_hash")
        filled = [row for row in rows if row and row[-1].strip()]
        if len({row[place] for row in filled}) < len({(row[place], row[-1]) for row in filled}):
            raise ValueError("one text has two labels")
    except (ValueError, csv.Error) as error:
        names = (f"{path.stem}.kept-{number}{path.suffix}" for number in count(1))
        kept = next(name for name in map(path.with_name, names) if not name.exists())
        path.rename(kept)
        logger.warning("%s is kept as %s: %s", path, kept.name, error)
        return {}
    return {row[place]: row for row in filled}
