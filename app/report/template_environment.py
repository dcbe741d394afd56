"""The templates of the report, its page and its card, and what all templates of the program can use."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ..program import PREDICT
from ..text_table import columns_of, padded, short_label, text_table
from ..words import _, current_language, ngettext, pgettext, rows_in_words
from .metrics import BY_KEY
from .untrusted_text import markdown_name, visible, visible_label

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"


@cache
def template_environment(folder: Path = TEMPLATES, autoescape: bool = True) -> Environment:
    """Return the environment of the templates, which compiles each once; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader([TEMPLATES, folder]),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(
        _=_,
        ngettext=ngettext,
        pgettext=pgettext,
        language=current_language,
        by_key=BY_KEY,
        predict=PREDICT,
    )
    environment.filters.update(
        visible=visible,
        label=visible_label,
        name=markdown_name,
        translated=_,
        rows_in_words=rows_in_words,
        figure="{:.4f}".format,
        percent=percent,
        columns=columns_of,
        number="{:,}".format,
        short=short_label,
        padded=padded,
        table=short_table,
    )
    return environment


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


def short_table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    """Return a table for a terminal, whose cells are cut to the width of a label."""
    return text_table(short_row(header), map(short_row, rows))


def short_row(row: Sequence) -> list[str]:
    return [short_label(str(cell)) for cell in row]
