"""The language of what people read: reports, pages, cards, advice, tables.

The English sentences stand in the code, `_("{rows:,} rows").format(rows=rows)`; their Chinese is in
`locale/zh_CN/LC_MESSAGES/app.po`, kept by scripts/messages.py. Help, errors and the log are in English only:
people search the web for them.
"""

import gettext
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

CATALOGUE = Path(__file__).parent / "locale" / "zh_CN" / "LC_MESSAGES" / "app.po"

LOCALE_VARIABLES = ("LC_ALL", "LC_MESSAGES", "LANG")  # the first that is set counts

_language_of_process = "auto"
_language_of_block: ContextVar[str | None] = ContextVar("language", default=None)


def use_language(language: str) -> None:
    """Set the language of this process, with all its threads: auto, en or zh."""
    global _language_of_process
    _language_of_process = language


@contextmanager
def in_language(language: str) -> Iterator[None]:
    """Speak a language, auto, en or zh, in a block; other threads and tasks keep theirs."""
    token = _language_of_block.set(language)
    try:
        yield
    finally:
        _language_of_block.reset(token)


def current_language() -> str:
    """Return en or zh; auto is that of the locale."""
    language = _language_of_block.get() or _language_of_process
    if language != "auto":
        return language
    for variable in LOCALE_VARIABLES:
        locale = os.environ.get(variable)
        if locale:
            return "zh" if locale.lower().startswith("zh") else "en"
    return "en"


def _(message: str) -> str:
    """Return a message in the current language; a message that has no translation stays as it is."""
    return _catalogue(current_language()).gettext(message)


def ngettext(singular: str, plural: str, number: int) -> str:
    """Return what `_` does, of two messages: `singular` for the number 1, `plural` for all others. Chinese
    has one message for both."""
    return _catalogue(current_language()).ngettext(singular, plural, number)


def rows_in_words(number: int) -> str:
    """Return a number of rows in the current language: 1 row, 1,234 rows."""
    return ngettext("{number:,} row", "{number:,} rows", number).format(number=number)


def pgettext(context: str, message: str) -> str:
    """Return what `_` does, for English that has another Chinese elsewhere; `context` tells them apart."""
    return _catalogue(current_language()).pgettext(context, message)


def joined(names: Iterable[str]) -> str:
    """Return names one after the other, with the comma of the current language between them."""
    return _(", ").join(names)


def N_(message: str) -> str:  # noqa: N802
    """Mark a message of a table for the catalogue; `_` translates it where it is shown."""
    return message


@cache
def _catalogue(language: str) -> gettext.NullTranslations:
    if language == "en":
        return gettext.NullTranslations()
    # Babel takes a twentieth of a second to import, and only Chinese needs it.
    from babel.messages.mofile import write_mo
    from babel.messages.pofile import read_po

    with CATALOGUE.open("rb") as file:
        messages = read_po(file, locale="zh_CN")
    compiled = io.BytesIO()
    write_mo(compiled, messages)
    compiled.seek(0)
    return gettext.GNUTranslations(compiled)
