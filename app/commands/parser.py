"""The command line of a verb: a parser whose errors have this project's form, and the values of options."""

import argparse
import re
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from ..errors import InputError
from ..prediction.open_model import WantedPrecision


class Rule(NamedTuple):
    """What an option's number must be: `words` come after "must be" in a message, `holds` says whether a
    number keeps the rule."""

    words: str
    holds: Callable[[float], bool]


def at_least(minimum: int) -> Rule:
    """Return the rule for numbers from `minimum` on."""
    return Rule(f"at least {minimum}", lambda value: value >= minimum)


def between(minimum: int, maximum: int) -> Rule:
    """Return the rule for numbers from `minimum` to `maximum`."""
    return Rule(f"from {minimum} to {maximum:,}", lambda value: minimum <= value <= maximum)


# This is the help of --device
DEVICES = "auto, cpu, cuda, npu, xpu or mps, with :N for one of several (default: auto)"
PROBABILITY = Rule("a number above 0 and up to 1", lambda value: 0 < value <= 1)
SHARE = Rule("a share from 0 to 1", lambda value: 0 <= value <= 1)


class Parser(argparse.ArgumentParser):
    """The parser of a verb that is called `prog`; its help is `doc`, the docstring of the verb."""

    def __init__(self, prog: str, doc: str = "", **options) -> None:
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter} | options
        description = re.sub(r"python -m app [\w-]+", prog, doc)
        super().__init__(prog, description=description, allow_abbrev=False, **options)

    def error(self, message: str) -> None:
        """Raise InputError; argparse itself would print the message and exit."""
        if broken := re.fullmatch(r"argument (\S+): (must .*)", message, re.DOTALL):
            raise InputError(f"{broken[1]} {broken[2]}")
        raise InputError(f"command line: {message} (--help lists all options)")


def number(kind: type, rule: Rule) -> Callable[[str], float]:
    """Return a function that reads an option's number of this kind, int or float, which must keep a rule. It
    raises argparse.ArgumentTypeError, as the other readers of options here do."""

    def read(text: str) -> float:
        with suppress(ValueError):
            if rule.holds(value := kind(text)):
                return value
        raise argparse.ArgumentTypeError(f"must be {rule.words}, found {text or 'nothing'}")

    return read


def threshold(value: str) -> float | WantedPrecision:
    """Return a probability, or of precision=P the wanted precision."""
    name, equals, wanted = value.partition("=")
    if not equals:
        return number(float, PROBABILITY)(value)
    if name != "precision":
        raise argparse.ArgumentTypeError(f"precision=P is needed, for instance precision=0.95, found {value}")
    return WantedPrecision(number(float, PROBABILITY)(wanted))


def add_threshold(add: Callable) -> None:
    """Add --threshold, which predict and serve have."""
    add(
        "--threshold",
        type=threshold,
        metavar="PROBABILITY",
        help="adds the columns decision, accept from this probability on and else abstain, and margin, the "
        "distance to the second largest probability; of several labels a row, confidence, how sure the least "
        "certain of them is. precision=P takes the lowest threshold that has this precision on half of the "
        "run's dev rows, and says how it does on the other half (default: none)",
    )


def add_computing(add: Callable, tokens: str) -> None:
    """Add the options of where and how a model computes, which predict and serve have; `tokens` is the help
    of --batch_tokens."""
    add("--device", default="auto", help=DEVICES)
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast (default: fp32)")
    add("--batch_tokens", type=number(int, at_least(1)), metavar="TOKENS", help=tokens)


def yes_or_no(value: str) -> bool:
    """Return the truth value of true or false."""
    if value not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, found {value or 'nothing'}")
    return value == "true"


def column_name(value: str) -> int | str | list[int | str]:
    """Return the name of a column, or its number, or several in brackets."""
    if value.startswith("["):
        return [column_name(name) for name in column_names(value)]
    return int(value) if value.removeprefix("-").isdecimal() else value


def column_names(value: str) -> list[str]:
    """Return the names of columns in a YAML list, such as [NAME, NAME]."""
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
