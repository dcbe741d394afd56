"""Messages about a file in the words of a client of the server, who has query parameters in place of the
options of a command line."""

import re
from dataclasses import fields

from ..config.schema import DataConfig
from ..data.read import SUFFIXES
from .requests import FileQuery

OPTION = re.compile(r"--(?:data\.)?([a-z_]+)|\bdata\.([a-z_]+)")
# An option with the name of a format, such as: --data.format text
FORMAT = re.compile(r"--(?:data\.)?format(?: ([a-z]+))?\b")
# Where a remedy may end and the next one begin
CLAUSE = re.compile(r"(?=; |, )")
PARAMETERS = set(FileQuery.model_fields)
OTHER_SETTINGS = {field.name for field in fields(DataConfig)} - PARAMETERS


def for_client(message: str) -> str:
    """Return a message with the query parameters of /predict_file in place of options. Remedies that need
    another option are left out: the sender of a file has none."""
    message = FORMAT.sub(_ending, message)
    message = OPTION.sub(_parameter, message)
    problem, *remedies = CLAUSE.split(message)
    parts = [problem]
    for remedy in remedies:
        if not _needs_option(remedy):
            parts.append(remedy)
    return "".join(parts)


def _ending(match: re.Match) -> str:
    """Return how a client says the format of a file: by the ending of its name."""
    # The ending of plain text is not in that table, as tables have it too
    for suffix, format_name in {**SUFFIXES, ".txt": "text"}.items():
        if format_name == match[1]:
            return f"the ending {suffix} in the query parameter name"
    ending = "the ending in the query parameter name"
    if match[1] is not None:
        # A word that is no format belongs to the sentence
        ending += f" {match[1]}"
    return ending


def _parameter(match: re.Match) -> str:
    setting = match[1] or match[2]
    if setting not in PARAMETERS:
        return match[0]
    return f"the query parameter {setting}"


def _needs_option(remedy: str) -> bool:
    for match in OPTION.finditer(remedy):
        setting = match[1] or match[2]
        if setting in OTHER_SETTINGS:
            return True
    return False
