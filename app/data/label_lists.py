"""Several labels a row, or none: the labels of a row are a list."""

from typing import Any

import numpy as np

from ..config.schema import DataConfig
from ..errors import InputError, excerpt
from .cells import label_text, string_of
from .label_cells import decode_labels, encode_labels, labels_in_cell, labels_in_columns
from .label_form import LabelForm
from .label_names import resolve_label, sort_labels
from .multi_label_split import deal_multi_label, label_list_ids, split_multi_label
from .readers import ReadOptions
from .readers.excel import NotText


class LabelLists(LabelForm):
    """The labels of rows are 0 and 1, (num_rows, num_labels) uint8; a label text is a JSON list."""

    has_several = True
    what = "set of labels"

    def text(self, value: Any, options: ReadOptions) -> str:
        if options.label_columns is not None:
            return encode_labels(labels_in_columns(value, options.label_columns))
        return encode_labels([label_text(label) for label in labels_in_cell(value, options.label_separator)])

    def text_of_fix(self, value: Any, options: ReadOptions) -> str:
        if value is None or (isinstance(value, (str, NotText)) and not super().text_of_fix(value, options)):
            return ""
        try:
            labels = labels_in_cell(value, options.label_separator)
        except ValueError as error:
            # There is no separator to set
            if options.label_columns is None:
                raise
            raise InputError(
                f'several labels of a fix must be a JSON list, like ["a", "b"], found {excerpt(value)}; '
                "write one"
            ) from error
        names = [string_of(label, "label").strip() for label in labels]
        if not all(names):
            raise InputError(
                f"a label of the set is empty, found {excerpt(value)}; remove it or write its name"
            )
        return encode_labels(names)

    def labels_in(self, text: str) -> list[str]:
        return decode_labels(text)

    def names(self, config: DataConfig, train: Any) -> list[str]:
        in_train = {label for text in train.label_values for label in decode_labels(text)}
        return config.labels or config.label_columns or sort_labels(list(in_train))

    def of_texts(self, texts: list[str], names: list[str]) -> np.ndarray:
        matrix = np.zeros((len(texts), len(names)), dtype=np.uint8)
        ids: dict[str, int | None] = {}
        for row, text in enumerate(texts):
            for label in decode_labels(text):
                if label not in ids:
                    ids[label] = resolve_label(label, names)
                matrix[row, ids[label]] = 1
        return matrix

    def split(self, labels, hashes, dev, test, seed, names) -> dict[str, np.ndarray]:
        return split_multi_label(labels, hashes, dev, test, seed)

    def folds(self, labels: np.ndarray, hashes: np.ndarray, folds: int, seed: int) -> np.ndarray:
        num_texts = len(np.unique(hashes))
        if num_texts < folds:
            raise InputError(
                f"--folds must be at most the number of different texts; found {folds} folds for "
                f"{num_texts:,} texts"
            )
        return deal_multi_label(labels, hashes, np.full(folds, 1 / folds), seed)

    def classes(self, labels: np.ndarray) -> np.ndarray:
        """Return one class for all: most lists of labels are in few rows."""
        return np.zeros(len(labels), np.int64)

    def ids(self, labels: np.ndarray) -> np.ndarray:
        return label_list_ids(labels)

    def counts(self, labels: np.ndarray, num_labels: int) -> np.ndarray:
        return labels.sum(axis=0, dtype=np.int64)

    def rows_with(self, labels: np.ndarray, label: int) -> np.ndarray:
        return np.flatnonzero(labels[:, label])

    def statistics(self, labels: np.ndarray, names: list[str]) -> dict:
        """Return also `unlabelled`, the rows without a label, and `labels_per_row`, their mean number."""
        per_row = labels.sum(axis=1, dtype=np.int64)
        return super().statistics(labels, names) | {
            "unlabelled": int((per_row == 0).sum()),
            "labels_per_row": float(per_row.mean()),
        }
