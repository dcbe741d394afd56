"""Words of the command line -> values of options; argparse says what is wrong with one."""

from __future__ import annotations

import argparse

from ..prediction.beside import MAX_EVIDENCE

# Help of --device
DEVICES = "auto, cpu, cuda, npu, xpu or mps, with :N for one of several (default: auto)"


def probability(value: str) -> float:
    """Return a probability, above 0 and up to 1."""
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number <= 1:
        raise argparse.ArgumentTypeError(
            f"a number above 0 and up to 1 is needed, found {value or 'nothing'}"
        )
    return number


def num_rows(value: str) -> int:
    """Return a number of rows, from 1 to 100."""
    if not value.isdecimal() or not 1 <= int(value) <= MAX_EVIDENCE:
        raise argparse.ArgumentTypeError(
            f"a number from 1 to {MAX_EVIDENCE} is needed, found {value or 'nothing'}"
        )
    return int(value)


def wanted_precision(value: str) -> float:
    """Return the number of precision=P."""
    name, _, number = value.partition("=")
    if name != "precision":
        raise argparse.ArgumentTypeError(f"precision=P is needed, for instance precision=0.95, found {value}")
    return probability(number)


def column_name(value: str) -> int | str:
    """Return the name of a column, or its number."""
    return int(value) if value.removeprefix("-").isdecimal() else value


def column_names(value: str) -> list[str]:
    """Return the names of columns, of a list as YAML has it."""
    import yaml

    try:
        names = yaml.safe_load(value)
    except yaml.YAMLError:
        names = None
    if not isinstance(names, list) or not names or not all(isinstance(name, (str, int)) for name in names):
        raise argparse.ArgumentTypeError(
            f"a list of columns is needed, like '[NAME, NAME]', found {value or 'nothing'}"
        )
    return list(map(str, names))
