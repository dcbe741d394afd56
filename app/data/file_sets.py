"""Several data files as one: the table of each, and the table of all, in a fixed order."""

import glob
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..config.addresses import is_address
from ..errors import InputError, listed, shorten
from ..runtime.cores import num_cores
from ..words import _
from .cache import build_once, content_key
from .readers import ReadOptions
from .remote_files import local_copies
from .table import ARRAYS, VERSION, Table, open_table


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files that a setting names: a file, a folder, a pattern such as `posts/*.parquet`, or a list
    of these; of addresses such as s3://bucket/posts/ their copies in the cache.

    The files of a folder or a pattern are sorted by name; those of a folder that begin with . or _, and
    folders inside it, are left out. Raises InputError where there are none, and for a file named twice.
    """
    entries = [value] if isinstance(value, str) else value
    names = [name for entry in entries for name in _files_of(entry, cache_dir)]
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise InputError(f"{listed(twice)}: a file may be named once only; take one of them out")
    if not names:
        raise InputError("a list of data files must name at least one, found none")
    return names


def _files_of(entry: str, cache_dir: str) -> list[str]:
    if is_address(entry):
        return local_copies(entry, cache_dir)
    path = Path(entry)
    try:
        if entry and path.is_dir():
            names = sorted(
                str(file) for file in path.iterdir() if file.is_file() and file.name[0] not in "._"
            )
        elif glob.has_magic(entry) and not path.exists():
            names = sorted(name for name in glob.glob(entry, recursive=True) if Path(name).is_file())
        else:
            return [entry]
    except OSError as error:
        raise InputError(
            _("{path}: cannot be read: {why}").format(path=shorten(entry), why=error.strerror)
        ) from error
    if not names:
        raise InputError(f"{entry}: there are no files; write a pattern in quotes, such as 'posts/*.parquet'")
    return names


def open_files(
    value: str | list[str], options: ReadOptions, workers: int | None, cache_dir: str, **rules: Any
) -> Table:
    """Return the table of all files of a setting, one after the other; `rules` are those of `open_table`.

    All are read as the first one was, `workers` (None: as many as cores) at a time, each in a process of its
    own. The table of each file stays in the cache, so a set with one more reads one. Errors name file and
    line.
    """
    files = files_of(value, cache_dir)

    def open_one(file: str, options: ReadOptions) -> Table:
        return open_table(file, options, cache_dir=cache_dir, **rules)

    if files == [value] or (isinstance(value, str) and is_address(value) and len(files) == 1):
        return open_one(files[0], options)
    tables = [open_one(files[0], options)]
    later = replace(options, **tables[0].assumed)
    if options.limit is None:
        pool = ThreadPoolExecutor(workers or num_cores())
        try:
            tables += [
                future.result() for future in [pool.submit(open_one, file, later) for file in files[1:]]
            ]
        finally:
            pool.shutdown(cancel_futures=True)
    else:
        for file in files[1:]:
            left = options.limit - sum(table.num_rows + table.skipped for table in tables)
            if left > 0:
                tables.append(open_one(file, replace(later, limit=left)))
    key = content_key("set", VERSION, [table.folder.name for table in tables])
    folder, num_bytes = Path(cache_dir) / f"table-{key}", sum(table.num_bytes for table in tables)
    build_once(folder, join_tables, [table.folder for table in tables], num_bytes=num_bytes)
    source = value if isinstance(value, str) else ", ".join(value)
    content = f"{len(tables)} files {key}"
    return Table(folder, shorten(source, 200), content, [table.source for table in tables])


def join_tables(folder: Path, parts: list[Path]) -> None:
    """Write the rows of several tables, one after the other, as one table; needs 28 bytes of memory a row."""
    tables = [Table(part) for part in parts]
    _check_same_columns(tables)
    for name in ("texts.bin", "pairs.bin"):
        with (folder / name).open("wb") as joined:
            for part in parts:
                with (part / name).open("rb") as file:
                    shutil.copyfileobj(file, joined, 1 << 20)
    codes: dict[str, int] = {}
    for name in ARRAYS:
        np.save(folder / f"{name}.npy", np.concatenate(list(_joined_values(name, tables, codes))))
    with (folder / "skipped.jsonl").open("w", encoding="utf-8") as skipped:
        for number, part in enumerate(parts):
            for line in (part / "skipped.jsonl").read_text(encoding="utf-8").splitlines():
                skipped.write(json.dumps(json.loads(line) | {"part": number}, ensure_ascii=True) + "\n")
    meta = json.loads((parts[0] / "table.json").read_text(encoding="utf-8")) | {
        "label_values": list(codes),
        "multiline": sum(table.multiline for table in tables),
        "first_multiline": next((table.first_multiline for table in tables if table.multiline), None),
        "skipped": sum(table.skipped for table in tables),
        "num_rows": sum(table.num_rows for table in tables),
        "units": [table.row_unit for table in tables],
        "ends": np.cumsum([table.num_rows for table in tables]).tolist(),
    }
    (folder / "table.json").write_text(json.dumps(meta, ensure_ascii=False, indent=1), encoding="utf-8")


def _joined_values(name: str, tables: list[Table], codes: dict[str, int]) -> Iterator[np.ndarray]:
    """Yield an array of each table as it is in the table of all; `codes` receives the labels of all."""
    end = 0
    for table in tables:
        values = table.array(name)
        if name == "labels":
            new = [codes.setdefault(value, len(codes)) for value in table.label_values]
            values = np.asarray(new, values.dtype)[values]
        elif name.endswith("_ends"):
            values = values + end
            end = int(values[-1]) if len(values) else end
        yield values


def _check_same_columns(tables: list[Table]) -> None:
    first = tables[0]
    for table in tables:
        if table.has_pairs != first.has_pairs:
            raise InputError(
                f"{table.source}: all files of a set must have the same columns; the first, {first.source}, "
                f"has {first.columns}, found {table.columns}"
            )
