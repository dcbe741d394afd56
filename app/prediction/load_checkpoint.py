"""The folder of a checkpoint -> transformers' classifier, its tokenizer and its task, after checks."""

from fnmatch import fnmatch
from pathlib import Path

import torch
from transformers import AutoTokenizer

from ..checkpoints.model_record import check_record
from ..checkpoints.run_files import MODEL
from ..data.tokens import highest_id, tokenizer_errors
from ..errors import InputError, excerpt, listed, nearest
from ..model.checkpoint import checkpoint_config, load_weights
from ..model.checkpoint_folder import check_checkpoint_folder
from ..model.classifier import max_positions
from ..model.tokenizer import check_tokenizer
from ..model.transformers_errors import quiet_transformers
from ..model.weight_checks import check_vocabulary, check_weights
from ..runtime.disk import read_json
from ..runtime.processes import MODEL_LOCK
from ..tasks import task_of_model
from ..tasks.decision_file import read_decision_file
from ..tasks.task import Task

INDEX = f"{MODEL}.index.json"
# Patterns of file names: a checkpoint has one of each
NEEDED = {
    "config.json": ["config.json"],
    "weights": [MODEL, INDEX],
}
NO_LIMIT = 1 << 31  # tokens; a tokenizer without a limit has 10**30


def load_checkpoint(folder: Path) -> tuple[torch.nn.Module, object]:
    """Return transformers' model for sequence classification, on the CPU in fp32, and its fast tokenizer.

    Nothing is downloaded, no code of the checkpoint is run, and weights are read from safetensors only, into
    memory: the file may be replaced, or cut short, while the model is used. Raises InputError saying what is
    wrong with the folder.
    """
    check_folder(folder)
    check_record(folder)
    only_this_folder = {"local_files_only": True, "trust_remote_code": False}
    try:
        # Its warnings about missing weights are errors below
        with MODEL_LOCK, quiet_transformers():
            config = checkpoint_config(folder)
            with tokenizer_errors("its tokenizer"):
                tokenizer = AutoTokenizer.from_pretrained(folder, config=config, **only_this_folder)
            model, info = load_weights(folder, config, use_safetensors=True, **only_this_folder)
    except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception, transformers errors of many types
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{folder}: the checkpoint could not be loaded: {problem}; copy the folder again, or save "
            "the model again"
        ) from error
    check_weights(str(folder), model, info)
    _check_loaded_keys(folder, info)
    if not tokenizer.is_fast:
        raise InputError(
            f"{folder}: the tokenizer must be a fast one, found {type(tokenizer).__name__}; add a "
            "tokenizer.json"
        )
    check_tokenizer(tokenizer.backend_tokenizer, str(folder))
    check_vocabulary(model.config, highest_id(tokenizer.backend_tokenizer) + 1, f"{folder}: ")
    return model, tokenizer


def _check_loaded_keys(folder: Path, info: dict) -> None:
    """Raise InputError unless the file has all weights, in the shapes that the configuration says. `info` is
    what transformers says about the loading."""
    mismatched_keys = sorted(info["mismatched_keys"])
    if mismatched_keys:
        name, saved_shape, needed_shape = mismatched_keys[0]
        mismatch = f"{name} has shape {tuple(saved_shape)}, and {tuple(needed_shape)} is needed"
        raise InputError(f"{folder}: {mismatch}; correct config.json, or copy the folder again")
    missing_keys = sorted(info["missing_keys"])
    if missing_keys:
        raise InputError(
            f"{folder}: weights are missing or of the wrong size: {listed(missing_keys, 1)}; a trained "
            f"classifier is needed; train one with --model.name {folder}"
        )


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` has a configuration, safetensors weights and a tokenizer, and an index
    of weights names nothing else: transformers would open whatever it names, pickles too."""
    rule = f"{folder}: a checkpoint must be a folder with config.json, model.safetensors and a tokenizer"
    if not folder.is_dir():
        problem = "found a file" if folder.exists() else "there is no such folder"
        problem += nearest(str(folder), _folders_beside(folder))
        raise InputError(f"{rule}; {problem}")
    check_checkpoint_folder(folder)
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for needed_part, patterns in NEEDED.items():
        if not any(fnmatch(name, pattern) for name in names for pattern in patterns):
            # A pickle is no weights: it could run any code
            found_names = listed(names, 8) or "(it is empty)"
            problem = (
                f"found no {needed_part}, only: {found_names}; save it there with save_pretrained of a "
                "recent transformers"
            )
            raise InputError(f"{rule}; {problem}")
    if MODEL not in names:
        _check_index(folder / INDEX)


def _folders_beside(folder: Path) -> list[str]:
    if not folder.parent.is_dir():
        return []
    return [str(path) for path in folder.parent.iterdir() if path.is_dir()]


def _check_index(path: Path) -> None:
    """Raise InputError unless an index of weights names safetensors files of the same folder."""
    index = read_json(path)
    shards = index
    if isinstance(index, dict):
        shards = index.get("weight_map")
    names = [shards]
    if isinstance(shards, dict) and shards:
        names = list(shards.values())
    for name in names:
        is_in_folder = isinstance(name, str) and Path(name).name == name
        if not is_in_folder or not name.endswith(".safetensors"):
            raise InputError(
                f"{path}: not a readable index of weights: only safetensors files of the folder "
                f"are read, found {excerpt(name)}; save the model again"
            )


def longest_row(model_config, tokenizer, trained_length: int | None) -> int | None:
    """Return the tokens at which rows are cut, or None for no limit. It is the length of the training, else
    that of the tokenizer, but no more than the model has positions."""
    lengths = [trained_length or tokenizer.model_max_length, max_positions(model_config)]
    limits = [length for length in lengths if isinstance(length, int) and 0 < length < NO_LIMIT]
    return min(limits, default=None)


def task_of_checkpoint(folder: Path, config, calibrate: bool = True) -> Task:
    """Return the fitted task of a checkpoint; raises InputError for another kind, too few labels, and for
    missing, repeated or unprintable ones."""
    names = [str(config.id2label.get(label, "")) for label in range(config.num_labels)]
    are_different = len(set(names)) == len(names)
    if not are_different or not all(map(_can_be_written, names)):
        rule = f"id2label must name each label from 0 to {len(names) - 1}, each once"
        raise InputError(f"{folder / 'config.json'}: {rule}, found {listed(names)}; correct it")
    try:
        task = task_of_model(config.problem_type, names)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    read_decision_file(folder, task, calibrate)
    return task


def _can_be_written(name: str) -> bool:
    """Return whether a label is not empty and has no half of a character, which UTF-8 cannot write."""
    return name != "" and name.encode(errors="ignore").decode() == name
