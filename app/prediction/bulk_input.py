"""The plan of a bulk prediction: which files are read, in which parts, and what the predictions depend on."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..config.data_settings import DataConfig
from ..data.files import files_of
from ..data.read import ReadOptions
from ..data.rows import cut_file
from ..errors import InputError, cannot_read, listed
from ..runtime.disk import checksum
from .parts import Part, PartsFolder
from .predictor import CHUNK_ROWS

# A part is whole chunks, so that rows are computed together with the same rows however many processes there
# are: as many as give this number of parts, but not more than that many chunks.
PARTS, MAX_CHUNKS = 64, 10


def input_files(given: str, output: Path) -> list[Path]:
    """Return the files that `given` names, in the order of `files_of`; raises InputError where there is none,
    and where one is in the folder `output`."""
    files = list(map(Path, files_of(given, DataConfig.cache_dir)))
    inside = [file for file in files if output.resolve() in file.resolve().parents]
    if inside:
        raise InputError(
            f"--input {given}: {inside[0]} is in the folder of the output, {output}; choose another one"
        )
    return files


def described_files(files: list[Path], known: list[dict] = ()) -> list[dict[str, Any]]:
    """Return name, bytes, time of the last change and SHA-256 of files; one that is as `known` is not read
    again. Raises InputError for a file that cannot be read."""
    before = {(entry["name"], entry["bytes"], entry["changed"]): entry["sha256"] for entry in known}
    folder = os.path.commonpath([file.absolute().parent for file in files])
    described = []
    for file in files:
        try:
            status = file.stat()
            key = (file.absolute().relative_to(folder).as_posix(), status.st_size, status.st_mtime_ns)
            digest = before.get(key) or checksum(file)
        except OSError as error:
            raise cannot_read(file, error) from error
        described.append(dict(zip(("name", "bytes", "changed"), key, strict=True)) | {"sha256": digest})
    return described


def make_plan(files: list[Path], options: list[ReadOptions], depends: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plan of the parts of files, each read with its options; `depends` is what they depend on,
    see `renew_plan`. Raises InputError for a file that cannot be read."""
    cuts = [cut_file(*two, CHUNK_ROWS) for two in zip(files, options, strict=True)]
    chunks = sum(rows for cut in cuts for rows, _ in cut.pieces) // (PARTS * CHUNK_ROWS)
    parts: list[Part] = []
    for number, cut in enumerate(cuts):
        for rows, span in cut.joined(min(max(chunks, 1), MAX_CHUNKS)):
            parts.append(Part(len(parts), number, rows, span))
    columns = [{"keys": list(cut.keys), "is_table": cut.is_table} for cut in cuts]
    return {**depends, "columns": columns, "parts": parts}


def renew_plan(
    parts: PartsFolder, files: list[Path], options: list[ReadOptions], depends: Mapping[str, Any]
) -> list[Part]:
    """Let the parts of input files with another content be computed again; return those parts.

    Raises InputError where the parts depend on other files, another model or other settings; and for another
    content where all parts are finished, those of other files would change, or another process computes one.
    """
    with parts.alone():
        # Maybe another process was here first
        parts.read_plan()
        changed = _changed_files(parts, depends)
        if not changed:
            return []
        refused = f"--output {parts.folder}: its parts are of another input ({listed(changed, 5)} differ)"
        if not parts.left():
            raise InputError(
                f"{refused}, and all are finished; choose another folder, or remove a part of a changed "
                "file, and the same command computes all parts of changed files"
            )
        numbers = {number for number, entry in enumerate(depends["input"]) if entry["name"] in changed}
        plan = make_plan(files, options, depends)
        kept, fits = ([p for p in of if p.file not in numbers] for of in (parts.parts, plan["parts"]))
        if kept != fits:
            raise InputError(
                f"{refused}, with so many rows more or less that the parts of other files change; choose "
                "another folder"
            )
        stale = [part for part in parts.parts if part.file in numbers]
        parts.replace_plan(plan, stale)
    return stale


def _changed_files(parts: PartsFolder, depends: Mapping[str, Any]) -> list[str]:
    changed = []
    for what, now in depends.items():
        before, found = (_by_name(value) for value in (parts.plan[what], now))
        differ = [name for name in before | found if before.get(name) != found.get(name)]
        if what == "input" and list(before) == list(found):
            changed = differ
        elif differ:
            raise InputError(
                f"--output {parts.folder}: its parts are of another {what} ({listed(differ, 5)} differ); "
                "choose another folder, or run the same command as before"
            )
    return changed


def _by_name(value: Any) -> dict[str, Any]:
    if isinstance(value, list):
        return {entry["name"]: entry["sha256"] for entry in value}
    return value if isinstance(value, dict) else {str(value): True}
