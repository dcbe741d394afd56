"""transformers stays quiet, and its errors are the user's."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager

from transformers.utils import logging as transformers_logging

from ..config.shipped import E5_SMALL
from ..errors import InputError

REMEDY = (
    "a whole checkpoint of torch is needed: config.json with its model_type, weights that fit it, and a "
    "tokenizer. Leave out sizes in model.config, such as hidden_size; merge LoRA weights with peft "
    "(merge_and_unload); convert those of TensorFlow with transformers 4"
)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars and log messages of transformers; downloads keep their bar."""
    empty = transformers_logging.EmptyTqdm
    hook = transformers_logging.set_tqdm_hook(lambda _, args, kwargs: empty(*args, **kwargs))
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.set_tqdm_hook(hook)


@contextmanager
def explained(problem: str, remedy: str = REMEDY) -> Iterator[None]:
    """Make an InputError, with the problem and the remedy, of whatever transformers raises in the block."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - it raises errors of some fifteen types for broken checkpoints
        raise InputError(f"{problem}: {message_of(error)}; {remedy}") from error


def message_of(error: Exception) -> object:
    if isinstance(error, pickle.UnpicklingError):
        # torch's message would advise to load the pickle all the same
        return "its PyTorch file holds more than tensors, and a pickle could run any code"
    if isinstance(error, (OSError, ValueError)):
        return error
    return repr(error)


def cannot_load(name: str) -> str:
    return (
        f"model.name must be {E5_SMALL}, random, a hub name or a folder with a checkpoint; '{name}' could "
        "not be loaded"
    )
