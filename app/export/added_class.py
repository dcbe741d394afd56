"""A trained model with one more class, from a few texts, without training.

The new row of the head points from the mean final state of the model's rows to that of the texts, and is as
long as the other rows on average. Its bias is the largest with which few enough of the rows that were right
go to the new class.
"""

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from ..checkpoints.run_files import REPORT
from ..checkpoints.run_history import CONFIG, HISTORY
from ..config.data_settings import TASKS
from ..data.rows import Row
from ..errors import InputError, excerpt, listed
from ..model.head import last_layer
from ..model.pretrained import save_model
from ..outcomes import fitted_files
from ..prediction.head_states import head_states
from ..prediction.predictor import Predictor
from ..prediction.recorded_settings import run_long_texts, run_settings
from ..prediction.saved_model import check_folder, load_checkpoint
from ..prediction.torch_runtime import load_predictor
from ..runtime.disk import write_json
from .proof_rows import rows_of_file, rows_of_run

# Of the run, and of the new class
MAX_ROWS, MAX_TEXTS = 2000, 10_000


@dataclass(frozen=True)
class AddedClass:
    """What a new class does to `rows` rows of the run, of which `right` were right and `lost` are not any
    more; of the `texts` texts, `found` are of the new class where the others made it, None for one text."""

    name: str
    texts: int
    found: int | None
    rows: int
    right: int
    lost: int

    def render(self) -> str:
        """Return lines for people."""
        before, after = self.right / self.rows, (self.right - self.lost) / self.rows
        known = f"of the {self.texts:,} texts, {self.found:,} are found by the others"
        return (
            f"{self.rows:,} rows of the run: accuracy {before:.4f} before, {after:.4f} with {self.name}\n"
            + ("one text cannot be tested on itself" if self.found is None else known)
        )


def add_class(
    folder: Path, output: Path, name: str, texts: str, may_lose: float, say: Callable[[str], None]
) -> AddedClass:
    """Write the model in `folder` with a class `name`, made of the file `texts`, to the new folder `output`.

    At most the share `may_lose` of the run's dev rows that were right goes to the new class. Raises
    InputError for a model, texts or a name that do not fit, and for an `output` that exists.
    """
    check_folder(folder)
    if output.exists():
        raise InputError(f"--output {output}: there is such a folder; choose another name")
    settings = run_settings(folder)
    predictor = load_predictor(folder, settings.get("max_length"), run_long_texts(folder), device="cpu")
    _check(folder, predictor, name)
    new = rows_of_file(texts, MAX_TEXTS, settings)
    rows, labels = rows_of_run(folder, predictor.label_names, MAX_ROWS)
    say(f"{len(new):,} texts of {name}, {len(rows):,} rows of the run")
    weights, bias, added = _new_row(predictor, name, new, rows, labels, may_lose)
    aside = output.with_name(f".{output.name}-{secrets.token_hex(4)}")
    aside.mkdir(parents=True)
    try:
        _write(folder, aside, name, weights, bias)
        right = added.right - added.lost
        report = {"split": "dev", "rows": added.rows, "accuracy": right / added.rows}
        write_json(aside / REPORT, report | {"added_class": vars(added) | {"from": str(folder)}})
        aside.rename(output)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return added


def _check(folder: Path, predictor: Predictor, name: str) -> None:
    names = predictor.label_names
    if name.strip() != name or not name or not name.isprintable():
        raise InputError(f"--name must be a printable word without spaces around it, found {excerpt(name)}")
    if name in names:
        raise InputError(f"--name {name}: the model has this label (known: {listed(names)}); choose another")
    # Not between ordered labels, nor to numbers
    if not {"unordered", "one_class"} <= TASKS[predictor.outcome.task].has:
        raise InputError(f"{folder}: a class is added to a model of one label a row; train this one again")
    if last_layer(predictor.runtime.model.model)[1].bias is None:
        raise InputError(f"{folder}: the model's last layer has no bias; train again with rows of the class")


def _new_row(
    predictor: Predictor, name: str, new: list[Row], rows: list[Row], labels: np.ndarray, may_lose: float
) -> tuple[np.ndarray, float, AddedClass]:
    """Return the weights, (size,), and the bias of the new class, and what it does."""
    own, own_logits = head_states(predictor, new)
    states, logits = head_states(predictor, rows)
    length = last_layer(predictor.runtime.model.model)[1].weight.norm(dim=1).mean().item()
    weights, bias, counts = row_of_class(own, own_logits, states, logits, labels, length, may_lose)
    return weights, bias, AddedClass(name, *counts)


def row_of_class(
    own: np.ndarray,
    own_logits: np.ndarray,
    states: np.ndarray,
    logits: np.ndarray,
    labels: np.ndarray,
    length: float,
    may_lose: float,
) -> tuple[np.ndarray, float, tuple[int, int | None, int, int, int]]:
    """Return the weights, (size,), of the length `length`, and the bias of a new class, and the counts of
    `AddedClass`.

    `own` (num_texts, size) and `own_logits` are states and logits of its texts; `states`, `logits` and
    `labels` those of rows of the other classes. Raises InputError where none of these is right.
    """
    centre = states.mean(axis=0)

    def towards(mean: np.ndarray) -> np.ndarray:
        return (mean - centre) / max(float(np.linalg.norm(mean - centre)), 1e-12) * length

    weights = towards(own.mean(axis=0))
    # A row goes to the new class where the bias is larger than this
    needed = logits.max(axis=1) - states @ weights
    is_right = logits.argmax(axis=1) == labels
    of_right = np.sort(needed[is_right])
    if not len(of_right):
        raise InputError("none of the rows of the run is right; train a better model")
    bias = float(of_right[int(may_lose * len(of_right))])
    others = [towards((own.sum(axis=0) - state) / (len(own) - 1)) for state in own] if len(own) > 1 else []
    num_recognised = sum(
        int(state @ direction + bias > of_text.max())
        for state, direction, of_text in zip(own, others, own_logits, strict=False)
    )
    lost = int((of_right < bias).sum())
    return weights, bias, (len(own), num_recognised if others else None, len(states), len(of_right), lost)


def _write(folder: Path, aside: Path, name: str, weights: np.ndarray, bias: float) -> None:
    """Write the model with its new row, and the files that say how the run reads texts and decides."""
    # Once more: the predictor's model has layers of this project
    model, tokenizer = load_checkpoint(folder)
    key, layer = last_layer(model)
    state = model.state_dict()
    row = torch.from_numpy(weights).to(layer.weight)[None]
    state[f"{key}.weight"] = torch.cat([layer.weight.data, row])
    state[f"{key}.bias"] = torch.cat([layer.bias.data, layer.bias.new_tensor([bias])])
    model.config.id2label = {**model.config.id2label, model.config.num_labels: name}
    model.config.label2id = {label: index for index, label in model.config.id2label.items()}
    save_model(aside, model, state, tokenizer)
    for file in (CONFIG, HISTORY, *fitted_files()):
        if (folder / file).is_file():
            shutil.copyfile(folder / file, aside / file)
