"""The command line of a verb: a parser with errors in this project's form, and options that verbs share."""

import argparse
import math
import re
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from inspect import cleandoc
from typing import Any, NoReturn

from pydantic import TypeAdapter, ValidationError

from ..config.allowed_values import describe
from ..config.command_line import plain_value, unset
from ..config.earlier_values import RENAMED
from ..config.schema import HINTS
from ..errors import InputError, nearest, show
from ..prediction import WantedPrecision
from ..program import with_names_here
from .named_model import Words

DEVICES = "auto, cpu, cuda, npu, xpu or mps, with :N for one of several (default: auto)"
# argparse writes this of a value that the type of an argument refuses
REFUSED_VALUE = re.compile(r"argument (\S+): (must .*)", re.DOTALL)
# argparse writes this of options that there are not
UNKNOWN = re.compile(r"unrecognized arguments: (\S+).*", re.DOTALL)
# Other programs have these options for what is --checkpoint here
NAMES_OF_CHECKPOINT = ("--model", "--run", "--ckpt", "--model_path", "--model_dir", "--model.name")
OVERWRITE = "replace the file that is there, once the new one is complete (default: that is an error)"


def description_of(doc: str, program: str) -> str:
    """Return the docstring of a verb as the help of `program`."""
    return with_names_here(re.sub(r"python -m app [\w-]+", program, cleandoc(doc)))


class Parser(argparse.ArgumentParser):
    """The parser of a verb that is called `prog`; its help is `doc`, the docstring of the verb."""

    def __init__(self, prog: str, doc: str = "", **options) -> None:
        description = description_of(doc, prog)
        options |= {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False}
        super().__init__(prog, description=description, **options)

    def parse_known_args(self, args: list[str] | None = None, namespace: Any = None) -> tuple:
        """Parse as argparse does; none unsets an option that has no default, as it unsets a setting."""
        for action in self._actions:
            # Those that are settings know themselves what none means
            is_setting = any(name.removeprefix("--") in HINTS for name in action.option_strings)
            has_no_default = action.nargs is None and action.default is None
            if action.option_strings and has_no_default and not is_setting:
                action.type = or_none(action.type or str)
                if action.choices is not None:
                    action.choices = ChoicesOrNone(action.choices)
        return super().parse_known_args(args, namespace)

    def print_help(self, file: object = None) -> NoReturn:
        """Print the help and exit; argparse itself would hide that it cannot be written."""
        raise SystemExit(show(self.format_help()))

    def error(self, message: str) -> None:
        """Raise InputError; argparse itself would print the message and exit."""
        refused = REFUSED_VALUE.fullmatch(message)
        if refused:
            raise InputError(f"{refused[1]} {refused[2]}")
        unknown = UNKNOWN.fullmatch(message)
        if unknown:
            message += self._nearest_option(unknown[1])
        raise InputError(f"command line: {message} (--help lists all options)")

    def _nearest_option(self, option: str) -> str:
        """Return the option that is meant by an unknown one, as `nearest` does."""
        options = self._option_string_actions
        name = option.partition("=")[0]
        if name in NAMES_OF_CHECKPOINT and "--checkpoint" in options:
            return "; did you mean '--checkpoint'?"
        return nearest(name, options)

    def parse_words(self, argv: list[str]) -> tuple[argparse.Namespace, Words]:
        """Return the options, which may stand anywhere, and the words of the argument `words`. Raises
        InputError for an unknown option."""
        dashes = len(argv)
        if "--" in argv:
            dashes = argv.index("--")
        args, unknown = self.parse_known_intermixed_args(argv[:dashes])
        if unknown:
            self.error(f"unrecognized arguments: {unknown[0]}")
        return args, Words(before=args.words, after=argv[dashes + 1 :])


def add_overwrite(add: Callable, help: str = OVERWRITE) -> None:
    """Add the option with which a command may replace what it writes."""
    add("--overwrite", action="store_true", help=help)


class ChoicesOrNone(list):
    """The choices of an option, which may also be None; help and errors do not list that."""

    def __contains__(self, value: object) -> bool:
        return value is None or super().__contains__(value)


def or_none(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a function that reads the value of an option with `read`, and none as None."""

    @wraps(read)
    def read_or_none(text: str) -> Any:
        if unset(text) is None:
            return None
        return read(text)

    return read_or_none


def number(number_type: type, low: float, high: float = math.inf) -> Callable[[str], float]:
    """Return a function that reads an option's number, int or float, from `low` to `high`."""
    rule = f"at least {low}" if high == math.inf else f"from {low} to {high:,}"

    def read(text: str) -> float:
        with suppress(ValueError):
            value = number_type(text)
            if low <= value <= high:
                return value
        raise argparse.ArgumentTypeError(f"must be {rule}, found {text or 'nothing'}")

    return read


def threshold(value: str) -> float | WantedPrecision:
    """Return the probability that an option gives, or the precision that precision=P asks for."""
    name, equals, wanted = value.partition("=")
    if not equals:
        return number(float, 0, 1)(value)
    if name != "precision":
        raise argparse.ArgumentTypeError(f"precision=P is needed, for instance precision=0.95, found {value}")
    return WantedPrecision(number(float, 0, 1)(wanted))


def add_computing(add: Callable, tokens: str) -> None:
    """Add the options that predict and serve have: the lowest probability at which a label is accepted, and
    where and how a model computes; `tokens` is the help of --batch_tokens."""
    add(
        "--threshold",
        type=threshold,
        metavar="PROBABILITY",
        help="adds the columns decision, accept from this probability on and else abstain, and margin, the "
        "distance to the second largest probability; of several labels a row, confidence, how sure the least "
        "certain of them is. precision=P takes the lowest threshold that has this precision on half of the "
        "run's dev rows, and says how it does on the other half (default: none)",
    )
    add("--device", default="auto", help=DEVICES)
    add("--precision", choices=["fp32", "bf16"], default="fp32", help="bf16 is autocast (default: fp32)")
    add("--batch_tokens", type=number(int, 1), metavar="TOKENS", help=tokens)


def series_parser(program: str, doc: str) -> Parser:
    """Return a parser with the options of verbs that train several runs."""
    parser = Parser(program, doc)
    parser.add_argument(
        "--mode",
        default="single",
        help="mode in which each run trains: single, ddp, ... (default: single)",
    )
    parser.add_argument(
        "--processes",
        type=number(int, 1),
        help="processes of a parallel mode (default: accelerators, or 2)",
    )
    overwrite = (
        "where the folder holds runs of another job, move it to a folder of another name and start again; "
        "and write label_issues.csv again, also where you have filled in labels (default: other runs are an "
        "error, and the list stays)"
    )
    add_overwrite(parser.add_argument, overwrite)
    return parser


def setting(name: str) -> Callable[[str], Any]:
    """Return a function that reads an option which has the values of a setting."""

    def read(text: str) -> Any:
        try:
            return TypeAdapter(HINTS[name]).validate_python(plain_value(name, text), strict=True)
        except ValidationError as error:
            message = f"must be {describe(HINTS[name])}, found {text or 'nothing'}"
            new_name = RENAMED.get(name, {}).get(text)
            if new_name:
                message += f", which is called {new_name} now"
            raise argparse.ArgumentTypeError(message) from error

    return read
