"""Cached folders, built once, also when several processes start together: under a temporary name, synced and
renamed, under a file lock, with a digest of each file. A separate process builds what is large, and does not
keep the memory."""

from __future__ import annotations

import errno
import gc
import hashlib
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock

from ..errors import InputError, TrainingError, listed, reading
from ..runtime.disk import parse_json, sync, system_errors

if TYPE_CHECKING:
    import numpy as np

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"
SMALL_BYTES = 2**20  # of data that is prepared in this process: starting another one would take longer


def call_apart(function: Callable, *arguments: Any) -> Any:
    """Return `function(*arguments)`, computed in another process by loky. It never runs the program that is
    running here: scripts without `if __name__ == "__main__":` and notebooks may call this. It ends with this
    process, also when that is killed. `function` must be importable by name. Raises what it raises, and
    TrainingError where the other process was killed."""
    # It is imported here, so that --help is quick
    from joblib.externals.loky import ProcessPoolExecutor
    from joblib.externals.loky.process_executor import TerminatedWorkerError

    executor = ProcessPoolExecutor(1, initializer=_begin, initargs=(os.getpid(),))
    try:
        return executor.submit(function, *arguments).result()
    except TerminatedWorkerError as error:
        problem = "a process that prepared data was killed; did memory run out?"
        raise TrainingError(f"{problem} Start again with more free memory") from error
    finally:
        executor.shutdown(kill_workers=True)


def _begin(parent: int) -> None:
    def end_with_parent() -> None:
        while os.getppid() == parent:
            time.sleep(0.2)
        os._exit(1)

    threading.Thread(target=end_with_parent, daemon=True).start()
    # Millions of short lists have no reference cycles, and looking for some would take a fifth of the time
    gc.disable()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")


def save_array(path: Path, values: np.ndarray) -> None:
    """Write a .npy file. Into a file opened for writing only, `numpy.save` writes through C, which on a full
    disk can lose the end of a small array without an error."""
    import numpy as np

    with path.open("w+b") as file:
        np.save(file, values)


def file_state(path: Path) -> list[int]:
    """Return inode, bytes and change time of a file: writing to it or replacing it changes one of them."""
    # Where it is on another machine, opening it asks that one
    with reading(path), path.open("rb") as file:
        status = os.fstat(file.fileno())
    return [status.st_ino, status.st_size, status.st_mtime_ns]


def file_digest(path: Path) -> bytes:
    """Return a digest of the content of a file; raises InputError for one that cannot be read."""
    with reading(path):
        return _digest(path)


def _digest(path: Path) -> bytes:
    """Return what `file_digest` does; raises OSError for a file that cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "blake2b").digest()


def content_key(*values: Any) -> str:
    """Return 24 hexadecimal digits that depend on all values: bytes as they are, others as JSON."""
    digest = hashlib.blake2b(digest_size=12)
    for value in values:
        if not isinstance(value, bytes):
            value = json.dumps(value, sort_keys=True, default=str).encode()
        digest.update(value + b"\0")
    return digest.hexdigest()


def files_digest(folder: Path, *patterns: str) -> str:
    """Return a digest of the names and contents of the files in a folder that have one of the patterns."""
    names = set()
    for pattern in patterns:
        for path in folder.glob(pattern):
            names.add(path.relative_to(folder).as_posix())
    names_and_digests = []
    for name in sorted(names):
        names_and_digests += [name, file_digest(folder / name)]
    return content_key(*names_and_digests)


def is_complete(folder: Path) -> bool:
    """Return whether a built folder has all its files as they were written; raises OSError where that cannot
    be seen."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
        digests = parse_json(text, folder / MANIFEST, dict[str, str], "remove it")
        for name, digest in digests.items():
            if digest != _digest(folder / name).hex():
                return False
        # The manifest of a folder that was built names at least one file
        return bool(digests)
    # The manifest may be no JSON, or have a name that no file can have
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, ValueError):
        return False


def build_once(folder: Path, build: Callable, *arguments: Any, num_bytes: int = sys.maxsize) -> Path:
    """Return `folder`; unless it is there and complete, `build(temporary_folder, *arguments)` builds it: in
    this process from at most `SMALL_BYTES` of data, else in another one, and then `build` must be importable
    by name. Of several processes that call this at the same time one builds and the others wait. A damaged
    folder is built again; one that cannot be read now stays. Raises what `build` raises, InputError if
    `folder` cannot be made or has files of others, and TrainingError for what the system refuses."""
    temporary = folder.with_name(f"{folder.name}.aside-{os.getpid()}")
    try:
        if is_complete(folder):
            return folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if is_complete(folder):
                return folder
            if folder.exists():
                logger.warning("%s is damaged and is built again", folder)
            # Processes that were killed have left these
            for leftover in folder.parent.glob(f"{folder.name}.aside-*"):
                shutil.rmtree(leftover, ignore_errors=True)
            temporary.mkdir()
            try:
                with system_errors():
                    if num_bytes <= SMALL_BYTES:
                        build(temporary, *arguments)
                    else:
                        call_apart(build, temporary, *arguments)
                _complete(temporary)
                _put_in_place(temporary, folder)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        return folder
    except (FileExistsError, NotADirectoryError, PermissionError) as error:
        rule = "data.cache_dir must be a folder that can be created and written to"
        raise InputError(f"{rule}, found {folder.parent}: {error.strerror}; set it to another one") from error
    except OSError as error:
        problem = f"{folder}: this part of the cache cannot be prepared: {error}"
        remedy = "free space on the disk, or set data.cache_dir to another folder, and start again"
        raise TrainingError(f"{problem}; {remedy}; nothing of the cache was removed") from error


def _complete(temporary: Path) -> None:
    """Write the manifest of a folder that was built, and force all of it to the disk."""
    files = sorted(filter(Path.is_file, temporary.rglob("*")))
    digests = {}
    for path in files:
        digests[str(path.relative_to(temporary))] = _digest(path).hex()
    (temporary / MANIFEST).write_text(json.dumps(digests, indent=1))
    for path in (*files, temporary / MANIFEST, temporary):
        sync(path)


def _put_in_place(built: Path, folder: Path) -> None:
    """Rename a folder that was built to `folder`. Where another machine has built that meanwhile, it stays:
    on some network file systems a lock holds on one machine only."""
    if is_complete(folder):
        return
    _remove_damaged(folder, built)
    try:
        built.rename(folder)
    except OSError:
        if not is_complete(folder):
            raise
    sync(folder.parent)


def _paths_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


def _remove_damaged(folder: Path, built: Path) -> None:
    """Remove a damaged folder, whose files are `built` again. Raises InputError where it has other files."""
    if folder.is_dir():
        foreign_names = sorted(map(str, _paths_below(folder) - _paths_below(built)))
        if foreign_names:
            raise InputError(
                f"{folder}: this folder of the cache is damaged and must be built again, but it has files "
                f"that are not of the cache: {listed(foreign_names)}; move them to another place and "
                "start again"
            )
        shutil.rmtree(folder)
    elif folder.exists():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))
