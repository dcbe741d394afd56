"""Statistics of a dataset that need no tokens: classes, repeated texts, and texts in more than one split."""

from __future__ import annotations

import numpy as np


def dataset_statistics(labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]) -> dict:
    """Return, for each split with rows: `rows`, `classes` (rows of each class), `repeated`, `conflicting` and `also_in`.

    `labels` and `hashes` hold, for each split, the class ids and the hashes of the texts, both (num_rows,). `repeated`
    counts rows with the text of an earlier row of the same split, `conflicting` counts texts with more than one label,
    and `also_in` counts, for each earlier split, the rows whose text is in that split too.
    """
    statistics = {}
    for name, split_labels in labels.items():
        if not len(split_labels):
            continue
        unique, inverse = np.unique(hashes[name], return_inverse=True)
        text_labels = np.unique(np.stack([inverse, split_labels]), axis=1)
        statistics[name] = {
            "rows": len(split_labels),
            "classes": dict(
                zip(label_names, np.bincount(split_labels, minlength=len(label_names)).tolist(), strict=True)
            ),
            "repeated": len(split_labels) - len(unique),
            "conflicting": int((np.bincount(text_labels[0], minlength=len(unique)) > 1).sum()),
            "also_in": {other: int(np.isin(hashes[name], hashes[other]).sum()) for other in statistics},
        }
    return statistics
