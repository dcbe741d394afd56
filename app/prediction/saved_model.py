"""Folders with a trained classifier: which one, what is wrong with it, and model and tokenizer out of it."""

from __future__ import annotations

import json
from fnmatch import fnmatch
from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer
from transformers.utils import logging as transformers_logging

from app.checkpoints.run_folder import CHECKPOINTS, REPORT
from app.config.yaml_files import read_yaml
from app.errors import InputError, excerpt, nearest
from app.model.encoder_config import checkpoint_config

MODEL_FILES = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_FILES = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "*.bpe.model")


def newest_run(folder: Path = CHECKPOINTS) -> Path:
    """Return the run in `folder` that finished last; raises InputError where there is none."""
    finished = [report.parent for report in folder.glob(f"*/{REPORT}") if (report.parent / MODEL_FILES[0]).is_file()]
    if not finished:
        raise InputError(
            f"there is no finished run in {folder}/; train one with python run_single.py, or name a folder with --checkpoint"
        )
    return max(finished, key=lambda run: (run / REPORT).stat().st_mtime_ns)


def run_settings(folder: Path) -> dict:
    """Return the `data` settings that a run was trained with, or nothing for a checkpoint that is no run of ours."""
    path = folder / "config.yaml"
    if not path.is_file():
        return {}
    _, found = read_yaml(path)
    data = found.get("data") if isinstance(found, dict) else None
    if not isinstance(data, dict):
        return {}
    length = data.get("max_length")
    if length is not None and not (type(length) is int and 4 <= length < 1 << 31):
        raise InputError(f"{path}: data.max_length must be at least 4 tokens, found {excerpt(length)}; mend the file")
    return data


def load_checkpoint(folder: Path) -> tuple[torch.nn.Module, object]:
    """Return transformers' model for sequence classification, on the CPU in fp32, and its fast tokenizer.

    Nothing is fetched from the network, no code of the checkpoint's own is run, and weights come from safetensors only.
    Raises InputError saying what is wrong with the folder.
    """
    check_folder(folder)
    only = {"local_files_only": True, "trust_remote_code": False}
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()  # what it would say of missing weights is an error below
    try:
        config = checkpoint_config(folder, **only)
        tokenizer = AutoTokenizer.from_pretrained(folder, **only)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder,
            config=config,
            dtype=torch.float32,
            use_safetensors=True,
            ignore_mismatched_sizes=True,
            output_loading_info=True,
            **only,
        )
    except Exception as error:  # noqa: BLE001 - tokenizers raises just that, transformers what it happens to meet
        problem = error if isinstance(error, (OSError, ValueError)) else repr(error)
        raise InputError(f"{folder}: the checkpoint could not be loaded: {problem}") from error
    _check_loaded(folder, model, info, tokenizer)
    return model, tokenizer


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` has a configuration, safetensors weights and a tokenizer."""
    needed = "a folder with config.json, model.safetensors and a tokenizer is needed, as a run leaves one"
    if not folder.is_dir():
        names = [str(path) for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
        found = "found a file" if folder.exists() else "there is no such folder"
        raise InputError(f"{folder}: {found}{nearest(str(folder), names)}; {needed}")
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    if not (folder / "config.json").is_file():
        raise InputError(f"{folder}: {needed}; found no config.json, only: {', '.join(names[:8]) or '(it is empty)'}")
    if not any(name in names for name in MODEL_FILES):
        pickles = [name for name in names if name.endswith((".bin", ".pt", ".pth", ".ckpt"))]
        found = f"found {pickles[0]}, a pickle, which is never opened here" if pickles else "found no weights"
        raise InputError(f"{folder}: {needed}; {found}; save the model with save_pretrained of a recent transformers")
    if not any(fnmatch(name, pattern) for name in names for pattern in TOKENIZER_FILES):
        raise InputError(f"{folder}: {needed}; found no tokenizer; save it there with tokenizer.save_pretrained")
    _check_index(folder)


def _check_index(folder: Path) -> None:
    """Raise InputError unless the index of weights in several files, if there is one, names safetensors in the folder only.

    transformers would open what the index names, PyTorch's pickles too.
    """
    index = folder / MODEL_FILES[1]
    if (folder / MODEL_FILES[0]).is_file():
        return
    try:
        shards = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        foreign = [shard for shard in shards if Path(shard).name != shard or not shard.endswith(".safetensors")]
    except (OSError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise InputError(f"{index}: not a readable index of weights ({error!r}); save the model again") from error
    if foreign:
        raise InputError(f"{index}: only safetensors files of the folder are read, found {excerpt(foreign[0])}")


def _check_loaded(folder: Path, model: torch.nn.Module, info: dict, tokenizer) -> None:
    wrong = [*map(str, info["missing_keys"]), *map(str, info["mismatched_keys"])]
    if wrong:
        what = json.loads((folder / "config.json").read_text(encoding="utf-8")).get("architectures")
        raise InputError(
            f"{folder}: weights are missing or of the wrong size: {wrong[0]}"
            + (f" and {len(wrong) - 1} more" if wrong[1:] else "")
            + f"; a trained classifier is needed, found architectures {what}; train one with --model.name {folder}"
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"{folder}: a fast tokenizer is needed, found {type(tokenizer).__name__}; add a tokenizer.json"
        )
    known = getattr(model.config, "vocab_size", None)
    if known and max(tokenizer.get_vocab().values(), default=0) >= known:
        raise InputError(
            f"{folder}: the tokenizer has {len(tokenizer):,} tokens, the model {known:,}; they do not belong together"
        )


def longest_row(model_config, tokenizer, trained_length: int | None) -> int | None:
    """Return the tokens at which rows are cut: as in training, else as the tokenizer says; never above the model's positions."""
    positions = getattr(model_config, "max_position_embeddings", None) or 0
    if model_config.model_type in ("roberta", "xlm-roberta"):
        positions -= (model_config.pad_token_id or 0) + 1
    wanted = trained_length or tokenizer.model_max_length
    # A tokenizer without a limit says 10**30.
    limits = [limit for limit in (wanted, positions) if isinstance(limit, int) and 0 < limit < 1 << 31]
    return min(limits, default=None)
