"""The modes; only the module of the mode that is asked for is imported."""

import importlib

from ..errors import InputError
from ..program import training_program
from ..runtime.processes import launched_size

MODES = {
    "accelerate": ".accelerate_mode:Accelerate",
    "ddp": ".mode:DDP",
    "deepspeed": ".deepspeed_mode:DeepSpeed",
    "dp": ".mode:DataParallel",
    "fsdp": ".mode:FSDP",
    "horovod": ".horovod_mode:Horovod",
    "mp": ".mode:SpawnedDDP",
    "single": ".mode:Single",
}


def load_mode(name: str) -> type:
    """Return the class of a mode, a `Mode`; raises InputError where there is no such mode."""
    if name not in MODES:
        raise InputError(f"there is no mode {name} (known: {', '.join(sorted(MODES))})")
    module_name, class_name = MODES[name].split(":")
    module = importlib.import_module(module_name, __package__)
    return getattr(module, class_name)


def check_world_size(name: str, world_size: int) -> None:
    """Raise InputError where more processes were started than train together in the mode `name`."""
    # Under some launchers of MPI nothing in the environment says how many were started
    variable, started = launched_size()
    if started > world_size:
        from .launch import launch_command

        launcher = load_mode(name).launcher
        command = " ".join(launch_command(launcher, training_program(name), started))
        raise InputError(
            f"{started} processes were asked for, but mode {name} has {world_size}, each training alone; "
            f"start it with {command}, or unset {variable}"
        )
