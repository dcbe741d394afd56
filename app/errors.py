"""The errors that end a program with a message instead of a traceback, and helpers that write messages."""

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from .program import install_command

MAX_NAME = 200  # characters of a name that is compared with others
MAX_CANDIDATES = 5000  # names that a name is compared with
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
MAX_PATH = 200  # characters of a path in a message


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
    reason = error.strerror or error
    remedy = "free space, or write to another place, and run it again"
    message = f"standard output: cannot be written: {reason}; {remedy}"
    say(f"error: {message}")
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
    if sys.stderr is None:
        return
    text = str(message).encode(errors="backslashreplace").decode()
    with suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201


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
        is_ours = isinstance(error, (InputError, TrainingError))
        if is_ours or not is_failure:
            raise
        raise InputError(f"{problem}: {shorten(first_line(error), 400)}; {remedy}") from error


def nearest(name: Any, candidates: Iterable, cutoff: float = 0.5) -> str:
    """Return `; did you mean 'x'?` for the candidate most similar to `name`, if the share of common
    characters is `cutoff`, or an empty string. Only a few thousand names of usual lengths are compared: a
    broken file can have names of megabytes."""
    import difflib

    text = str(name)
    if len(text) > MAX_NAME:
        return ""
    names = [str(candidate) for candidate in islice(candidates, MAX_CANDIDATES)]
    short_names = [candidate for candidate in names if len(candidate) <= MAX_NAME]
    matches = difflib.get_close_matches(text, short_names, n=1, cutoff=cutoff)
    if not matches:
        return ""
    return f"; did you mean '{shorten(matches[0], MAX_NAME)}'?"


@contextmanager
def reading(path: object) -> Iterator[None]:
    """Raise InputError where the system does not let us read a file inside."""
    try:
        yield
    except OSError as error:
        short_path = shorten(str(path), MAX_PATH)
        raise InputError(f"{short_path}: cannot be read: {error.strerror}") from error


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message."""
    message = str(error) or type(error).__name__
    return message.splitlines()[0]


def shorten(text: str, length: int = 40) -> str:
    """Return the first `length` characters of `text`; those that cannot be printed become escapes."""
    printable = "".join(map(printable_character, text[:length]))
    if len(text) > length:
        printable += "…"
    return printable


def printable_character(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def printable_path(path: str) -> str:
    """Return a path with the bytes of another encoding replaced."""
    return os.fsencode(path).decode(errors="replace")


def listed(names: Iterable, count: int = 20) -> str:
    """Return the first `count` names for an error message, each shortened, separated by commas."""
    # One more says whether there are others
    first_names = list(islice(names, count + 1))
    parts = [shorten(str(name)) for name in first_names[:count]]
    if len(first_names) > count:
        parts.append("...")
    return ", ".join(parts)


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """Return a number with its noun, in English: 1 row, 1,234 rows; `plural` where it is not noun + s."""
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {plural or noun + 's'}"


def excerpt(value: Any, length: int = 40) -> str:
    """Return a short, printable form of `value` for an error message."""
    if isinstance(value, str):
        text = value.strip()
        short_text = HALF_CHARACTER.sub("\ufffd", text[:length])
        if len(text) > length:
            short_text += "…"
        return repr(short_text)
    try:
        return shorten(json.dumps(value, ensure_ascii=False, default=str), length)
    except (RecursionError, TypeError, ValueError):
        # Too many levels, or keys that JSON does not allow
        return f"a {type(value).__name__} that cannot be shown"
