"""The options of verbs on modes and processes, and the modes that they stand for."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..errors import InputError

if TYPE_CHECKING:
    from ..config.schema import Config


@dataclass(frozen=True)
class PlannedMode:
    """A mode to run in `processes`; `unavailable` says why this machine cannot."""

    name: str
    processes: int
    unavailable: str | None


def build_parser(program: str, description: str, timeout: float) -> argparse.ArgumentParser:
    """Return a parser with the options of `verify` and `benchmark`; `timeout` in seconds is the default for
    one mode."""
    parser = argparse.ArgumentParser(
        program, description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--modes", nargs="+", metavar="MODE", help="modes to run (default: all)")
    add("--processes", type=int, help="processes of the parallel modes (default: accelerators, or 2)")
    add("--output", metavar="FILE", help="also write the table as JSON to this file")
    add(
        "--timeout",
        type=float,
        default=timeout,
        help=f"seconds that one mode may take (default: {timeout:g})",
    )
    return parser


def plan_modes(wanted: list[str] | None, processes: int | None, device: str) -> list[PlannedMode]:
    """Return the modes to run, single first, because the others are compared with it; raises InputError.

    `processes` are those of the parallel modes (default: the accelerators where `device` may use them, else
    2).
    """
    from ..runtime.devices import count_devices
    from ..strategies import load_strategy, strategy_names

    unknown = sorted(set(wanted or ()) - set(strategy_names()))
    if unknown:
        raise InputError(
            f"--modes: there is no mode {', '.join(unknown)} (known: {', '.join(strategy_names())})"
        )
    if processes is not None and processes < 1:
        raise InputError(f"--processes must be at least 1, found {processes}")
    devices = count_devices(device)
    planned = []
    for mode in sorted(set(wanted or strategy_names()), key=lambda name: (name != "single", name)):
        strategy = load_strategy(mode)
        count = 1 if strategy.launcher.one_process else processes or devices or 2
        planned.append(
            PlannedMode(mode, count, strategy.unavailable_reason() or _too_few_devices(devices, count))
        )
    return planned


def plan_mode(options: argparse.Namespace, config: Config) -> PlannedMode:
    """Return the mode of the options `mode` and `processes`; raises InputError where it cannot run here."""
    (planned,) = plan_modes([options.mode], options.processes or config.train.nprocs, config.train.device)
    if planned.unavailable:
        raise InputError(f"--mode {options.mode}: {planned.unavailable}")
    return planned


def add_mode_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that `plan_mode` reads."""
    add = parser.add_argument
    add("--mode", default="single", help="mode in which each run trains: single, ddp, ... (default: single)")
    add("--processes", type=int, help="processes of a parallel mode (default: accelerators, or 2)")


def _too_few_devices(devices: int, processes: int) -> str | None:
    if not 0 < devices < processes:
        return None
    return f"{processes} processes need as many accelerators, this machine has {devices}"
