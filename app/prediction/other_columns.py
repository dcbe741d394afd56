"""A file with other columns than the train file: the error that says which columns were meant."""

from __future__ import annotations

from ..data.columns import ColumnError
from ..errors import InputError, listed
from .trained_model import TrainedModel


def other_columns_error(error: ColumnError, trained: TrainedModel) -> InputError:
    """Return the error of a file whose columns are not told as those of the training: which these were, what
    the file has, and the option for it."""
    trained_on = columns_of_training(trained, error.role)
    parts = [f"{error.where}: {error.problem}: "]
    if trained_on and error.role == "label":
        parts.append(f"the labels of the run were in {trained_on}, and ")
    elif trained_on:
        parts.append(f"the run was trained on {trained_on}, and ")
    found = listed(error.found)
    if error.has_names:
        parts.append(f"this file has {found}; ")
    else:
        parts.append(f"the first row of this file has {found}; ")
    parts.append(_remedy(error, trained))
    return InputError("".join(parts))


def columns_of_training(trained: TrainedModel, role: str) -> str:
    """Return the columns of the train file that held the texts, or the label, in words; empty where that is
    not known."""
    if role == "label":
        names = list(trained.train_columns.get("label", []))
    else:
        names = trained.train_columns.get("text", []) + trained.train_columns.get("text_pair", [])
    if not names and role != "label":
        names = trained.columns.names
    if not names:
        return ""
    word = "column" if len(names) == 1 else "columns"
    return f"{word} {listed(map(repr, names))}"


def _remedy(error: ColumnError, trained: TrainedModel) -> str:
    """Return the options that help. A first row may be a header, or have columns without names."""
    numbers = "" if error.has_names else " or its number from 0"
    if error.role == "label":
        return f"name the column with --label_column NAME{numbers}"
    if trained.has_pairs:
        return "name the columns with --text_column and --text_pair_column"
    if len(trained.columns.texts) > 1:
        return "name the columns with --text_column '[NAME, NAME]'"
    remedy = f"name the column with --text_column NAME{numbers}"
    if not error.has_names:
        remedy += ", or set --format text where each line is one text"
    return remedy
