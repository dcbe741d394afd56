"""Which language people are spoken to in: English or Chinese."""

import os
from collections.abc import Mapping

LANGUAGES = ("auto", "en", "zh")
# Texts in English and Chinese, by key
Words = Mapping[str, tuple[str, str]]


def spoken(language: str) -> str:
    """Return en or zh; auto is that of the locale, by LC_ALL, LC_MESSAGES or LANG, the first that is set."""
    if language != "auto":
        return language
    locale = next(filter(None, (os.environ.get(name) for name in ("LC_ALL", "LC_MESSAGES", "LANG"))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def say(words: Words, language: str, key: str, *values: object, **named: object) -> str:
    """Return a text in a language, en or zh, with its values."""
    return words[key][language == "zh"].format(*values, **named)


def in_language(words: Words, language: str) -> dict[str, str]:
    """Return all texts in a language, en or zh, as they are."""
    return {key: pair[language == "zh"] for key, pair in words.items()}
