"""Calls into transformers that stay quiet, and whose errors are the user's."""

import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from safetensors import SafetensorError
from transformers.utils import logging as transformers_logging

from ..errors import InputError

# What transformers, torch and safetensors raise for a broken checkpoint or a wrong setting.
REFUSALS = (
    *(OSError, EOFError, ValueError, TypeError, LookupError, RuntimeError, AssertionError, AttributeError),
    *(ImportError, ArithmeticError, MemoryError, SafetensorError, StrictDataclassError),
)


@contextmanager
def quiet_transformers() -> Iterator[None]:
    """Hide the progress bars and log messages of transformers; downloads keep their bar."""
    hook = transformers_logging.set_tqdm_hook(
        lambda _, args, kwargs: transformers_logging.EmptyTqdm(*args, **kwargs)
    )
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.set_tqdm_hook(hook)


def attempt(action: Callable[[], Any], problem: str) -> Any:
    """Return `action()`; raises InputError, `problem` and the cause, where transformers refuses."""
    try:
        return action()
    except pickle.UnpicklingError as error:
        # Its message would advise to load the pickle all the same
        raise InputError(
            f"{problem}: its PyTorch file holds more than tensors, and a pickle could run any code; convert "
            "it to safetensors"
        ) from error
    except REFUSALS as error:
        expected = isinstance(error, (OSError, ValueError))
        raise InputError(f"{problem}: {error if expected else repr(error)}") from error
