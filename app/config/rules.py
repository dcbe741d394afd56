"""Rules for the value of one setting, written beside its field: `epochs: Annotated[int, at_least(1)]`."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from types import NoneType
from typing import Annotated, Any, get_args, get_type_hints

from ..errors import InputError
from ..words import _


@dataclass(frozen=True)
class Rule:
    """A rule for a value of the right type: `words` come after "must be", `holds` says whether a value keeps
    it. A setting that may be null keeps every rule where it is null."""

    words: str
    holds: Callable[[Any], bool]


@dataclass(frozen=True)
class Needs:
    """A setting that keeps its default unless data.task has `what`, one of `Task.has`; `instead` is the
    setting of the other tasks, and `also` are values that they may have."""

    what: str
    instead: str = ""
    also: tuple[str, ...] = ()


def at_least(minimum: int, unit: str = "") -> Rule:
    """Return the rule for numbers from `minimum` on."""
    return Rule(f"at least {minimum} {unit}".rstrip(), lambda value: value >= minimum)


def at_most(maximum: int, unit: str = "") -> Rule:
    """Return the rule for numbers up to `maximum`."""
    return Rule(f"at most {maximum:,} {unit}".rstrip(), lambda value: value <= maximum)


def between(minimum: int, maximum: int) -> Rule:
    """Return the rule for numbers from `minimum` to `maximum`."""
    return Rule(f"from {minimum} to {maximum:,}", lambda value: minimum <= value <= maximum)


FROM_0_BELOW_1 = Rule("from 0 to below 1", lambda value: 0 <= value < 1)
POSITIVE = Rule("a finite number above 0", lambda value: 0 < value < float("inf"))
FINITE = Rule("a finite number from 0", lambda value: 0 <= value < float("inf"))
DIFFERENT_NAMES = Rule("two or more different names", lambda names: len(set(names)) == len(names) >= 2)
NOT_EMPTY = Rule("one or more characters", bool)
CLEAN_NAMES = Rule(
    "names without white space around them, none of them empty",
    lambda names: all(name == name.strip() != "" for name in names),
)
Count = Annotated[int, at_least(1)]
CountOrNone = Annotated[int | None, at_least(1)]
Seed = Annotated[int, Rule("an integer from 0 to below 2**63", lambda value: 0 <= value < 1 << 63)]


def check_rules(settings: Any, group: str) -> None:
    """Raise InputError, naming the key, for the first value of a group that breaks a rule of its field."""
    for key, value, hint, _default in _fields(settings, group):
        may_be_null = NoneType in get_args(get_args(hint)[0])
        for rule in hint.__metadata__:
            if isinstance(rule, Rule):
                words = f"{rule.words}, or null" if may_be_null else rule.words
                require(key, value, value is None or rule.holds(value), words)


def check_task(settings: Any, group: str, task: str, tasks: Mapping[str, frozenset[str]]) -> None:
    """Raise InputError, naming the key, for the first value of a group of settings that needs what a task
    has not; `tasks` are `Task.has` of all tasks."""
    for key, value, hint, default in _fields(settings, group):
        for rule in hint.__metadata__:
            if isinstance(rule, Needs) and rule.what not in tasks[task]:
                having = [name for name, has in tasks.items() if rule.what in has]
                is_rare = len(having) < len(tasks) / 2
                words = f"unless data.task is {' or '.join(having)}" if is_rare else f"with data.task {task}"
                instead = f"; set {rule.instead} instead" if rule.instead else ""
                require(key, value, value in (default, *rule.also), f"left out {words}{instead}")


def require(key: str, value: Any, is_valid: bool, rule: str) -> None:
    """Raise InputError, with the rule of a setting and its value, unless the value is valid."""
    if not is_valid:
        said = _("{setting} must be {rule}, found {value}{near}")
        raise InputError(said.format(setting=key, rule=rule, value=repr(value), near=""))


def _fields(settings: Any, group: str) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield key, value, type and default of each field whose type has rules."""
    hints = get_type_hints(type(settings), include_extras=True)
    for field in fields(settings):
        key, value = f"{group}.{field.name}", getattr(settings, field.name)
        if is_dataclass(value):
            yield from _fields(value, key)
        elif hasattr(hints[field.name], "__metadata__"):
            yield key, value, hints[field.name], field.default
