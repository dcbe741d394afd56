"""Folders that are built once: whole or absent, safe when several processes start at once.

A folder is built aside, synced to disk and renamed into place, under a file lock that the system releases when its
holder dies. The work runs in a process of its own, so that its memory does not stay with the training process.
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


def content_key(*parts: Any) -> str:
    """Return 24 hexadecimal digits that depend on every part: a `Path` counts by its content, all else by its JSON form."""
    digest = hashlib.blake2b(digest_size=12)
    for part in parts:
        if isinstance(part, Path):
            with part.open("rb") as file:
                digest.update(hashlib.file_digest(file, "blake2b").digest())
        else:
            digest.update(json.dumps(part, sort_keys=True, ensure_ascii=True, default=str).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def is_whole(folder: Path) -> bool:
    """Return whether every file of a built folder is there in its full size."""
    try:
        sizes = json.loads((folder / MANIFEST).read_text())
        return all((folder / name).stat().st_size == size for name, size in sizes.items())
    except (OSError, ValueError, AttributeError):  # AttributeError: JSON, but not the object that was written
        return False


def built_folder(folder: Path, build: Callable[..., None], *arguments: Any) -> Path:
    """Return `folder`, built by `build(aside, *arguments)` in another process unless it is there and whole.

    `build` must be importable by name; what it raises is raised here. Any number of processes may ask at once: one
    builds, the others wait. A folder that is damaged is built again.
    """
    if is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder.parent):
            pass
    except OSError as error:
        raise InputError(
            f"data.cache_dir must be a folder that can be made and written; {folder.parent}: {error.strerror}"
        ) from error
    with FileLock(f"{folder}.lock"):
        if is_whole(folder):
            return folder
        if folder.exists():
            logger.warning("%s is damaged and is built again", folder)
            shutil.rmtree(folder)
        for left in folder.parent.glob(f"{folder.name}.aside-*"):  # of a process that was killed
            shutil.rmtree(left, ignore_errors=True)
        aside = folder.with_name(f"{folder.name}.aside-{os.getpid()}")
        aside.mkdir()
        try:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_end_with_parent) as pool:
                pool.submit(_build_aside, build, aside, arguments).result()
            aside.rename(folder)
            sync(folder.parent)
        except BrokenProcessPool as error:
            raise RuntimeError(f"the process that prepared {folder} was killed; was it out of memory?") from error
        finally:
            shutil.rmtree(aside, ignore_errors=True)
    return folder


def _end_with_parent() -> None:
    """End this process as soon as its parent is gone, so that a killed run leaves nothing behind."""

    def watch() -> None:
        parent_process().join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _build_aside(build: Callable[..., None], aside: Path, arguments: tuple) -> None:
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(message)s")
    build(aside, *arguments)
    names = sorted(path.relative_to(aside).as_posix() for path in aside.rglob("*") if path.is_file())
    sizes = {name: (aside / name).stat().st_size for name in names}
    for name in names:
        sync(aside / name)
    (aside / MANIFEST).write_text(json.dumps(sizes, indent=1))
    sync(aside / MANIFEST)
    sync(aside)
