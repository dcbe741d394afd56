"""The `data` settings that a model was trained with, as its folder has them; torch is not imported."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..checkpoints.run_history import CONFIG
from ..config.command_line import read_yaml
from ..data.long_texts import LongTexts, saved_long_texts
from ..data.read import ReadOptions
from ..errors import InputError, excerpt
from .exported_model import is_exported, read_record

MODEL = "model.safetensors"
# What predictions depend on in the folder of a model
MODEL_FILES = (
    *("model*.safetensors", f"{MODEL}.index.json", "model.onnx*", "config.json", CONFIG, "export.json"),
    *("decision.json", "*token*", "*vocab*", "merges.txt", "*.model"),
)
# The groups of settings that are asked for
GROUPS = ("data", "model", "train")
# Settings that say how the model reads a file again; an exported folder has them too
READING = ("train", "long", "max_windows")
READING += tuple(field.name for field in fields(ReadOptions))


def model_files(folder: Path) -> list[Path]:
    """Return the files of a model that its predictions depend on."""
    return sorted({path for pattern in MODEL_FILES for path in folder.glob(pattern) if path.is_file()})


def recorded_settings(folder: Path) -> dict[str, Any]:
    """Return the recorded `data` settings of a run or export, else none; raises InputError if damaged."""
    return read_record(folder).data if is_exported(folder) else run_settings(folder)


def all_settings(folder: Path) -> dict[str, dict]:
    """Return the settings of a run by group, each empty for other checkpoints; raises InputError."""
    path = folder / CONFIG
    settings = read_yaml(path) if path.is_file() else None
    groups = settings if isinstance(settings, dict) else {}
    return {name: groups[name] if isinstance(groups.get(name), dict) else {} for name in GROUPS}


def run_settings(folder: Path) -> dict[str, Any]:
    """Return the `data` settings that a run was trained with, empty for a checkpoint of another program."""
    data = all_settings(folder)["data"]
    length = data.get("max_length")
    if length is not None and not (type(length) is int and 4 <= length < 1 << 31):
        raise InputError(
            f"{folder / CONFIG}: data.max_length must be at least 4 tokens, found {excerpt(length)}; fix the "
            "file"
        )
    return data


def run_long_texts(folder: Path) -> LongTexts:
    """Return how a run read long texts in its training; raises InputError where its settings are damaged."""
    return saved_long_texts(run_settings(folder), folder / CONFIG)


def settings_of_reading(recorded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the recorded settings that an exported folder keeps; of the train file, or the first of several,
    only its name."""
    kept = {name: recorded[name] for name in READING if name in recorded}
    if train := kept.get("train"):
        kept["train"] = Path(train if isinstance(train, str) else train[0]).name
    return kept


def has_pairs(recorded: Mapping[str, Any]) -> bool | None:
    """Return whether a model was trained on pairs of texts, None where that is not known."""
    return recorded["text_pair_column"] is not None if "text_pair_column" in recorded else None


def check_pairs(folder: Path, recorded: Mapping[str, Any], given_pairs: bool, remedy: str) -> None:
    """Raise InputError for pairs of texts where the model was trained on single texts, and the reverse."""
    if has_pairs(recorded) in (None, given_pairs):
        return
    trained, given = ("single texts", "pairs") if given_pairs else ("pairs of texts", "single texts")
    raise InputError(f"{folder}: the model was trained on {trained}, found {given}; {remedy}")
