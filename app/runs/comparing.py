"""Two finished runs -> which one is better on the rows of their reports."""

from pathlib import Path

from ..errors import InputError
from ..report.bootstrap import differences
from ..report.confidence import mcnemar
from ..report.logits_file import check_same_rows, read_run, split_of_report
from ..report.metrics import BY_KEY
from .series import rendered


def compare_runs(one: Path, other: Path) -> str:
    """Return how run `other` does against `one` as text; raises InputError unless rows and labels are the
    same."""
    (first, splits), (second, others) = read_run(one), read_run(other)
    rows, other_rows = splits[split_of_report(splits)], others[split_of_report(others)]
    # Ordered labels may be compared with the same ones without order
    common = first if isinstance(first, type(second)) else second
    is_alike = isinstance(common, type(first)) and isinstance(common, type(second))
    if not is_alike or first.label_column != second.label_column or first.label_names != second.label_names:
        found = [f"{task.name} with {len(task.label_names):,} labels" for task in (first, second)]
        raise InputError(
            f"the runs must have the same data.task and labels, found {found[0]} in {one} and {found[1]} in "
            f"{other}"
        )
    check_same_rows(rows, other_rows)
    scores = [task.score(of.labels, of.logits) for task, of in ((first, rows), (second, other_rows))]
    before, now = (of.correct for of in scores)
    won, lost = int((now & ~before).sum()), int((before & ~now).sum())
    found = differences(common, *scores)
    values = {"task": common, "num_rows": len(rows), "won": won, "lost": lost, "p_value": mcnemar(won, lost)}
    width = max(len(BY_KEY[key].english) for key in found) + 1
    return rendered("comparison", one=one, other=other, differences=found, width=width, **values)
