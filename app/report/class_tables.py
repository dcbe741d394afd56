"""The figures of each class: a table of precision, recall, F1 and support, and which classes people see."""

from collections.abc import Mapping

import numpy as np

from ..text_table import short_label
from ..words import joined, ngettext
from .drawn_rows import Matches

MAX_TABLE_CLASSES = 50  # a report shows a table of so many classes whole, and of more classes the worst
MAX_LISTED = 20  # classes, or pairs of them, that a report shows of many


def class_table(names: list[str], matches: Matches, thresholds: np.ndarray | None = None) -> dict[str, dict]:
    """Return the figures of each class by its name, as report.json has them; `matches` are the numbers of
    rows, and `thresholds` the probabilities from which labels are given, (num_classes,) each."""
    columns = {
        "precision": matches.precision().tolist(),
        "recall": matches.recall().tolist(),
        "f1": matches.f1().tolist(),
        "support": matches.true.astype(int).tolist(),
    }
    if thresholds is not None:
        columns["threshold"] = thresholds.tolist()
    table = {}
    for position, name in enumerate(names):
        table[name] = {column: values[position] for column, values in columns.items()}
    return table


def worst_classes(classes: Mapping, count: int, limit: int = 0) -> Mapping:
    """Return the `count` classes with the lowest F1 among those with rows; where F1 is equal, the class with
    more rows comes first. A table of up to `limit` classes is returned whole."""
    if len(classes) <= limit:
        return classes
    with_rows = [name for name, figures in classes.items() if figures["support"]]
    worst_first = sorted(with_rows, key=lambda name: (classes[name]["f1"], -classes[name]["support"], name))
    return {name: classes[name] for name in worst_first[:count]}


def missing_classes_sentence(classes: Mapping) -> str:
    """Return a sentence on the classes that no row has, which lower the macro averages; empty without any."""
    missing = [name for name, figures in classes.items() if not figures["support"]]
    if not missing:
        return ""
    names = list(map(short_label, missing[:MAX_LISTED]))
    if len(missing) > MAX_LISTED:
        names.append("…")
    return ngettext(
        "No row has this label, {number:,} of {all:,}: {names}. Its precision, recall and F1 are 0, and "
        "count in the macro averages.",
        "No row has one of these {number:,} of {all:,} labels: {names}. Their precision, recall and F1 are "
        "0, and count in the macro averages.",
        len(missing),
    ).format(number=len(missing), all=len(classes), names=joined(names))
