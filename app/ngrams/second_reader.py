"""The second reader of a text beside the encoder: a model of character n-grams, what it adds to the logits of
the encoder, and its files in the folder of a run or an export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import InputError
from ..runtime.disk import read_json, whole_file, write_json
from .character_model import CharacterModel

NGRAMS = "ngrams.json"
NGRAM_WEIGHTS = "ngrams.safetensors"
FILES = (NGRAMS, NGRAM_WEIGHTS)
FIELDS = {
    "step": int,
    "method": str,
    "weight": float,
    "shift": dict[str, float],
    "rows": int,
    "encoder_decision": dict,
    "ngrams": list[str],
}
REMEDY = "copy the folder again"


@dataclass(frozen=True)
class SecondReader:
    """To the logits of the encoder times `scale`, (num_labels,), it adds `weight` times those of the
    `characters`, and a `shift`, (num_labels,). Scale, weight and shift were fitted on `rows` of dev, for the
    encoder of one step. `encoder_decision` is what was fitted there for the encoder alone, as decision.json
    has it."""

    characters: CharacterModel
    weight: float
    shift: np.ndarray
    scale: np.ndarray
    rows: int
    encoder_decision: dict = field(default_factory=dict)

    def added(self, texts: Sequence[str]) -> np.ndarray:
        """Return what is added to the scaled logits of texts, (num_texts, num_labels) float32."""
        return (self.weight * self.characters.outputs(texts) + self.shift).astype(np.float32)

    def logits(self, encoder: np.ndarray, added: np.ndarray) -> np.ndarray:
        """Return the logits of both readers, of those of the encoder and of what is `added` to them; all
        (num_rows, num_labels) float32."""
        return self.scale.astype(np.float32) * encoder + added

    def parts(self, text: str, ranges: Sequence[tuple[int, int]]) -> tuple[np.ndarray, np.ndarray]:
        """Return what the characters in each of the `ranges` of a text add to the logits, (num_ranges,
        num_labels), and what all the rest adds, (num_labels,). Together they are what is `added`."""
        contributions = self.weight * self.characters.contributions(text)
        parts = np.array([contributions[start:end].sum(axis=0) for start, end in ranges])
        return parts, self.added([text])[0] - parts.sum(axis=0)


def write_second_reader(folder: Path, reader: SecondReader | None, label_names: list[str], step: int) -> None:
    """Write the second reader of the encoder of `step`, each file whole or not at all; without a reader
    remove its files."""
    from safetensors.numpy import save

    # Read last, written last: without this file there is no second reader
    (folder / NGRAMS).unlink(missing_ok=True)
    if reader is None:
        (folder / NGRAM_WEIGHTS).unlink(missing_ok=True)
        return
    characters = reader.characters
    arrays = {"bias": characters.bias, "idf": characters.idf, "weights": characters.weights}
    with whole_file(folder / NGRAM_WEIGHTS) as file:
        file.write(save(arrays))
    values = {
        "step": step,
        "method": characters.method,
        "scale": dict(zip(label_names, reader.scale.tolist(), strict=True)),
        "weight": reader.weight,
        "shift": dict(zip(label_names, reader.shift.tolist(), strict=True)),
        "rows": reader.rows,
        "encoder_decision": reader.encoder_decision,
        "ngrams": characters.ngrams,
    }
    write_json(folder / NGRAMS, values)


def read_second_reader(folder: Path, label_names: list[str]) -> SecondReader | None:
    """Return the second reader of the model in `folder`, None where it has none. Raises InputError for
    damaged files."""
    from safetensors import SafetensorError
    from safetensors.numpy import load

    path = folder / NGRAMS
    if not path.exists():
        return None
    values = read_json(path, FIELDS, REMEDY)
    weights_path = folder / NGRAM_WEIGHTS
    try:
        # Not mapped: a file that is cut short while it is mapped ends the process
        arrays = load(weights_path.read_bytes())
        shift = np.array([values["shift"][name] for name in label_names])
        scale = np.ones(len(label_names))
        # Runs of earlier versions have none
        if "scale" in values:
            scale = np.array([float(values["scale"][name]) for name in label_names])
        characters = CharacterModel(
            method=values["method"],
            ngrams=values["ngrams"],
            idf=arrays["idf"],
            weights=arrays["weights"],
            bias=arrays["bias"],
        )
    except (OSError, LookupError, ValueError, TypeError, SafetensorError) as error:
        raise InputError(
            f"{weights_path}: the model of character n-grams that {path} belongs to is needed, and cannot be "
            f"read: {error!r}; {REMEDY}"
        ) from error
    _check_shapes(weights_path, characters, len(label_names))
    return SecondReader(
        characters=characters,
        scale=scale,
        weight=values["weight"],
        shift=shift,
        rows=values["rows"],
        encoder_decision=values["encoder_decision"],
    )


def _check_shapes(path: Path, characters: CharacterModel, num_labels: int) -> None:
    num_ngrams = len(characters.ngrams)
    shapes = {
        "idf": (characters.idf, (num_ngrams,)),
        "weights": (characters.weights, (num_ngrams, num_labels)),
        "bias": (characters.bias, (num_labels,)),
    }
    for name, (array, shape) in shapes.items():
        if array.shape != shape or not np.isfinite(array).all():
            raise InputError(
                f"{path}: {name} must be finite numbers of the shape {shape}, found {array.shape}; {REMEDY}"
            )


def remove_second_reader(folder: Path) -> None:
    """Remove what says that the encoder has a second reader."""
    (folder / NGRAMS).unlink(missing_ok=True)


def step_of_second_reader(folder: Path) -> int | None:
    """Return for the encoder of which step the second reader in `folder` was fitted; None where there is
    none, or it cannot be read."""
    try:
        return read_json(folder / NGRAMS)["step"]
    except (InputError, LookupError, TypeError):
        return None
