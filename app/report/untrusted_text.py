"""Texts and names of strangers for pages, cards and terminals: hidden characters are made visible, long texts
are cut, and nothing of them acts as Markdown."""

import html
import re
import unicodedata

MAX_TEXT = 200  # characters
MAX_LABEL = 40  # characters of a label on a page
MAX_NAME = 60  # characters of a name on the card
HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")  # of Unicode: control, format, half characters, separators
MARKDOWN = re.compile(r"([\\`*_\[\]{}|#~$])")


def visible(text: str, max_characters: int = MAX_TEXT) -> str:
    """Return a text, cut, with control characters as code points."""
    characters = map(visible_character, text[:max_characters])
    ellipsis = "…" if len(text) > max_characters else ""
    return "".join(characters) + ellipsis


def visible_character(character: str) -> str:
    if character in "\n\r\t":
        return " "
    if unicodedata.category(character) in HIDDEN_CATEGORIES:
        return f"‹U+{ord(character):04X}›"
    return character


def visible_label(name: str) -> str:
    return visible(name, MAX_LABEL)


def markdown_name(name: object) -> str:
    """Return a name for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    text = html.escape(visible(str(name), MAX_NAME), quote=False)
    return MARKDOWN.sub(r"\\\1", text)
