"""Statistics of a dataset that need no tokens: classes, repeated texts, and texts in more than one split."""

from __future__ import annotations

import numpy as np

from .multi_label_rows import label_counts, label_list_ids


def dataset_statistics(
    labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return, for each split with rows: `rows`, `classes` (rows of each class), `repeated`, `conflicting` and
    `also_in`.

    `labels` and `hashes` hold, for each split, the class ids and the hashes of the texts, both (num_rows,).
    Of multi-label rows, `labels` are (num_rows, num_labels) 0 and 1, and there are also `unlabelled`, the
    rows without a label, and `labels_per_row`, their mean number. `repeated` counts rows with the text of an
    earlier row of the same split, `conflicting` counts texts with more than one label, and `also_in` counts,
    for each earlier split, the rows whose text is in that split too.
    """
    statistics = {}
    for name, split_labels in labels.items():
        if not len(split_labels):
            continue
        unique, inverse = np.unique(hashes[name], return_inverse=True)
        text_labels = np.unique(np.stack([inverse, label_list_ids(split_labels)]), axis=1)
        statistics[name] = {
            "rows": len(split_labels),
            "classes": dict(
                zip(
                    label_names,
                    label_counts(split_labels, len(label_names)).tolist(),
                    strict=bool(label_names),
                )
            ),
            "repeated": len(split_labels) - len(unique),
            "conflicting": int((np.bincount(text_labels[0], minlength=len(unique)) > 1).sum()),
            "also_in": {other: int(np.isin(hashes[name], hashes[other]).sum()) for other in statistics},
        }
        if split_labels.ndim == 2:
            per_row = split_labels.sum(axis=1, dtype=np.int64)
            statistics[name] |= {
                "unlabelled": int((per_row == 0).sum()),
                "labels_per_row": float(per_row.mean()),
            }
    return statistics
