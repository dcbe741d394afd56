"""A model in the format of transformers, written into a folder."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..runtime.disk import whole_files
from .transformers_errors import quiet_transformers


@contextmanager
def saved_by_this_process(model) -> Iterator[None]:
    """Give a context in which this process saves transformers' `model`. Otherwise only rank 0 of torch's
    process group would, and that group may be one of the user's program, in which this process is any
    rank."""
    model.should_save_on_this_rank = lambda is_main_process: is_main_process
    try:
        yield
    finally:
        del model.should_save_on_this_rank


def save_model(
    folder: Path, model, state: dict, tokenizer, before_move: Callable[[], None] = lambda: None
) -> None:
    """Write a transformers checkpoint into `folder`, each file whole or absent. `model` is transformers'
    model for its configuration, `state` its full weights by name. `before_move` is called when all new files
    are complete and on the disk, and those in `folder` are still the old ones."""
    with (
        whole_files(folder / ".model", folder, before_move) as aside,
        quiet_transformers(),
        saved_by_this_process(model),
    ):
        # The names are those that the model has now: older checkpoints name norms otherwise, and transformers
        # would write their names. It empties the dictionary that it is given.
        model.save_pretrained(aside, state_dict=dict(state), save_original_format=False)
        # safetensors lets only the owner read its files
        shutil.copymode(aside / "config.json", aside / "model.safetensors")
        # Where the folder was renamed meanwhile, this is an error; the next line would make a new one
        aside.stat()
        tokenizer.save_pretrained(aside)
