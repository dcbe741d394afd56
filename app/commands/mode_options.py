"""The options of verbs for modes and processes, and the modes that they stand for."""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..config.command_line import load_config
from ..errors import InputError
from ..words import use_language
from .exit_status import say
from .parser import Parser, at_least, number

if TYPE_CHECKING:
    # It imports torch, which --help does without
    from ..runs.series import Series


class PlannedMode(NamedTuple):
    """A mode to run in `processes`; `unavailable` says why this machine cannot."""

    name: str
    processes: int
    unavailable: str | None


def series_parser(program: str, doc: str) -> Parser:
    """Return a parser with the options of verbs that train several runs, which `plan_series` reads."""
    add = (parser := Parser(program, doc)).add_argument
    add("--mode", default="single", help="mode in which each run trains: single, ddp, ... (default: single)")
    processes = "processes of a parallel mode (default: accelerators, or 2)"
    add("--processes", type=number(int, at_least(1)), help=processes)
    return parser


def plan_series(verb: str, kind: str, options: argparse.Namespace, settings: list[str]) -> "Series":
    """Return the series of runs of a verb, in output.dir, else in checkpoints/NAME-KIND, where the same
    command finds what it did before; `kind` says what the runs are (5 folds). Raises InputError for a task
    without labels, and for a mode that cannot run here."""
    config = load_config(settings)
    use_language(config.output.language)
    from ..checkpoints.run_folder import CHECKPOINTS
    from ..runs.series import Series
    from ..tasks import task_class

    if not task_class(config.data.task).has_labels:
        raise InputError(f"{verb} needs labels, found data.task {config.data.task}; choose another data.task")
    (planned,) = plan_modes([options.mode], options.processes, config.train.device)
    if planned.unavailable:
        raise InputError(f"--mode {options.mode}: {planned.unavailable}")
    folder = config.output.dir or CHECKPOINTS / f"{config.output.name}-{kind.replace(' ', '-')}"
    return Series(Path(folder), kind, planned.name, planned.processes, settings, config)


def run_series(work: Callable[[], str]) -> int:
    """Print what `work` returns; return the exit status, 0, or 128 + the signal that stopped it."""
    from ..runtime.signals import Stopped

    try:
        print(work())
    except Stopped as stop:
        say(f"Stopped by {stop}; the same command continues.")
        return 128 + stop.number
    return 0


def plan_modes(wanted: list[str] | None, processes: int | None, device: str) -> list[PlannedMode]:
    """Return the modes to run, single first, because the others are compared with it. `processes` are those
    of the parallel modes (default: accelerators of `device`, or 2). Raises InputError for an unknown mode."""
    from ..modes import load_mode, mode_names
    from ..runtime.devices import count_devices

    if unknown := sorted(set(wanted or ()) - set(mode_names())):
        raise InputError(f"there is no mode {', '.join(unknown)} (known: {', '.join(mode_names())})")
    devices, planned = count_devices(device), []
    for name in sorted(set(wanted or mode_names()), key=lambda name: (name != "single", name)):
        mode = load_mode(name)
        count = 1 if mode.launcher.kind == "one" else processes or devices or 2
        too_few = f"{count} processes need as many accelerators, this machine has {devices}"
        unavailable = mode.unavailable_reason() or (too_few if 0 < devices < count else None)
        planned.append(PlannedMode(name, count, unavailable))
    return planned
