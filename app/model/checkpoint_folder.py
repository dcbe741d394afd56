"""Folders that look like a checkpoint and are none: what they are, and how to get a checkpoint from them."""

from __future__ import annotations

import codecs
import json
import re
import shlex
from contextlib import suppress
from fnmatch import fnmatch
from pathlib import Path

from safetensors import SafetensorError, safe_open

from ..errors import InputError, listed

CONFIG_FILE = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"
# A folder is read by the first of these patterns that any of its files matches
WEIGHTS = ("model.safetensors", "model*.safetensors", "pytorch_model.bin", "pytorch_model*.bin")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "*.model")
# Their readers take no byte order mark
FILES_WITHOUT_MARK = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
)
POINTER = b"version https://git-lfs.github.com/spec/"
# Checkpoints of another trainer, or other folders in one; a model in the cache of the hub, or that cache
INSIDE = ("*", "snapshots/*", "models--*/snapshots/*")
MAX_NAMED = 3  # checkpoints inside a folder


def check_checkpoint_folder(folder: Path) -> None:
    """Raise InputError for a folder that needs one more step: an adapter that is not merged, a folder that
    has checkpoints inside, pointers of Git LFS in place of files, a checkpoint without a tokenizer, and
    files with a byte order mark."""
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    weights = _first_files(names, WEIGHTS)
    if ADAPTER_CONFIG in names and not weights:
        raise InputError(_adapter_message(folder))
    if CONFIG_FILE not in names:
        checkpoints = _checkpoints_inside(folder)
        if checkpoints:
            latest = ", ".join(map(str, checkpoints[:MAX_NAMED]))
            raise InputError(
                f"{folder}: a checkpoint must be a folder with {CONFIG_FILE}, found a folder that has "
                f"checkpoints inside; name one of them: {latest}"
            )
        # Others say what a checkpoint needs
        return
    check_needs_no_code(str(folder), folder / CONFIG_FILE)
    tokenizer_files = _first_files(names, TOKENIZER_FILES)
    for name in [*weights, *tokenizer_files]:
        _check_is_no_pointer(folder, name)
    if not tokenizer_files:
        raise InputError(
            f"{folder}: a checkpoint must have a tokenizer, found no tokenizer: there is no file with its "
            f"vocabulary, such as tokenizer.json or vocab.txt, only {listed(names, 8)}; copy the tokenizer's "
            "files of the model that it was trained from into it"
        )
    for name in FILES_WITHOUT_MARK:
        if name in names and _start(folder / name, 3) == codecs.BOM_UTF8:
            raise InputError(
                f"{folder / name}: the file must begin without a byte order mark, found one; save it as "
                "UTF-8 without it"
            )


def check_needs_no_code(name: str, config_file: Path) -> None:
    """Raise InputError where the `config.json` of a model, a hub name or a folder, names code that comes with
    the model: transformers' own class would read its weights in another way, or not at all. A file that is
    no JSON has its error elsewhere."""
    values = None
    with suppress(OSError, ValueError, RecursionError):
        values = json.loads(config_file.read_text(encoding="utf-8-sig"))
    if not isinstance(values, dict) or not values.get("auto_map"):
        return
    classes = listed(values["auto_map"], MAX_NAMED)
    raise InputError(
        f"{name}: a model whose code is part of transformers is needed, found one with code of its own, "
        f"which is never run ({CONFIG_FILE} has auto_map: {classes}); choose another model, or, where "
        f"transformers' own class computes the same, remove auto_map from the {CONFIG_FILE} of a copy"
    )


def read_config(folder: Path) -> dict | None:
    """Return the values of a `config.json` that begins with a byte order mark, which transformers does not
    read; None for any other."""
    path = folder / CONFIG_FILE
    if not path.is_file() or _start(path, 3) != codecs.BOM_UTF8:
        return None
    values = json.loads(path.read_text(encoding="utf-8-sig"))
    if not isinstance(values, dict):
        raise ValueError(f"{CONFIG_FILE} must be an object")
    return values


def _first_files(names: list[str], patterns: tuple[str, ...]) -> list[str]:
    """Return the names that match the first of the patterns that any name matches."""
    for pattern in patterns:
        matching = [name for name in names if fnmatch(name, pattern)]
        if matching:
            return matching
    return []


def _start(path: Path, num_bytes: int) -> bytes:
    with path.open("rb") as file:
        return file.read(num_bytes)


def _check_is_no_pointer(folder: Path, name: str) -> None:
    path = folder / name
    if _start(path, len(POINTER)) == POINTER:
        raise InputError(
            f"{path}: the file itself is needed, found a pointer of Git LFS ({path.stat().st_size} bytes); "
            f"install Git LFS and fetch it: git -C {shlex.quote(str(folder))} lfs pull"
        )


def _checkpoints_inside(folder: Path) -> list[Path]:
    """Return the checkpoints and adapters inside a folder, the latest one first."""
    for pattern in INSIDE:
        checkpoints = []
        for path in folder.glob(pattern):
            # Not a folder that may not be entered
            with suppress(OSError):
                if (path / CONFIG_FILE).is_file() or (path / ADAPTER_CONFIG).is_file():
                    checkpoints.append(path)
        if checkpoints:
            return sorted(checkpoints, key=_lateness, reverse=True)
    return []


def _lateness(checkpoint: Path) -> tuple[int, float]:
    """Return the step in a name such as checkpoint-20, and when the checkpoint was written."""
    step = re.search(r"-(\d+)$", checkpoint.name)
    number = -1
    if step is not None:
        number = int(step[1])
    return number, checkpoint.stat().st_mtime


def _adapter_message(folder: Path) -> str:
    """Return that an adapter is no model, with the command that merges it into its model."""
    base = None
    with suppress(OSError, ValueError, AttributeError):
        base = json.loads((folder / ADAPTER_CONFIG).read_text(encoding="utf-8-sig"))[
            "base_model_name_or_path"
        ]
    merged = f"{folder}-merged"
    num_labels = _num_labels(folder)
    names = _label_names([folder, folder.parent, Path(base or folder)], num_labels)
    labels = f"num_labels={num_labels}"
    note = (
        "; the adapter does not say what its labels are called, so write their names, in the order of the "
        f"training, into id2label in {merged}/{CONFIG_FILE}"
    )
    if names:
        by_id = ", ".join(f"{number}: {_text_in_code(name)}" for number, name in enumerate(names))
        ids = ", ".join(f"{_text_in_code(name)}: {number}" for number, name in enumerate(names))
        labels = f"id2label={{{by_id}}}, label2id={{{ids}}}"
        note = ""
    code = (
        "from peft import AutoPeftModelForSequenceClassification as Model; "
        "from transformers import AutoTokenizer as Tokenizer; "
        f"Model.from_pretrained({_text_in_code(folder)}, {labels})"
        f".merge_and_unload().save_pretrained({_text_in_code(merged)}); "
        f"Tokenizer.from_pretrained({_text_in_code(base or folder)}).save_pretrained({_text_in_code(merged)})"
    )
    return (
        f"{folder}: a whole checkpoint is needed, found an adapter of {base or 'another model'} "
        f"({ADAPTER_CONFIG}); merge it into that model, then name {merged}{note}:\n"
        f"python -c {shlex.quote(code)}"
    )


def _label_names(folders: list[Path], num_labels: int) -> list[str]:
    """Return the names of so many labels as the first of some folders has them in its config.json; none where
    none of them has names that people gave."""
    for folder in folders:
        names = []
        with suppress(OSError, ValueError, AttributeError, LookupError):
            by_id = json.loads((folder / CONFIG_FILE).read_text(encoding="utf-8-sig"))["id2label"]
            names = [str(by_id[str(number)]) for number in range(len(by_id))]
        are_given = any(name != f"LABEL_{number}" for number, name in enumerate(names))
        if len(names) == num_labels and are_given:
            return names
    return []


def _text_in_code(text: object) -> str:
    """Return a text as it stands in code of Python, in double quotes: a shell has single ones around all."""
    return json.dumps(str(text), ensure_ascii=False)


def _num_labels(folder: Path) -> int:
    """Return how many labels the head in an adapter has; 2, as transformers does, where it has none."""
    num_labels = 2
    path = folder / ADAPTER_WEIGHTS
    with suppress(OSError, SafetensorError), safe_open(path, "np") as weights:
        for name in weights.keys():  # noqa: SIM118 - it is no dictionary
            shape = weights.get_slice(name).get_shape()
            is_head = "classifier" in name or "score" in name
            if is_head and name.endswith("weight") and len(shape) == 2:
                num_labels = shape[0]
    return num_labels
