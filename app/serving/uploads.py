"""A file that was sent to the server -> its rows, read by a process of its own.

A small file can unpack to any size: 500 bytes of Parquet say a text a hundred million times, a workbook is a
packed archive, and a byte of JSON takes twenty in memory. The libraries that read them take what they need
without asking, and some end the process where there is no more. So the file is read by a process with little
memory and time, which writes the rows to another file. The server takes them from there a part at a time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..data.bad_row import BadRow
from ..data.cells import as_text
from ..data.columns import MAX_COLUMNS
from ..data.rows import Row
from ..errors import InputError, listed
from ..prediction.open_model import OpenedModel
from ..prediction.sources import open_file
from ..prediction.trained_model import trained_with
from ..program import MODULE
from ..runtime.processes import child_environment
from .client_words import for_client
from .options import MAX_TEXT

MAX_ROWS = 1_000_000
MAX_UNPACKED = 256 << 20  # characters of all cells, as JSON
MAX_MEMORY = 2 << 30  # bytes of the process that reads a file
MAX_SECONDS = 120
REMEDY = "send it in parts"


class TooLarge(InputError):
    """A file that takes more than the server gives for one."""


@dataclass(frozen=True)
class Upload:
    """The rows of a file that was sent, as they are in the file `path`. `names` are the columns before the
    predictions, and `unit` is what a row's number counts."""

    path: Path
    name: str
    unit: str
    names: list[str]
    num_rows: int
    num_bad: int

    def rows(self) -> Iterator[Row | BadRow]:
        """Yield the rows; the `record` of each has its cells as text by `names`."""
        with self.path.open(encoding="utf-8", errors="surrogatepass") as file:
            for line in file:
                number, text, pair, problem, values = json.loads(line)
                record = values
                if isinstance(values, list):
                    record = dict(zip(self.names, values, strict=True))
                if problem is None:
                    yield Row(number, text, pair, None, record)
                else:
                    yield BadRow(number, problem, record)

    def record(self, row: Row | BadRow) -> dict[str, str]:
        return row.record


def read_upload(path: Path, name: str, model: OpenedModel, asked: Mapping[str, Any]) -> Upload:
    """Return the rows of the file at `path`, which its sender calls `name`, read as in the training of a
    model, but for the settings in `asked`. They are written beside it. Raises InputError for a file that
    cannot be read or has no valid row, and TooLarge, one of these, for one that unpacks to too much."""
    rows_path = path.with_name("rows.jsonl")
    request = {
        "path": str(path),
        "rows_path": str(rows_path),
        "folder": str(model.folder),
        "settings": model.trained.settings(),
        "asked": dict(asked),
    }
    # Each thread would take memory, and two or more threads read a small file no faster
    variables = {"OMP_NUM_THREADS": "1", "ARROW_IO_THREADS": "1"}
    variables |= {"ARROW_DEFAULT_MEMORY_POOL": "system", "OPENBLAS_NUM_THREADS": "1"}
    try:
        # Ctrl-C must not end this process, so it gets a separate session: what has arrived is answered
        done = subprocess.run(
            [sys.executable, "-m", f"{MODULE}.serving.uploads"],
            input=json.dumps(request).encode(),
            capture_output=True,
            timeout=MAX_SECONDS,
            env=child_environment() | variables,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TooLarge(f"{name}: the file must be read within {MAX_SECONDS} seconds; {REMEDY}") from error
    if done.returncode < 0:
        # C++ and Rust end the process where there is no memory
        answer = {"problem": memory_problem(path), "is_large": True}
    elif done.returncode:
        error_output = done.stderr.decode(errors="replace")
        raise RuntimeError(f"{name}: the process that reads files failed: {error_output}")
    else:
        answer = json.loads(done.stdout)
    if "problem" in answer:
        problem = answer["problem"].replace(str(path), name)
        if answer["is_large"]:
            raise TooLarge(problem)
        raise InputError(problem)
    return Upload(rows_path, name, **answer)


def memory_problem(path: object) -> str:
    return f"{path}: the file must be read with {MAX_MEMORY:,} bytes of memory, but it needs more; {REMEDY}"


def limit_memory() -> None:
    """Limit the memory of this process, where the system can; and where the machine has less than that, let
    the system end this process, and not the server."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY, MAX_MEMORY))


def unpack(path: str, rows_path: str, folder: str, settings: dict, asked: dict) -> dict:
    """Write the rows of the file at `path` to `rows_path`, and return the other fields of its `Upload`."""
    trained = trained_with(Path(folder), settings)
    source = open_file(path, trained, asked)
    trained.check_pairs(source.has_pairs, "choose a file of that form")
    options = source.reader.options
    if options.other_sheets:
        names = listed(map(repr, (options.read_sheet, *options.other_sheets)))
        raise InputError(f"{path}: one sheet with values is needed, found {names}; send it as another file")
    has_keys = source.reader.columns.are_keys
    num_rows = 0
    num_bad = 0
    num_characters = 0
    with open(rows_path, "w", encoding="utf-8", errors="surrogatepass") as file:
        rows = source.rows("keep", with_records=True)
        for row in rows:
            num_rows += 1
            if num_rows > MAX_ROWS:
                raise TooLarge(f"{path}: a file may have {MAX_ROWS:,} rows, found more; {REMEDY}")
            row = with_short_text(row)
            line = row_line(row, has_keys)
            num_bad += isinstance(row, BadRow)
            num_characters += len(line)
            if num_characters > MAX_UNPACKED:
                raise TooLarge(f"{path}: a file may unpack to {MAX_UNPACKED:,} characters; {REMEDY}")
            file.write(line)
    if not rows.num_good:
        raise InputError(f"there are no valid rows; {source.summary(rows.scan())}")
    # Objects may have more keys in later rows
    names = rows.scan().names
    if len(names) > MAX_COLUMNS:
        raise TooLarge(f"{path}: a file may have {MAX_COLUMNS:,} columns, found {len(names):,}; {REMEDY}")
    if num_bad == num_rows:
        raise InputError(f"{path}: there are no valid rows, each text may have {MAX_TEXT:,} characters")
    return {"unit": source.unit, "names": names, "num_rows": num_rows, "num_bad": num_bad}


def with_short_text(row: Row | BadRow) -> Row | BadRow:
    """Return the row, or what is wrong with it where a text is too long for the server."""
    if isinstance(row, Row):
        length = max(map(len, row.texts))
        if length > MAX_TEXT:
            problem = f"the text may have {MAX_TEXT:,} characters, found {length:,}; cut it"
            return BadRow(row.line, problem, row.record)
    return row


def row_line(row: Row | BadRow, has_keys: bool) -> str:
    """Return a row as a line of JSON, which `Upload.rows` reads: its cells in the order of the columns, or
    by its own keys if it has such."""
    cells = {name: as_text(value) for name, value in row.record.items()}
    values: dict | list = cells
    if not has_keys:
        values = list(cells.values())
    if isinstance(row, Row):
        fields = [row.line, row.text, row.pair, None, values]
    else:
        fields = [row.line, None, None, for_client(row.problem), values]
    return json.dumps(fields, ensure_ascii=False) + "\n"


def main() -> None:
    """Read the request from standard input, and print the answer."""
    request = json.load(sys.stdin.buffer)
    limit_memory()
    try:
        answer = unpack(**request)
    except (MemoryError, InputError) as error:
        is_memory = isinstance(error, MemoryError) or isinstance(error.__cause__, MemoryError)
        problem = for_client(str(error))
        if is_memory:
            problem = memory_problem(request["path"])
        answer = {"problem": problem, "is_large": is_memory or isinstance(error, TooLarge)}
    print(json.dumps(answer))  # noqa: T201 - the server reads it


if __name__ == "__main__":
    main()
