"""One label a row, and the labels have an order: stars, or mild, moderate, severe."""

from itertools import pairwise
from typing import Any

from ..config.schema import DataConfig
from ..errors import InputError, listed
from .label_form import OneLabel
from .number_labels import is_finite, number_of


class OrderedLabels(OneLabel):
    """Class ids (num_rows,) int64, in the order of the labels from the lowest to the highest."""

    def names(self, config: DataConfig, train: Any) -> list[str]:
        """Return the labels as in data.labels, else by number; raises InputError for other labels."""
        labels = super().names(config, train)
        if config.labels is not None:
            return labels
        if not all(map(is_finite, labels)):
            words = [label for label in labels if not is_finite(label)]
            raise InputError(
                f"{train.source}: the order of the labels must be known with data.task ordinal, found "
                f"{listed(map(repr, words))}; list all labels from the lowest to the highest in --data.labels"
            )
        labels = sorted(labels, key=number_of)
        for one, other in pairwise(labels):
            if number_of(one) == number_of(other):
                raise InputError(
                    f"{train.source}: labels with an order must be different numbers, found {one!r} and "
                    f"{other!r}; write them alike, or list all labels in --data.labels"
                )
        return labels
