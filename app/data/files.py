"""The data files that a setting names: files, folders, patterns and addresses."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..config.schema import ADDRESS, check_address
from ..errors import InputError, listed
from .cache import build_once, content_key
from .folders import class_folders, joined_texts, splits_in


def files_of(value: str | list[str], cache_dir: str) -> list[str]:
    """Return the files of a setting: files, folders and patterns, sorted by name; of addresses such as
    s3://bucket/posts/ their copies in the cache. Of a folder, hidden files and folders are left out."""
    names: list[str] = []
    for entry in [value] if isinstance(value, str) else value:
        pattern, found = entry, [entry]
        if os.path.isdir(entry):
            pattern = os.path.join(glob.escape(entry), "[!._]*")
            names_inside = _data_set_files(Path(entry), cache_dir)
            if names_inside:
                names += names_inside
                continue
        if ADDRESS.match(entry):
            found = local_copies(entry, cache_dir)
        elif glob.has_magic(pattern) and not os.path.isfile(entry):
            found = sorted(filter(os.path.isfile, glob.glob(pattern, recursive=True)))
        if not found:
            remedy = "write a pattern in quotes, such as 'a/*.csv', or 'a/**/*.csv' for files in its folders"
            raise InputError(f"{entry}: there are no files; {remedy}")
        names += found
    if not names or len(set(names)) < len(names):
        raise InputError(f"data files must be one or more, each named once, found {listed(names) or 'none'}")
    return names


def _data_set_files(folder: Path, cache_dir: str) -> list[str]:
    """Return the files of a folder that is a data set: those of all its splits, or one with the texts of a
    folder for each label; empty for any other folder."""
    splits = splits_in(folder)
    if splits:
        return [name for files in splits.values() for name in files]
    texts = class_folders(folder)
    return [joined_texts(folder, texts, cache_dir)] if texts else []


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
            remedy = "check address, network and credentials, and pip install -r requirements/remote.txt"
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
        paths = system.glob(path) if glob.has_magic(path) and not is_web else [path]
        infos = {one: info for one in sorted(paths) if (info := system.info(one))["type"] == "file"}
    copies = []
    for path, info in infos.items():
        # `info` has a size, time or ETag: what the store tells of the file
        folder = Path(cache_dir) / f"remote-{content_key(system.unstrip_protocol(path), info)}"
        build_once(folder, copy, path, num_bytes=0)
        copies.append(str(folder / Path(path).name))
    return copies
