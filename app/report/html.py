"""What all pages have: their templates, texts of strangers made visible, numbers as places in a picture."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..words import _, current_language, pgettext

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MAX_TEXT, MAX_LABEL = 200, 40  # characters
MAX_POINTS = 300  # of a line


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return untrusted text, cut, with control characters as code points."""

    def shown(character: str) -> str:
        if character in "\n\r\t":
            return " "
        is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        return f"‹U+{ord(character):04X}›" if is_hidden else character

    return "".join(map(shown, text[:longest])) + "…" * (len(text) > longest)


def page_environment(folder: Path = TEMPLATES, autoescape: bool = True) -> Environment:
    """Return the environment of the templates of pages, with their filters; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    loader = FileSystemLoader([TEMPLATES, folder])
    environment = Environment(
        loader=loader, autoescape=autoescape, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language}
    environment.filters |= {
        "visible": visible,
        "label": lambda name: visible(name, MAX_LABEL),
        "figure": "{:.4f}".format,
        "percent": lambda value: f"{value * 100:.1f} %",
        "number": "{:,}".format,
    }
    return environment


@dataclass(frozen=True)
class Axes:
    """A chart of 360 x 230 units whose axes go from `x_low` to `x_high` and from `y_low` to `y_high`."""

    x_low: float
    x_high: float
    y_low: float
    y_high: float
    width: int = 360
    height: int = 230
    right: int = 12
    top: int = 10
    bottom: int = 34

    @cached_property
    def left(self) -> int:
        """The room for the longest number beside the y axis; a digit is 7 units wide."""
        return max(44, 2 + 7 * max(len(f"{value:g}") for value in self.y_ticks))

    def x(self, value: float) -> float:
        """Return the place of a value on the x axis."""
        inner = self.width - self.left - self.right
        return round(self.left + (value - self.x_low) / (self.x_high - self.x_low or 1) * inner, 1)

    def y(self, value: float) -> float:
        """Return the place of a value on the y axis."""
        bottom = self.height - self.bottom
        return round(bottom - (value - self.y_low) / (self.y_high - self.y_low or 1) * (bottom - self.top), 1)

    def line(self, xs: Sequence[float], ys: Sequence[float]) -> str:
        """Return the points of a polyline through (xs, ys); of very many about `MAX_POINTS`."""
        step = max(1, math.ceil(len(xs) / MAX_POINTS))
        kept = sorted({*range(0, len(xs), step), max(0, len(xs) - 1)}) if len(xs) else []
        return " ".join(f"{self.x(float(xs[i]))},{self.y(float(ys[i]))}" for i in kept)

    @property
    def x_ticks(self) -> list[float]:
        return ticks(self.x_low, self.x_high)

    @property
    def y_ticks(self) -> list[float]:
        return ticks(self.y_low, self.y_high)


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about `about` round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    rough = (high - low) / about
    unit = 10 ** math.floor(math.log10(rough))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor >= rough * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def around(values: Sequence[float], from_zero: bool = False) -> tuple[float, float]:
    """Return the ends of an axis for values: a little more than they need."""
    finite = np.asarray([value for value in values if math.isfinite(value)] or [0.0])
    low, high = (0.0 if from_zero else float(finite.min())), float(finite.max())
    margin = (high - low) * 0.06 or max(abs(high), 1) * 0.1
    return (low if from_zero else low - margin), high + margin
