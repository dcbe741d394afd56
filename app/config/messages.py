"""The settings by their dotted names, and the values they allow, in words for error messages."""

import re
from dataclasses import is_dataclass
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from ..errors import nearest
from ..words import _
from .schema import Config, PlainValue

TYPES = {
    int: "an integer",
    float: "a number",
    bool: "true or false",
    str: "a string (numbers, yes and no in quotes)",
    list[str]: "a list such as [a, b] of strings (numbers, yes and no in quotes)",
    list[float]: "a list of numbers",
    dict[str, PlainValue]: "a mapping of keys to values",
    NoneType: "null",
}


def setting_types(schema: type = Config, prefix: str = "") -> dict[str, Any]:
    """Return the type of each setting by its dotted name."""
    types: dict[str, Any] = {}
    for key, hint in get_type_hints(schema).items():
        name = f"{prefix}{key}"
        types |= setting_types(hint, f"{name}.") if is_dataclass(hint) else {name: hint}
    return types


def explain_parser_error(message: str) -> str:
    """Return what jsonargparse says about a wrong type or a stray word, as a rule and what was found."""
    key = re.search(r'Parser key "([\w.]+)"', message)
    hint = setting_types().get(key[1]) if key else None
    if hint is not None:
        value = re.split(r"(?:Got|Given) value: ?", message)[-1].strip()
        near = nearest(value, [choice for member in (hint, *get_args(hint)) for choice in _choices(member)])
        said = _("{setting} must be {rule}, found {value}{near}")
        return said.format(setting=key[1], rule=describe_type(hint), value=value or _("nothing"), near=near)
    if message.startswith("unrecognized arguments"):
        message += (
            "; a value needs the name of its setting before it, as in --data.train FILE (--help all lists "
            "them)"
        )
    return " ".join(message.split())


def _choices(hint: Any) -> tuple:
    return get_args(hint) if get_origin(hint) is Literal else ()


def describe_type(hint: Any) -> str:
    """Return, in words, the values that a type allows."""
    if _choices(hint):
        choices = _choices(hint)
        shown = ", ".join(map(str, choices))
        return _("one of {values}").format(values=shown) if len(choices) > 1 else shown
    return TYPES[hint] if hint in TYPES else " or ".join(map(describe_type, get_args(hint)))
