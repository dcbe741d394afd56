"""A checkpoint folder -> the trained classifier and its tokenizer, after checks of the folder."""

import json
from fnmatch import fnmatch
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..checkpoints.run_history import HISTORY, finished_weights
from ..data.long_texts import check_tokenizer, guarded, highest_id
from ..errors import InputError, excerpt, first_line, listed, nearest
from ..model.classifier import max_positions
from ..model.pretrained import check_vocabulary, check_weights, load_weights, wrong_shape
from ..model.source import checkpoint_config, quiet_transformers
from ..runtime.disk import checksum
from ..runtime.model_lock import MODEL_LOCK
from ..words import _
from .recorded_settings import MODEL, model_files

INDEX = f"{MODEL}.index.json"
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "*.bpe.model")
NEEDED = {"config.json": ("config.json",), "weights": (MODEL, INDEX), "tokenizer": TOKENIZERS}


def load_checkpoint(folder: Path) -> tuple[torch.nn.Module, object]:
    """Return transformers' model for sequence classification, on the CPU in fp32, and its fast tokenizer.

    Nothing is downloaded, no code of the checkpoint is run, and weights are read from safetensors only, into
    memory: the file may be replaced, or cut short, while the model is used. Raises InputError saying what is
    wrong with the folder, also where a file of it changes while it is read.
    """
    check_folder(folder)
    files = _file_states(folder)
    known, path = finished_weights(folder), folder / MODEL
    if known is not None and path.is_file() and (found := checksum(path)) != known:
        raise InputError(
            f"{path}: the weights must be those that the training wrote (SHA-256 {known[:12]}...), found "
            f"{found[:12]}...: they are damaged or replaced; copy the folder again, or, if they were changed "
            f'on purpose, remove "weights" from {HISTORY}'
        )
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        # Its warnings about missing weights are errors below
        with MODEL_LOCK, quiet_transformers():
            config = checkpoint_config(folder)
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
    stats = [(path.name, path.stat()) for path in model_files(folder)]
    return [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` has a configuration, safetensors weights and a tokenizer, and an index
    of weights names nothing else: transformers would open whatever it names, pickles too."""
    rule = _(
        "{folder}: a checkpoint must be a folder with config.json, model.safetensors and a tokenizer; "
        "{problem}"
    )
    if not folder.is_dir():
        beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
        problem = _("found a file") if folder.exists() else _("there is no such folder")
        problem += nearest(str(folder), [str(path) for path in beside if path.is_dir()])
        raise InputError(rule.format(folder=folder, problem=problem))
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for what, patterns in NEEDED.items():
        if not any(fnmatch(name, pattern) for name in names for pattern in patterns):
            # A pickle is no weights: it could run any code
            problem = f"found no {what}, only: {listed(names, 8) or '(it is empty)'}; save it there with "
            problem += "save_pretrained of a recent transformers"
            raise InputError(rule.format(folder=folder, problem=problem))
    if MODEL in names:
        return
    index = folder / INDEX
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        foreign = [name for name in shards if Path(name).name != name or not name.endswith(".safetensors")]
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
    for mismatch in sorted(info["mismatched_keys"]):
        raise InputError(f"{folder}: {wrong_shape(*mismatch)}; correct config.json, or copy the folder again")
    if wrong := sorted(info["missing_keys"]):
        raise InputError(
            f"{folder}: weights are missing or of the wrong size: {listed(wrong, 1)}; a trained classifier "
            f"is needed; train one with --model.name {folder}"
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
    candidates = (trained_length or tokenizer.model_max_length, max_positions(model_config))
    # A tokenizer without a limit has 10**30.
    limits = [limit for limit in candidates if isinstance(limit, int) and 0 < limit < 1 << 31]
    return min(limits, default=None)
