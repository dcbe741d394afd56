"""Predictions in parts, in one folder, by any number of processes: a plan, a lock for each part, whole files,
and manifests.

Processes need to know nothing of each other. Each takes a part that is not finished and that no other process
holds; the system releases the locks of a process that dies, and a file server those of a machine.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from ..data.files import Span
from ..errors import InputError, TrainingError, listed
from ..runtime.disk import checksum, read_json, sync, whole_file, write_json, write_text
from .output import cannot_write

try:
    import fcntl
except ImportError:
    # Not a POSIX system
    fcntl = None

# Programs that read a folder of Parquet files leave out what begins with _ or a dot
PLAN, LOCKS = "_plan.json", ".locks"
# Seconds between looks at the parts of other processes
POLL = 0.5


class Part(NamedTuple):
    """Rows of one file: the number of the part and that of the file, how many rows, and where (None: all of
    them)."""

    number: int
    file: int
    rows: int
    span: Span | None


class PartsFolder:
    """A folder of parts, made where it is missing.

    Raises InputError for a folder with other files, and where the file system has no locks.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.plan: dict[str, Any] = {}
        self.parts: list[Part] = []
        with _writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            names = [name for name in os.listdir(folder) if not name.startswith(".")]
            if names and not (folder / PLAN).exists():
                raise InputError(
                    f"{folder}: parts need a folder of their own, found {listed(sorted(names), 5)}; choose "
                    "another one"
                )
            self.handle = os.open(folder / LOCKS, os.O_RDWR | os.O_CREAT, 0o666)
        # Of an earlier run: those parts are tried again
        self.old_errors = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.error")}

    def lay_plan(self, make: Callable[[], dict[str, Any]]) -> None:
        """Read the plan of the folder; where there is none, one process makes it, and the others wait.

        It has the `format` of the parts, the `parts`, and the `input` files. Raises what `make` raises.
        """
        if not (self.folder / PLAN).exists():
            with self.alone():
                if not (self.folder / PLAN).exists():
                    plan = make()
                    with _writing(self.folder):
                        write_json(self.folder / PLAN, plan)
        self.read_plan()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Wait until no other process makes a plan, and let none do it in the meantime."""
        self._lock(0, wait=True)
        try:
            yield
        finally:
            self._unlock(0)

    def replace_plan(self, plan: dict[str, Any], stale: list[Part]) -> None:
        """Write another plan; parts that are not of it are kept as `_replaced-<hash of the input>-*`. Raises
        InputError where another process computes one of them; then nothing is touched."""
        held = [part for part in stale if not self._lock(part.number + 1)]
        try:
            if held:
                raise InputError(
                    f"{self.folder}: the input has changed, and another process computes "
                    f"{self.where(held[0])}; end it, and run the same command again"
                )
            with _writing(self.folder):
                for part in stale:
                    input_hash = self.plan["input"][part.file]["sha256"][:8]
                    for path in filter(Path.exists, (self.manifest(part), self.path(part), self.error(part))):
                        path.replace(self.folder / f"_replaced-{input_hash}-{path.name}")
                write_json(self.folder / PLAN, plan)
        finally:
            for part in stale:
                self._unlock(part.number + 1)
        self.read_plan()

    def read_plan(self) -> None:
        """Read the plan of the folder; raises InputError where there is none."""
        path = self.folder / PLAN
        try:
            self.plan = read_json(path)
            self.parts = [Part(*row[:3], Span(*row[3]) if row[3] else None) for row in self.plan["parts"]]
        except (OSError, LookupError, TypeError) as error:
            raise InputError(f"{path}: the plan of the parts cannot be read: {error!r}") from error

    def path(self, part: Part) -> Path:
        """Return where the rows of a part are."""
        return self.folder / f"part-{part.number:05}.{self.plan['format']}"

    def manifest(self, part: Part) -> Path:
        """Return where it is written that a part is finished."""
        return self.folder / f"_part-{part.number:05}.json"

    def error(self, part: Part) -> Path:
        """Return where it is written why a part could not be computed."""
        return self.folder / f"_part-{part.number:05}.error"

    def is_finished(self, part: Part) -> bool:
        """Return whether a part and its manifest are there."""
        return self.manifest(part).exists() and self.path(part).exists()

    def is_failed(self, part: Part) -> bool:
        """Return whether a process has tried a part in vain since this one started."""
        path = self.error(part)
        with suppress(OSError):
            return path.stat().st_mtime_ns != self.old_errors.get(path.name)
        return False

    def left(self) -> list[Part]:
        """Return the parts that are neither finished nor failed."""
        return [part for part in self.parts if not self.is_finished(part) and not self.is_failed(part)]

    def where(self, part: Part) -> str:
        """Return which rows a part has, for people."""
        name = self.plan["input"][part.file]["name"]
        return f"{name}, {part.rows:,} rows" + (f" from {part.span.line} on" if part.span else "")

    def compute(self, write: Callable[[Part, TextIO], tuple[int, int]], say: Callable[[str], None]) -> None:
        """Compute parts until all are finished or failed; those of a process that ends are taken over.

        `write` writes the rows of a part to a file, and returns how many it wrote and how many it left out.
        Where it raises InputError, the part has failed, and the others are computed. Raises TrainingError for
        a file that cannot be written.
        """
        for part in self._claimed(say):
            try:
                self._compute(part, write)
            except InputError as error:
                said = f"{self.where(part)}: {error}"
                say(f"error: {said}")
                with _writing(self.folder):
                    write_text(self.error(part), f"{said}\n")

    def _claimed(self, say: Callable[[str], None]) -> Iterator[Part]:
        """Yield parts that are left, each locked meanwhile, the largest first."""
        is_told = False
        while left := sorted(self.left(), key=lambda part: -part.rows):
            is_idle = True
            for part in left:
                if not self._lock(part.number + 1):
                    continue
                try:
                    if read_json(self.folder / PLAN)["input"] != self.plan["input"]:
                        raise InputError(
                            f"{self.folder}: the input has changed, and another process has laid another "
                            "plan; the same command continues"
                        )
                    if not self.is_finished(part) and not self.is_failed(part):
                        is_idle = False
                        yield part
                finally:
                    self._unlock(part.number + 1)
            if is_idle and self.left():
                if not is_told:
                    say(
                        f"{self.folder}: other processes compute the last {len(left)} parts; waiting for them"
                    )
                is_told = True
                time.sleep(POLL)

    def _compute(self, part: Part, write: Callable[[Part, TextIO], tuple[int, int]]) -> None:
        path = self.path(part)
        with _writing(path), whole_file(path, encoding="utf-8", newline="") as file:
            rows, skipped = write(part, file)
            if rows + skipped != part.rows:
                raise InputError(
                    f"the plan has {part.rows:,} rows, found {rows + skipped:,}; the file must not change "
                    "while it is read"
                )
        source = self.plan["input"][part.file]
        manifest = {
            "rows": rows,
            "skipped": skipped,
            "bytes": path.stat().st_size,
            "sha256": checksum(path),
            "input": {"name": source["name"], "sha256": source["sha256"], "span": part.span},
        }
        with _writing(path):
            sync(path.parent)
            write_json(self.manifest(part), manifest)
        self.error(part).unlink(missing_ok=True)

    def manifests(self) -> list[dict[str, Any]]:
        """Return the manifests of all parts, which together have each row once.

        Raises InputError where parts failed or are missing, TrainingError where rows are missing.
        """
        failed = [part for part in self.parts if self.is_failed(part)]
        missing = [part for part in self.parts if not self.is_finished(part)]
        if missing:
            why = f": {self.error(failed[0]).read_text(encoding='utf-8').strip()}" if failed else ""
            raise InputError(
                f"{self.folder}: {len(missing)} of {len(self.parts)} parts are not finished{why}; the same "
                "command computes them"
            )
        manifests = [read_json(self.manifest(part)) for part in self.parts]
        for part, manifest in zip(self.parts, manifests, strict=True):
            found = manifest["rows"] + manifest["skipped"], self.path(part).stat().st_size
            if found != (part.rows, manifest["bytes"]):
                raise TrainingError(
                    f"{self.path(part)}: the part must have {part.rows:,} rows in {manifest['bytes']:,} "
                    f"bytes, found {found[0]:,} in {found[1]:,}; remove it to compute it again"
                )
        return manifests

    def _lock(self, number: int, wait: bool = False) -> bool:
        """Lock one byte of a file; return whether it is ours."""
        try:
            fcntl.lockf(self.handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB), 1, number)
        except (BlockingIOError, PermissionError):
            return False
        except (OSError, AttributeError) as error:
            raise InputError(
                f"{self.folder}: processes share parts by file locks, and there are none ({error}); choose a "
                "folder on another file system"
            ) from error
        return True

    def _unlock(self, number: int) -> None:
        fcntl.lockf(self.handle, fcntl.LOCK_UN, 1, number)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise cannot_write(str(path), error) from error
