"""What the data report says of the rows of each split: classes, repeated texts, conflicting labels."""

from __future__ import annotations

import numpy as np

from .labels import LabelForm


def split_statistics(
    form: LabelForm, labels: dict[str, np.ndarray], texts: dict[str, np.ndarray], label_names: list[str]
) -> dict[str, dict]:
    """Return the statistics of each split that has rows.

    `labels` and `texts` have the labels of the rows of each split, and the numbers of their texts. Each split
    has `rows`, what `LabelForm.statistics` returns, `repeated` (rows with the text of an earlier row of the
    split), `conflicting` (texts with more than one label) and `also_in` (for each earlier split, the rows
    whose text is in it too).
    """
    # `unique_texts` would count the same, but for 10,000,000 rows it would take 50 MB more
    num_texts = 1 + max(int(numbers.max(initial=0)) for numbers in texts.values())
    statistics = {}
    is_in_split: dict[str, np.ndarray] = {}
    for name, split_labels in labels.items():
        num_rows = len(split_labels)
        if num_rows == 0:
            continue
        text_of_row = texts[name]
        rows_of_text = np.bincount(text_of_row, minlength=num_texts)
        also_in = {}
        for earlier_split, is_there in is_in_split.items():
            also_in[earlier_split] = int(rows_of_text[is_there].sum())
        statistics[name] = {
            "rows": num_rows,
            **form.statistics(split_labels, label_names),
            "repeated": num_rows - int(np.count_nonzero(rows_of_text)),
            "conflicting": _count_conflicting(split_labels, text_of_row, rows_of_text),
            "also_in": also_in,
        }
        is_in_split[name] = rows_of_text > 0
    return statistics


def _count_conflicting(labels: np.ndarray, text_of_row: np.ndarray, rows_of_text: np.ndarray) -> int:
    """Return how many texts have rows with different labels."""
    last_row_of_text = np.empty(len(rows_of_text), np.int32)
    last_row_of_text[text_of_row] = np.arange(len(labels), dtype=np.int32)
    repeated = np.flatnonzero(rows_of_text[text_of_row] > 1)
    differs = labels[repeated] != labels[last_row_of_text[text_of_row[repeated]]]
    # A row may have several labels
    differs = differs.any(axis=tuple(range(1, labels.ndim)))
    return len(np.unique(text_of_row[repeated[differs]]))
