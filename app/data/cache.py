"""Cached folders, built once: complete or not there at all, also when several processes start at the same time.

A folder is built under a temporary name, synced to disk and renamed, under a file lock that the system releases when its
holder dies. A separate process builds it, so that the training process does not keep the memory.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context, parent_process
from pathlib import Path
from typing import Any

from filelock import FileLock

from app.errors import InputError
from app.runtime.disk import sync

logger = logging.getLogger(__name__)
MANIFEST = "manifest.json"


def content_key(*values: Any) -> str:
    """Return 24 hexadecimal digits that depend on all values: on the content of a `Path`, on the JSON form of all others."""
    digest = hashlib.blake2b(digest_size=12)
    for value in values:
        if isinstance(value, Path):
            with value.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        else:
            digest.update(json.dumps(value, sort_keys=True, ensure_ascii=True, default=str).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def is_complete(folder: Path) -> bool:
    """Return whether all files of a built folder are there in their full size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):  # AttributeError: the manifest is JSON, but no object
        return False


def build_once(folder: Path, build: Callable[..., None], *arguments: Any) -> Path:
    """Return `folder`; unless it is there and complete, `build(temporary_folder, *arguments)` builds it in another process.

    `build` must be importable by name; what it raises is raised here. Any number of processes may call this at the same
    time: one builds, the others wait. A damaged folder is built again. Raises InputError if `folder` cannot be written.
    """
    if is_complete(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise InputError(
            f"data.cache_dir must be a folder that can be created and written to; {folder.parent}: {error.strerror}"
        ) from error
    with FileLock(f"{folder}.lock"):
        if is_complete(folder):
            return folder
        if folder.exists():
            logger.warning("%s is damaged and is built again", folder)
            shutil.rmtree(folder)
        for leftover in folder.parent.glob(f"{folder.name}.aside-*"):  # of a process that was killed
            shutil.rmtree(leftover, ignore_errors=True)
        temporary = folder.with_name(f"{folder.name}.aside-{os.getpid()}")
        temporary.mkdir()
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
                pool.submit(_build, build, temporary, arguments).result()
            temporary.rename(folder)
            sync(folder.parent)
        except BrokenProcessPool as error:
            raise RuntimeError(f"the process that prepared {folder} was killed; did memory run out?") from error
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return folder


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended, so that a killed run leaves no process running."""

    def watch() -> None:
        parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _build(build: Callable[..., None], temporary: Path, arguments: tuple) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    build(temporary, *arguments)
    names = sorted(path.relative_to(temporary).as_posix() for path in temporary.rglob("*") if path.is_file())
    sizes = {name: (temporary / name).stat().st_size for name in names}
    for name in names:
        sync(temporary / name)
    (temporary / MANIFEST).write_text(json.dumps(sizes, indent=1))
    sync(temporary / MANIFEST)
    sync(temporary)
