"""A checkpoint folder -> the trained classifier and its tokenizer, after checks of the folder."""

import json
from fnmatch import fnmatch
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..checkpoints.run_history import HISTORY, finished_weights
from ..data.long_texts import check_tokenizer, guarded, highest_id
from ..errors import InputError, excerpt, first_line, nearest
from ..model.classifier import max_positions
from ..model.pretrained import check_vocabulary, check_weights, load_weights, wrong_shape
from ..model.source import checkpoint_config, quiet_transformers
from ..runtime.disk import checksum
from ..runtime.model_lock import MODEL_LOCK
from ..words import _
from .recorded_settings import MODEL, model_files

MODEL_FILES = (MODEL, f"{MODEL}.index.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model")
TOKENIZER_FILES += ("spiece.model", "*.bpe.model")


def load_checkpoint(folder: Path) -> tuple[torch.nn.Module, object]:
    """Return transformers' model for sequence classification, on the CPU in fp32, and its fast tokenizer.

    Nothing is downloaded, no code of the checkpoint is run, and weights are read from safetensors only, into
    memory: the file may be replaced, or cut short, while the model is used. Raises InputError saying what is
    wrong with the folder, also where a file of it changes while it is read.
    """
    check_folder(folder)
    files = _file_states(folder)
    _check_weights(folder)
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        # Its warnings about missing weights are errors below
        with MODEL_LOCK, quiet_transformers():
            config = checkpoint_config(folder, **local)
            with guarded("its tokenizer"):
                tokenizer = AutoTokenizer.from_pretrained(folder, config=config, **local)
            model, info = load_weights(folder, config, use_safetensors=True, **local)
    except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception, transformers errors of many types
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{folder}: the checkpoint could not be loaded: {problem}; copy the folder again, or save "
            "the model again"
        ) from error
    _check_loaded(folder, model, info, tokenizer)
    if _file_states(folder) != files:
        raise InputError(
            f"{folder}: a file of the checkpoint changed while it was read; load it again when it is whole"
        )
    return model, tokenizer


def _file_states(folder: Path) -> list[tuple[str, int, int]]:
    """Return name, bytes and time of the last change of the files of a model."""
    stats = [(path.name, path.stat()) for path in model_files(folder)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` has a configuration, safetensors weights and a tokenizer."""
    rule = _(
        "{folder}: a checkpoint must be a folder with config.json, model.safetensors and a tokenizer; "
        "{problem}"
    )
    if not folder.is_dir():
        names = (
            [str(path) for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        )
        problem = _("found a file") if folder.exists() else _("there is no such folder")
        raise InputError(rule.format(folder=folder, problem=problem + nearest(str(folder), names)))
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if not (folder / "config.json").is_file():
        problem = f"found no config.json, only: {', '.join(names[:8]) or '(it is empty)'}"
        raise InputError(rule.format(folder=folder, problem=problem))
    if not any(name in names for name in MODEL_FILES):
        pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
        problem = f"found {pickles[0]}, a pickle, which could run any code" if pickles else "found no weights"
        problem += "; save the model with save_pretrained of a recent transformers"
        raise InputError(rule.format(folder=folder, problem=problem))
    if not any(fnmatch(name, pattern) for name in names for pattern in TOKENIZER_FILES):
        problem = "found no tokenizer; save it there with tokenizer.save_pretrained"
        raise InputError(rule.format(folder=folder, problem=problem))
    _check_index(folder)


def _check_weights(folder: Path) -> None:
    """Raise InputError for weights of a finished run that are not those which its training wrote."""
    known, path = finished_weights(folder), folder / MODEL
    if known is not None and path.is_file() and (found := checksum(path)) != known:
        raise InputError(
            f"{path}: the weights must be those that the training wrote (SHA-256 {known[:12]}...), found "
            f"{found[:12]}...: they are damaged or replaced; copy the folder again, or, if they were changed "
            f'on purpose, remove "weights" from {HISTORY}'
        )


def _check_index(folder: Path) -> None:
    """Raise InputError for an index of weights that names anything but safetensors files in the folder.
    transformers would open whatever the index names, pickles too."""
    index = folder / MODEL_FILES[1]
    if (folder / MODEL_FILES[0]).is_file():
        return
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        foreign = [
            shard for shard in shards if Path(shard).name != shard or not shard.endswith(".safetensors")
        ]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(
            f"{index}: not a readable index of weights ({first_line(error)}); save the model again"
        ) from error
    if foreign:
        raise InputError(
            f"{index}: only safetensors files of the folder are read, found {excerpt(foreign[0])}"
        )


def _check_loaded(folder: Path, model: torch.nn.Module, info: dict, tokenizer) -> None:
    check_weights(str(folder), model, info)
    wrong = sorted(info["missing_keys"])
    for mismatch in sorted(info["mismatched_keys"]):
        raise InputError(f"{folder}: {wrong_shape(*mismatch)}; correct config.json, or copy the folder again")
    if wrong:
        architectures = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures")
        raise InputError(
            f"{folder}: weights are missing or of the wrong size: {wrong[0]}"
            + (f" and {len(wrong) - 1} more" if wrong[1:] else "")
            + f"; a trained classifier is needed, found architectures {architectures}; "
            f"train one with --model.name {folder}"
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"{folder}: the tokenizer must be a fast one, found {type(tokenizer).__name__}; add a "
            "tokenizer.json"
        )
    check_tokenizer(tokenizer.backend_tokenizer, str(folder))
    check_vocabulary(model.config, highest_id(tokenizer.backend_tokenizer) + 1, f"{folder}: ")


def longest_row(model_config, tokenizer, trained_length: int | None) -> int | None:
    """Return the tokens at which rows are cut, or None for no limit. It is the length of the training, else
    that of the tokenizer, but no more than the model has positions."""
    preferred = trained_length or tokenizer.model_max_length
    # A tokenizer without a limit has 10**30.
    candidates = (preferred, max_positions(model_config))
    limits = [limit for limit in candidates if isinstance(limit, int) and 0 < limit < 1 << 31]
    return min(limits, default=None)
