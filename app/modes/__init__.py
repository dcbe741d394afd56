"""The modes, one file each (mp is in ddp.py); only the module of the mode that is asked for is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

# Which imports torch
if TYPE_CHECKING:
    from ..config.schema import Config
    from .mode import Mode

MODES = {
    "single": ".single:Single",
    "dp": ".dp:DataParallel",
    "ddp": ".ddp:DDP",
    "mp": ".ddp:SpawnedDDP",
    "fsdp": ".fsdp:FSDP",
    "accelerate": ".accelerate:Accelerate",
    "deepspeed": ".deepspeed:DeepSpeed",
    "horovod": ".horovod:Horovod",
}


def mode_names() -> list[str]:
    """Return the names of all modes, in alphabetical order."""
    return sorted(MODES)


def load_mode(name: str) -> type[Mode]:
    """Return the class of a mode."""
    module, kind = MODES[name].split(":")
    return getattr(importlib.import_module(module, __package__), kind)


@contextmanager
def open_mode(name: str, config: Config) -> Iterator[Mode]:
    """Give a mode: its group is joined; threads, memory and arithmetic are set up. Its
    `config` has every setting that follows from the device."""
    from ..runtime.machine import keep_few_kernels, set_up_machine

    keep_few_kernels()
    with load_mode(name)(config) as mode:
        set_up_machine(mode.config.train, mode.device, mode.group.local_world_size)
        yield mode
