"""The data files that a setting names: files, folders, patterns and addresses."""

from __future__ import annotations

import glob
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path

from ..config.schema import ADDRESS, check_address
from ..errors import InputError, listed
from ..program import install_command
from .cache import build_once, content_key
from .folders import class_folders, joined_texts, splits_in

logger = logging.getLogger(__name__)


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files of a setting: files, folders and patterns, sorted by name; of addresses such as
    s3://bucket/posts/ their copies in the cache. Of a folder, hidden files and folders are left out.

    A file that a pattern finds under several names, which links give it, is there once. Raises InputError
    where there is no file, and for a file that is named twice.
    """
    entries = value
    if isinstance(value, str):
        entries = [value]
    names: list[str] = []
    for entry in entries:
        names += files_of_entry(entry, cache_dir)
    if not names:
        raise InputError("data files must be one or more, each named once, found none")
    name_of_file: dict[object, str] = {}
    for name in names:
        identity = file_identity(name)
        if identity in name_of_file:
            duplicate = f"{name_of_file[identity]} and {name}, which are one file"
            raise InputError(
                f"data files must be one or more, each named once, found {duplicate}; remove one"
            )
        name_of_file[identity] = name
    return names


def files_of_entry(entry: str, cache_dir: str) -> list[str]:
    """Return the files of one file, folder, pattern or address; raises InputError for a pattern of none."""
    if ADDRESS.match(entry):
        files = local_copies(entry, cache_dir)
    elif os.path.isdir(entry):
        files = data_set_files(Path(entry), cache_dir)
        if not files:
            files = each_once(matching_files(os.path.join(glob.escape(entry), "[!._]*")))
    elif glob.has_magic(entry) and not os.path.isfile(entry):
        files = each_once(matching_files(entry))
    else:
        files = [entry]
    if not files:
        remedy = "write a pattern in quotes, such as 'a/*.csv', or 'a/**/*.csv' for files in its folders"
        raise InputError(f"{entry}: there are no files; {remedy}")
    return files


def data_set_files(folder: Path, cache_dir: str) -> list[str]:
    """Return the files of a folder that is a data set: those of all its splits, or one with the texts of a
    folder for each label; empty for any other folder."""
    splits = splits_in(folder)
    if splits:
        return list(chain.from_iterable(splits.values()))
    texts = class_folders(folder)
    if not texts:
        return []
    return [joined_texts(folder, texts, cache_dir)]


def matching_files(pattern: str) -> list[str]:
    """Return the files of a pattern, in which `**` is any number of folders, none of them hidden.

    `glob.glob` with `recursive` is not used: it follows a link to a folder above the link again and again.
    """
    parts = pattern.replace(os.altsep or os.sep, os.sep).split(os.sep)
    if "**" not in parts:
        return list(filter(os.path.isfile, glob.glob(pattern)))
    position = parts.index("**")
    before = os.sep.join(parts[:position])
    after = os.sep.join(parts[position + 1 :])
    if before:
        starts = glob.glob(before)
    elif position:
        # The pattern begins with a separator
        starts = [os.sep]
    else:
        starts = [""]
    files: list[str] = []
    for folder in folders_below(starts):
        files += matching_files(os.path.join(glob.escape(folder), after or "*"))
    return files


def folders_below(starts: list[str]) -> list[str]:
    """Return folders and all folders in them that are not hidden, each once. A link to a folder is followed
    only where no other way leads there."""
    folders: list[str] = []
    links = sorted(starts)
    left_out: list[str] = []
    entered: set[str] = set()
    while links:
        waiting = [links.pop(0)]
        while waiting:
            folder = waiting.pop()
            real_path = os.path.realpath(folder)
            if real_path in entered:
                left_out.append(folder)
                continue
            entered.add(real_path)
            folders.append(folder)
            # A folder that may not be entered has no files for us
            names: list[str] = []
            with suppress(OSError):
                names = sorted(os.listdir(folder or "."))
            for name in names:
                path = os.path.join(folder, name)
                if name.startswith(".") or not os.path.isdir(path):
                    continue
                if os.path.islink(path):
                    links.append(path)
                else:
                    waiting.append(path)
    if left_out:
        logger.warning("Links to folders that are read under another name are left out: %s", listed(left_out))
    return folders


def each_once(names: list[str]) -> list[str]:
    """Return the names of different files, sorted; of several names of a file one without links."""
    by_file: dict[object, str] = {}
    for name in sorted(names, key=lambda name: (has_link(name), name)):
        by_file.setdefault(file_identity(name), name)
    distinct_names = sorted(by_file.values())
    left_out = sorted(set(names) - set(distinct_names))
    if left_out:
        logger.warning("Other names of files that are read already are left out: %s", listed(left_out))
    return distinct_names


def has_link(name: str) -> bool:
    return os.path.realpath(name) != os.path.abspath(name)


def file_identity(name: str) -> object:
    """Return what is the same for two names of one file; of a file that is not there its path."""
    try:
        status = os.stat(name)
    except (OSError, ValueError):
        return os.path.abspath(name)
    # A file system without numbers of files gives 0
    if status.st_ino == 0:
        return os.path.realpath(name)
    return status.st_dev, status.st_ino


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return local copies of the files at an address: a file, a folder or a pattern, made once for each
    content. fsspec finds the credentials; nothing of them is in a message or a file of ours."""
    import fsspec

    @contextmanager
    def reading() -> Iterator[None]:
        try:
            yield
        except Exception as error:  # noqa: BLE001 - each store raises different errors
            # Some of their texts hold the name of a key
            install = install_command("remote", constrained=False)
            remedy = f"check address, network and credentials, and {install}"
            raise InputError(f"{address}: cannot be read ({type(error).__name__}); {remedy}") from None

    def copy(folder: Path, path: str) -> None:
        with reading():
            system.get_file(path, str(folder / Path(path).name))

    check_address("a data file", address)
    with reading():
        system, path = fsspec.core.url_to_fs(address)
        system.invalidate_cache()
        is_web = address.startswith(("http://", "https://"))
        if not is_web and system.isdir(path):
            path = f"{path.rstrip('/')}/[!._]*"
        paths = [path]
        if glob.has_magic(path) and not is_web:
            paths = sorted(system.glob(path))
        infos = {}
        for path in paths:
            info = system.info(path)
            if info["type"] == "file":
                infos[path] = info
    copies = []
    for path, info in infos.items():
        # `info` has a size, time or ETag: what the store tells of the file
        folder = Path(cache_dir) / f"remote-{content_key(system.unstrip_protocol(path), info)}"
        build_once(folder, copy, path, num_bytes=0)
        copies.append(str(folder / Path(path).name))
    return copies
