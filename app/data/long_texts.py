"""How a text of more than `max_length` tokens is read: cut, its head and tail, or all of it in windows."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, get_args

from ..config.data_settings import DataConfig, LongTextMode
from ..errors import InputError, excerpt

# One token in so many is of the head, the others are of the tail
HEAD = 4


class EncodedRow(NamedTuple):
    """The token ids of a row in `windows` of at most `max_length`, special tokens included. `is_cut`: some
    are in none. `second_start`: the tokens before the second text of a pair, or all."""

    windows: list[list[int]]
    is_cut: bool
    second_start: int | None = None


@dataclass(frozen=True)
class LongTexts:
    """The setting `data.long` as `way`, and the maximum windows of a row."""

    way: str = "cut"
    max_windows: int = 8

    def step(self, capacity: int) -> int:
        """Return the tokens from the start of one window to that of the next; each has `capacity`."""
        return max(1, capacity * 3 // 4)


CUT = LongTexts()


def long_texts(settings: DataConfig) -> LongTexts:
    """Return what is configured; settings that a way does not use have no effect on tokens."""
    return LongTexts(settings.long, settings.max_windows) if settings.long != "cut" else CUT


def saved_long_texts(values: dict, path: Path) -> LongTexts:
    """Return what a run has written as `data.long` and `data.max_windows`, defaults where it has none. Raises
    InputError for other values, naming the file, `path`."""
    way, windows = values.get("long", "cut"), values.get("max_windows", 8)
    modes = get_args(LongTextMode)
    if way not in modes or not _is_count(windows):
        raise InputError(
            f"{path}: data.long must be one of {', '.join(modes)}, and data.max_windows a number from 1; "
            f"found {excerpt(way)} and {excerpt(windows)}; fix the file"
        )
    return LongTexts(way, windows) if way != "cut" else CUT


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 1
