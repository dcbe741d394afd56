"""Messages in Chinese: the program writes English, and where people are spoken to in Chinese, a message of
the tables in `console_words` and `error_words` is shown in Chinese, and any other one as it is."""

import logging
import re
from functools import cache

from .console_words import LOG_LINES, WORDS
from .error_words import ERRORS, RULES
from .language import spoken

_FIELD = re.compile(r"\{(\w+)\}")


def in_chinese(message: str) -> str:
    """Return a message in Chinese, line by line, as far as the table has it."""
    return "\n".join(_translated(line) or line for line in message.split("\n"))


def shown(message: str, language: str = "auto") -> str:
    """Return a message as people see it in a language, auto, en or zh."""
    return in_chinese(message) if spoken(language) == "zh" else message


class Spoken(logging.Filter):
    """Has the records of a handler in the language of people."""

    def __init__(self, language: str) -> None:
        super().__init__()
        self.language = language

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg, record.args = shown(record.getMessage(), self.language), None
        return True


def _translated(line: str) -> str | None:
    """Return a line in Chinese, None where it is not in the table."""
    text = line.strip(" ")
    if text in WORDS:
        return WORDS[text]
    indent = line[: len(line) - len(line.lstrip(" "))]
    for pattern, chinese in _patterns():
        match = pattern.fullmatch(line[len(indent) :])
        if match is None:
            continue
        values = match.groupdict()
        inner = {name: _translated(value) for name, value in values.items() if name in ("_m", "_n", "_w")}
        inner |= {"_w": inner["_w"] or values["_w"]} if "_w" in inner else {}
        if None not in inner.values():
            values |= inner
            return indent + _FIELD.sub(lambda field, values=values: values[f"_{field[1]}"], chinese)
    return None


def _group(field: re.Match) -> str:
    return f"(?P<_{field[1]}>{'(?:; .*?)?' if field[1] == 'n' else '.*?'})"


@cache
def _patterns() -> list[tuple[re.Pattern, str]]:
    """Return what each English text of the table matches, with its Chinese."""
    return [
        (re.compile(re.sub(r"\\\{(\w+)\\\}", _group, re.escape(english))), chinese)
        for english, chinese in (*LOG_LINES, *ERRORS, *RULES)
    ]
