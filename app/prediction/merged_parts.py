"""The parts of a bulk prediction -> one file in the order of the input."""

from __future__ import annotations

import csv
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from ..errors import InputError, TrainingError
from ..runtime.disk import check_new, checksum
from .output import open_output
from .parts import PLAN, PartsFolder


def merge_parts(folder: Path, output: Path) -> int:
    """Write the rows of all parts to a new file, and return how many. Raises InputError where parts are
    missing or have other columns, or the file is there; TrainingError for a part that was changed."""
    if not (folder / PLAN).is_file():
        raise InputError(
            f"--merge {folder}: a folder that predict wrote parts into is needed; found no {PLAN}"
        )
    parts = PartsFolder(folder)
    parts.read_plan()
    suffix = f".{parts.plan['format']}"
    if output.suffix.lower() != suffix:
        raise InputError(f"--output {output}: the parts are {suffix}; give the merged file this ending")
    check_new(output)
    manifests = parts.manifests()
    paths = [parts.path(part) for part in parts.parts]
    for path, manifest in zip(paths, manifests, strict=True):
        if checksum(path) != manifest["sha256"]:
            raise TrainingError(f"{path}: the part was changed; remove it, and run the same command again")
    with open_output(str(output)) as file:
        {"csv": _merge_csv, "jsonl": _merge_lines, "parquet": _merge_parquet}[suffix[1:]](file, paths)
    return sum(manifest["rows"] for manifest in manifests)


def _merge_lines(file: TextIO, paths: list[Path], head: bytes = b"") -> None:
    file.buffer.write(head)
    for path in paths:
        with path.open("rb") as part:
            if part.read(len(head)) != head:
                raise _other_columns(paths[0], path)
            shutil.copyfileobj(part, file.buffer, 1 << 20)


def _merge_csv(file: TextIO, paths: list[Path]) -> None:
    lines = []

    def first_lines(part: TextIO) -> Iterator[str]:
        for line in part:
            lines.append(line)
            yield line.removeprefix("\ufeff")

    with paths[0].open(encoding="utf-8", newline="") as part:
        # A name may have line ends
        next(csv.reader(first_lines(part)))
    _merge_lines(file, paths, "".join(lines).encode())


def _merge_parquet(file: TextIO, paths: list[Path]) -> None:
    from pyarrow import parquet

    schema = parquet.read_schema(paths[0])
    with parquet.ParquetWriter(file.buffer, schema) as writer:
        for path in paths:
            table = parquet.read_table(path, partitioning=None)
            if table.schema != schema:
                raise _other_columns(paths[0], path)
            writer.write_table(table)


def _other_columns(first: Path, path: Path) -> InputError:
    return InputError(
        f"{path}: all parts must have the columns of {first}, and this one has others, as its input file "
        "has; use the parts as they are"
    )
