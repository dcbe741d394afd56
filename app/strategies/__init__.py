"""The modes, one file each; only the module of the mode that is asked for is imported."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

# Which imports torch
if TYPE_CHECKING:
    from ..config.schema import Config
    from .strategy import Strategy

MODES = {
    "single": ".single:Single",
    "dp": ".dp:DataParallel",
    "ddp": ".ddp:DDP",
    "mp": ".mp:SpawnedDDP",
    "fsdp": ".fsdp:FSDP",
    "accelerate": ".accelerate:Accelerate",
    "deepspeed": ".deepspeed:DeepSpeed",
    "horovod": ".horovod:Horovod",
}


def strategy_names() -> list[str]:
    """Return the names of all modes, in alphabetical order."""
    return sorted(MODES)


def load_strategy(mode: str) -> type[Strategy]:
    """Return the strategy class of a mode."""
    module, name = MODES[mode].split(":")
    return getattr(importlib.import_module(module, __package__), name)


@contextmanager
def open_strategy(mode: str, config: Config) -> Iterator[Strategy]:
    """Give the strategy of a mode: its group is joined; threads, memory and arithmetic are set up. Its
    `config` has every setting that follows from the device."""
    from ..runtime.host_memory import keep_few_kernels
    from ..runtime.machine import set_up_machine

    keep_few_kernels()
    with load_strategy(mode)(config) as strategy:
        set_up_machine(strategy.config.train, strategy.device, strategy.group.local_world_size)
        yield strategy
