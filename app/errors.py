"""The errors that end a program with a message instead of a traceback, and helpers that write messages."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from .words import _

# Characters of a name that is compared with others
MAX_NAME = 200


class InputError(ValueError):
    """Bad input, with exit status 2: a file, a configuration or a checkpoint that breaks a rule. The message
    says the rule, what was found (with file and line, if any) and the remedy."""


class TrainingError(RuntimeError):
    """A run that cannot continue, with exit status 1, though its input is valid: non-finite numbers, no
    memory, a full disk. The message says the cause, what was saved and the remedy."""


def show(text: str) -> int:
    """Write a text to standard output; return the exit status: 0, 141 where its reader has closed it, and 1
    where it cannot be written, as on a full disk, which is said on standard error."""
    error = write_out(text)
    if error is None:
        return 0
    if isinstance(error, BrokenPipeError):
        return 141
    why = error.strerror or error
    problem = f"standard output: cannot be written: {why}; free space, or write to another place, and run it"
    say(_("error: {error}").format(error=f"{problem} again"))
    return 1


def write_out(text: str) -> OSError | None:
    """Write a text to standard output, with all that is still to be written there. Return the error where
    that fails; what is written there afterwards is then discarded."""
    try:
        print(text, end="", flush=True)  # noqa: T201
    except OSError as error:
        # Without this, Python would try to write the same again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return error
    return None


def say(message: object) -> None:
    """Print a message on standard error; nothing if that is closed or full."""
    if sys.stderr is not None:
        with suppress(OSError):
            print(str(message).encode(errors="backslashreplace").decode(), file=sys.stderr)  # noqa: T201


def install_command(packages: str, constrained: bool = True) -> str:
    """Return the command that installs optional packages: in a clone those of a file of requirements/, with
    the versions of constraints.txt unless not `constrained`; else the extra of the same name."""
    if __package__ != "app":
        return f"pip install 'chinese-text-classification[{packages}]'"
    constraints = " -c constraints.txt" if constrained else ""
    return f"pip install -r requirements/{packages}.txt{constraints}"


@contextmanager
def needed(packages: str) -> Iterator[None]:
    """Raise InputError for an ImportError inside: the optional `packages` must be installed."""
    try:
        yield
    except ImportError as error:
        raise InputError(
            f"a package is needed for this that cannot be imported ({error}); install it: "
            f"{install_command(packages)}"
        ) from error


@contextmanager
def as_input_error(problem: str, remedy: str) -> Iterator[None]:
    """Raise InputError where a library fails inside, whatever that is: a panic in Rust is no `Exception`."""
    try:
        yield
    except BaseException as error:  # noqa: BLE001
        is_failure = isinstance(error, Exception) or type(error).__name__ == "PanicException"
        if isinstance(error, (InputError, TrainingError)) or not is_failure:
            raise
        raise InputError(f"{problem}: {shorten(first_line(error), 400)}; {remedy}") from error


def nearest(name: Any, candidates: Iterable, cutoff: float = 0.5) -> str:
    """Return `; did you mean 'x'?` for the candidate most similar to `name`, if the share of common
    characters is `cutoff`, or an empty string. Only a few thousand names of usual lengths are compared: a
    broken file can have names of megabytes."""
    import difflib

    known = [text for text in map(str, islice(candidates, 5000)) if len(text) <= MAX_NAME]
    known = known if len(str(name)) <= MAX_NAME else []
    close = difflib.get_close_matches(str(name), known, n=1, cutoff=cutoff)
    return _("; did you mean '{name}'?").format(name=shorten(close[0], MAX_NAME)) if close else ""


@contextmanager
def readable(path: object) -> Iterator[None]:
    """Raise InputError where the system does not let us read a file."""
    try:
        yield
    except OSError as error:
        path, why = shorten(str(path), 200), error.strerror
        raise InputError(_("{path}: cannot be read: {why}").format(path=path, why=why)) from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    return (str(error) or type(error).__name__).splitlines()[0]


def shorten(text: str, length: int = 40) -> str:
    """Return the first `length` characters of `text`; those that cannot be printed become escapes."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text[:length])
    return shown + ("…" if len(text) > length else "")


def printable_path(path: str) -> str:
    """Return a path with the bytes of another encoding replaced."""
    return os.fsencode(path).decode(errors="replace")


def listed(names: Iterable, count: int = 20) -> str:
    """Return the first `count` names for an error message, each shortened, separated by commas."""
    first = [str(name) for name in islice(names, count + 1)]
    return ", ".join([shorten(name) for name in first[:count]] + ["..."] * (len(first) > count))


def excerpt(value: Any, length: int = 40) -> str:
    """Return a short, printable form of `value` for an error message."""
    if isinstance(value, str):
        text = value.strip()
        return repr(re.sub("[\ud800-\udfff]", "\ufffd", text[:length]) + ("…" if len(text) > length else ""))
    try:
        return shorten(json.dumps(value, ensure_ascii=False, default=str), length)
    except (RecursionError, TypeError, ValueError):
        # Too many levels, or keys that JSON does not allow
        return f"a {type(value).__name__} that cannot be shown"
