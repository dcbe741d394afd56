"""Statistics of a dataset that need no tokens: classes, repeated texts, and texts in more than one split."""

import numpy as np

from .label_form import LabelForm


def dataset_statistics(
    form: LabelForm, labels: dict[str, np.ndarray], hashes: dict[str, np.ndarray], label_names: list[str]
) -> dict:
    """Return for each split with rows `rows`, `LabelForm.statistics`, `repeated`, `conflicting`, `also_in`.

    `labels` and `hashes` hold, for each split, the labels of the form, (num_rows, ...), and the hashes of the
    texts, (num_rows,). `repeated` counts rows with the text of an
    earlier row of the same split, `conflicting` counts texts with more than one label, and `also_in` counts,
    for each earlier split, the rows whose text is in that split too.
    """
    statistics = {}
    for name, split_labels in labels.items():
        if not len(split_labels):
            continue
        unique, inverse = np.unique(hashes[name], return_inverse=True)
        text_labels = np.unique(np.stack([inverse, form.ids(split_labels)]), axis=1)
        statistics[name] = {
            "rows": len(split_labels),
            **form.statistics(split_labels, label_names),
            "repeated": len(split_labels) - len(unique),
            "conflicting": int((np.bincount(text_labels[0], minlength=len(unique)) > 1).sum()),
            "also_in": {other: int(np.isin(hashes[name], hashes[other]).sum()) for other in statistics},
        }
    return statistics
