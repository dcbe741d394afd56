"""Which language people are spoken to in: English or Chinese."""

from __future__ import annotations

import os

LANGUAGES = ("auto", "en", "zh")


def spoken(language: str) -> str:
    """Return en or zh; auto is that of the locale, by LC_ALL, LC_MESSAGES or LANG, the first that is set."""
    if language != "auto":
        return language
    locale = next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if locale.lower().startswith("zh") else "en"
