"""How a file is read again for a finished run: as asked for, else as recorded, else by usual names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..config.file_formats import FORMATS, SUFFIXES
from .file_encoding import file_encoding
from .formats import content_format, file_format, separated_format
from .readers import ReadOptions
from .text_files import Source, Stream, read_start

# Formats that are recognised by a file's name only
DELIMITED = tuple(name for name, format in FORMATS.items() if format.is_delimited)
LABEL_SETTINGS = ("label_column", "label_separator", "label_columns")
# Of the train file only
NOT_AGAIN = ("format", "limit")
# Bytes in which the first line of a table ends
FIRST_LINE = 1 << 16


def options_of_run(
    path: Source,
    recorded: Mapping[str, Any],
    asked: Mapping[str, Any] | None = None,
    need_label: bool = False,
) -> ReadOptions:
    """Return the settings with which a run reads a file again; `format` is never auto.

    `recorded` are the `data` settings of the run's config.yaml (empty for a checkpoint of another program),
    `asked` the settings that were asked for now. None and auto stand for a setting that was not asked for.
    A recorded column that the file does not have is an error when its rows are read. Without `need_label`,
    the settings of labels are left out. Raises InputError for a file that cannot be read.
    """
    asked = {name: value for name, value in (asked or {}).items() if value not in (None, "auto")}
    known = {name: value for name, value in recorded.items() if value is not None and name not in NOT_AGAIN}
    if "label_columns" in asked:
        known = {name: value for name, value in known.items() if name not in LABEL_SETTINGS}
    elif {"label_column", "label_separator"} & set(asked):
        known.pop("label_columns", None)
    settings = known | asked
    if not need_label:
        settings = {name: value for name, value in settings.items() if name not in LABEL_SETTINGS}
    names = {field.name for field in fields(ReadOptions)} - {"format"}
    encoding = settings["encoding"] = file_encoding(path, settings.get("encoding", ReadOptions.encoding))
    format = asked.get("format") or _format(path, recorded, encoding, need_label)
    return ReadOptions(format, **{name: value for name, value in settings.items() if name in names})


def _format(path: Source, recorded: Mapping[str, Any], encoding: str, need_label: bool) -> str:
    """Return the format by the content, by what the run recorded for such a name, or by the name. A stream,
    and a .txt file without labels, is text, unless the run and this file are .txt tables."""
    if isinstance(path, Stream):
        return "text"
    if by_content := content_format(path, encoding):
        return by_content
    suffix = path.suffix.lower()
    is_named_alike = suffix == Path(recorded.get("train") or "").suffix.lower()
    if recorded.get("format") in DELIMITED and (is_named_alike or suffix not in SUFFIXES):
        return recorded["format"]
    if suffix == ".txt" and not need_label:
        has_tabs = b"\t" in read_start(path, FIRST_LINE).split(b"\n")[0]
        if not (is_named_alike and (has_tabs or separated_format(path, encoding))):
            return "text"
    return file_format(path, "auto", encoding)
