"""The values that the type of a setting allows: as types, and in words for help and errors."""

from dataclasses import asdict
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from .schema import STRING, Float, Text, ValueRule

MAPPING = "a mapping of keys to values"
WORDS_OF_TYPES = {
    int: "an integer",
    float: "a finite number",
    bool: "true or false",
    str: STRING,
    list[Text]: "a list such as [a, b] of strings (numbers, yes and no in quotes)",
    list[Float]: "a list of numbers",
    list[int | Text]: "a list of names or numbers",
    dict: MAPPING,
    NoneType: "none",
}
# The keys are the limits of `Field` that a type has
WORDS_OF_RANGES = {
    ("ge",): "{kind} of at least {ge:,}",
    ("gt",): "{kind} above {gt:,}",
    ("ge", "le"): "{kind} from {ge:,} to {le:,}",
    ("ge", "lt"): "{kind} from {ge:,} to below {lt:,}",
}


def member_types(hint: Any) -> list[Any]:
    """Return the types of a union, each without its annotations; of another type that type alone."""
    if get_origin(hint) is Annotated:
        return member_types(get_args(hint)[0])
    if get_origin(hint) not in (Union, UnionType):
        return [hint]
    members = []
    for member in get_args(hint):
        members += member_types(member)
    return members


def literal_values(hint: Any) -> list[Any]:
    """Return the values that the `Literal` types in a hint name, also those of the items of lists."""
    values: list[Any] = []
    for member in member_types(hint):
        if get_origin(member) is Literal:
            values += get_args(member)
        elif get_origin(member) is list:
            values += literal_values(*get_args(member))
    return values


def describe(hint: Any) -> str:
    """Return, in words, the values that the type of a setting allows."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _describe_annotated(*get_args(hint))
    if origin in (Union, UnionType):
        return " or ".join(describe(member) for member in get_args(hint))
    if origin is Literal:
        values = ", ".join(str(value) for value in get_args(hint))
        if len(get_args(hint)) == 1:
            return values
        return f"one of {values}"
    items = literal_values(hint)
    if items:
        return f"a list such as [{items[0]}] of {', '.join(items)} ([]: none of them)"
    return WORDS_OF_TYPES.get(hint, MAPPING)


def _describe_annotated(plain_type: Any, *annotations: Any) -> str:
    """Return the words of the first annotation that limits the values, else those of the type."""
    for annotation in annotations:
        if isinstance(annotation, ValueRule):
            return annotation.words
        if isinstance(annotation, FieldInfo):
            limits: dict[str, float] = {}
            for limit in annotation.metadata:
                limits |= asdict(limit)
            words = WORDS_OF_RANGES[tuple(limits)]
            return words.format(kind=describe(plain_type), **limits)
    return describe(plain_type)
