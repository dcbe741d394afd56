"""The options of verbs on modes and processes, and the modes that they stand for."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

from ..config.schema import Config
from ..errors import InputError
from .exit_status import say
from .parser import Parser, at_least, number


@dataclass(frozen=True)
class PlannedMode:
    """A mode to run in `processes`; `unavailable` says why this machine cannot."""

    name: str
    processes: int
    unavailable: str | None


def modes_parser(program: str, doc: str, timeout: float) -> Parser:
    """Return a parser with the options of `verify` and `benchmark`; `timeout` in seconds is for one mode."""
    parser = Parser(program, doc)
    add = parser.add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    add("--processes", type=int, help="processes of the parallel modes (default: accelerators, or 2)")
    add("--output", metavar="FILE", help="also write the table as JSON to this file")
    seconds = f"seconds that one mode may take (default: {timeout:g})"
    add("--timeout", type=float, default=timeout, help=seconds)
    return parser


def series_parser(program: str, doc: str) -> Parser:
    """Return a parser with the options of verbs that train several runs, which `plan_mode` reads."""
    parser = Parser(program, doc)
    mode = "mode in which each run trains: single, ddp, ... (default: single)"
    parser.add_argument("--mode", default="single", help=mode)
    processes = "processes of a parallel mode (default: accelerators, or 2)"
    parser.add_argument("--processes", type=number(int, at_least(1)), help=processes)
    return parser


def run_series(work: Callable[[], str], continues: str = "the same command continues") -> int:
    """Print what `work` returns; return the exit status, 128 + a signal that has stopped it."""
    from ..runtime.signals import Stopped

    try:
        print(work())
    except Stopped as stop:
        say(f"Stopped by {stop}; {continues}.")
        return 128 + stop.number
    return 0


def check_has_labels(verb: str, task: str) -> None:
    """Raise InputError for a task without labels."""
    from ..tasks import task_class

    if not task_class(task).has_labels:
        raise InputError(f"{verb} needs labels, found data.task {task}; choose another data.task")


def plan_modes(wanted: list[str] | None, processes: int | None, device: str) -> list[PlannedMode]:
    """Return the modes to run, single first, because the others are compared with it; raises InputError.
    `processes` are those of the parallel modes (default: accelerators of `device`, or 2)."""
    from ..modes import load_mode, mode_names
    from ..runtime.devices import count_devices

    unknown = sorted(set(wanted or ()) - set(mode_names()))
    if unknown:
        raise InputError(f"--modes: there is no mode {', '.join(unknown)} (known: {', '.join(mode_names())})")
    if processes is not None and processes < 1:
        raise InputError(f"--processes must be at least 1, found {processes}")
    devices = count_devices(device)
    planned = []
    for name in sorted(set(wanted or mode_names()), key=lambda name: (name != "single", name)):
        mode = load_mode(name)
        count = 1 if mode.launcher.one_process else processes or devices or 2
        too_few = None
        if 0 < devices < count:
            too_few = f"{count} processes need as many accelerators, this machine has {devices}"
        planned.append(PlannedMode(name, count, mode.unavailable_reason() or too_few))
    return planned


def plan_mode(options: argparse.Namespace, config: Config) -> PlannedMode:
    """Return the mode of the options `mode` and `processes`; raises InputError where it cannot run here."""
    (planned,) = plan_modes([options.mode], options.processes, config.train.device)
    if planned.unavailable:
        raise InputError(f"--mode {options.mode}: {planned.unavailable}")
    return planned
