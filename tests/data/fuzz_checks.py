"""What must hold for every hostile data file: python -m tests.data.fuzz_checks 4711

A reader gives rows or an InputError, in bounded time, and drops no row without a message.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pyarrow import parquet

from app.data.files import Stream, file_encoding
from app.data.read import BadRow, options_of_run, recognised
from app.data.rows import Row, read_rows
from app.data.table import Table, build_table
from app.errors import InputError
from app.prediction.sources import open_file
from tests.data.fuzz_cases import LABELS, Case
from tests.data.fuzz_damage import make_case

MAX_MESSAGE = 3000  # characters
MEMORY = 8 << 30  # bytes that the process may map
LINE_END = r"\r\n?|\n"


def check(case: Case, folder: Path) -> None:
    """Read one case in every way there is; raises AssertionError, or what a reader should not have raised."""

    def read(source: Stream | str, **changes: Any) -> list[Row | BadRow]:
        return list(read_rows(source, replace(case.options, **changes), case.need_label))

    # A stream is not looked at for its encoding
    with suppress(InputError):
        case.options = replace(case.options, encoding=file_encoding(case.path, case.options.encoding))
    found, message = _attempt(case, lambda: read(str(case.path)))
    if (case.content or b"").startswith(codecs.BOM_UTF32_LE):
        # In UTF-16 these bytes are the mark before a NUL
        assert message is not None, "UTF-32 was read"
        return
    if message is None:
        assert not case.refused, f"to be refused, but {len(found)} rows were read"
        _check_rows(case, found)
    else:
        assert case.rows is None, f"valid, but refused: {message}"
    if case.content is None:
        return
    # A stream has no labels, and is not looked at for quotes around its fields
    is_read = message is None or "byte order mark" not in message and "or later" not in message
    if (
        case.options.format != "parquet"
        and not case.need_label
        and "deep" not in case.description
        and is_read
    ):
        stream = Stream(str(case.path), io.BufferedReader(io.BytesIO(case.content)))
        quoting = case.options.quoting
        with suppress(InputError):
            quoting = recognised(case.path, case.options).quoting
        as_stream = _attempt(case, lambda: read(stream, quoting=quoting))
        assert as_stream == (found, message), "a stream gives other rows"
    if message is None:
        _check_prediction_source(case)
    if case.need_label:
        _check_table(case, found, folder)


def _attempt(case: Case, action: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return what an action returns, or the message of its InputError, which must be short enough to be
    read."""
    try:
        return action(), None
    except InputError as error:
        message = str(error)
    paths = message.count(str(case.path)) * len(str(case.path))
    assert 0 < len(message) - paths < MAX_MESSAGE, f"a message of {len(message):,} characters"
    return None, message


def _check_rows(case: Case, found: list[Row | BadRow]) -> None:
    for row in found:
        # What is read can be written
        "".join(value for value in row[1:] if isinstance(value, str)).encode()
        assert 0 < len(row.problem) < MAX_MESSAGE if isinstance(row, BadRow) else row.text
    if case.rows is not None:
        read = [(row.line, None if isinstance(row, BadRow) else row.text) for row in found]
        assert read == [(line, text) for line, text, _ in case.rows]
        labels = [row.label for row in found if isinstance(row, Row)]
        assert labels == [label for _, text, label in case.rows if text is not None]
    expected = independent_places(case, found)
    if expected is not None:
        headers = {None: (0, 1), True: (1,), False: (0,)}[case.options.header]
        headers = headers if case.options.format in ("csv", "tsv") else (0,)
        places = [row.line for row in found]
        assert places in [expected[count:] for count in headers], f"expected {expected[:9]}"


def independent_places(case: Case, found: list[Row | BadRow]) -> list[int] | None:
    """Return the numbers that rows must have, header included, counted without the readers; None where that
    is undefined."""
    format = case.options.format
    if format == "parquet":
        with case.path.open("rb") as file:
            return list(range(1, parquet.ParquetFile(file).metadata.num_rows + 1))
    text = _decoded(case)
    if format == "json":
        return list(range(1, len(json.loads(text)) + 1))
    lines = re.split(LINE_END, text)
    if format in ("text", "jsonl"):
        return [number for number, line in enumerate(lines, 1) if line.strip()]
    if case.options.quoting == "none" or (format == "tsv" and case.options.quoting == "auto"):
        return [number for number, line in enumerate(lines, 1) if line.strip(" ")]
    if any(isinstance(row, BadRow) and re.search("CSV|broken", row.problem) for row in found):
        # What a broken record takes in is the reader's to say
        return None
    return quoted_places(text, "," if format == "csv" else "\t")


def _decoded(case: Case) -> str:
    encoding = case.options.encoding
    if "\n".encode(encoding) != b"\n":
        return case.content.decode(encoding, "surrogatepass").removeprefix("\ufeff")
    # Line by line: a bad byte must not include the line feed after it
    lines = [line.decode(encoding, "surrogateescape") for line in case.content.split(b"\n")]
    return "\n".join(lines).removeprefix("\ufeff")


def quoted_places(text: str, separator: str) -> list[int]:
    """Return the line on which each record of quoted text begins that is not blank, found with a regular
    expression."""
    cell = rf'(?:"[^"]*(?:""[^"]*)*"|(?!")[^{separator}\r\n]*)'
    record = re.compile(rf"({cell}(?:{separator}{cell})*)(?:{LINE_END}|\Z)")
    places, line, position = [], 1, 0
    while position < len(text):
        match = record.match(text, position)
        assert match, f"quotes that do not pair in line {line}"
        if match[1]:
            places.append(line)
        line += len(re.findall(LINE_END, match[0]))
        position = match.end()
    return places


def _check_prediction_source(case: Case) -> None:
    """predict.py reads the file with the same readers, without labels; each row is counted as good or bad."""
    source, message = _attempt(case, lambda: open_file(str(case.path), {}, asdict(case.options)))
    if message is None:
        count, message = _attempt(case, lambda: source.count("skip"))
    if message is None:
        assert count == sum(1 for _ in source.rows("skip"))
        if not case.need_label:
            # Without labels, which column has them is not asked either
            options = options_of_run(case.path, {}, asdict(case.options))
            assert count + source.num_bad == len(list(read_rows(case.path, options, need_label=False)))


def _check_table(case: Case, found: list[Row | BadRow] | None, folder: Path) -> None:
    """The table on disk has the good rows, and counts the bad ones."""
    target, names = folder / "table", LABELS if case.number % 2 else None
    target.mkdir()
    good = [row.text for row in found or [] if isinstance(row, Row)]
    _, message = _attempt(case, lambda: build_table(target, str(case.path), case.options, True, names))
    if message is not None:
        is_known = not good or names or "deep" in case.description or "whether this is a header" in message
        assert is_known, f"rows were read, but no table made of them: {message}"
        return
    table = Table(target)
    assert table.num_rows + table.skipped == len(found)
    assert len(table.skipped_rows()) == table.skipped
    table.source.encode()
    assert names or [table.text(row) for row in range(table.num_rows)] == good


def run_case(number: int) -> str | None:
    """Make and check one case, with limited memory; return what is wrong with it."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        case = make_case(number, Path(name))
        try:
            check(case, Path(name))
        except Exception:  # noqa: BLE001 - whatever a reader raises is the finding
            return f"{case}\n{traceback.format_exc(limit=-4)}"
    return None


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        sys.stdout.write(f"{run_case(int(argument)) or 'nothing wrong'}\n")
