"""The modes; only the module of the mode that is asked for is imported."""

import importlib

from ..errors import InputError
from ..runtime.processes import launched_size

MODES = {
    "accelerate": ".library_modes:Accelerate",
    "ddp": ".mode:DDP",
    "deepspeed": ".library_modes:DeepSpeed",
    "dp": ".mode:DataParallel",
    "fsdp": ".mode:FSDP",
    "horovod": ".library_modes:Horovod",
    "mp": ".mode:SpawnedDDP",
    "single": ".mode:Single",
}


def load_mode(name: str) -> type:
    """Return the class of a mode, a `Mode`."""
    module, kind = MODES[name].split(":")
    return getattr(importlib.import_module(module, __package__), kind)


def check_world_size(name: str, world_size: int) -> None:
    """Raise InputError where more processes were started than train together in the mode `name`."""
    # Under some launchers of MPI nothing in the environment says how many were started
    variable, started = launched_size()
    if started > world_size:
        from .group import launch_command

        command = " ".join(launch_command(load_mode(name).launcher, [f"run_{name}.py"], started))
        raise InputError(
            f"{started} processes were asked for, but mode {name} has {world_size}, each training alone; "
            f"start it with {command}, or unset {variable}"
        )
