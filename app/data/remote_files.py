"""Files on object stores, such as s3://bucket/posts.parquet -> whole copies in the cache, by fsspec. It finds
the credentials; nothing of them is in a setting, a message or a file of ours."""

import glob
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from filelock import FileLock

from ..config.addresses import check_address
from ..errors import InputError, TrainingError
from ..runtime.disk import sync
from .cache import content_key

logger = logging.getLogger(__name__)
CHUNK = 1 << 23
# What tells one content of an object from another, as the file systems of fsspec name it
VERSIONS = ("size", "ETag", "etag", "LastModified", "last_modified", "mtime", "created", "md5", "checksum")


def local_copies(address: str, cache_dir: str) -> list[str]:
    """Return the local copies of the files at an address: a file, those in a folder but for hidden ones, or
    those of a pattern, sorted by name.

    A copy is made once for each content of a file; one that was interrupted is resumed. Raises InputError
    where there is no file, TrainingError where one cannot be read or written.
    """
    check_address("a data file", address)
    with _reading(address):
        system, path = _file_system(address)
        paths = [path]
        if not address.startswith(("http://", "https://")):
            if glob.has_magic(path):
                paths = [one for one in system.glob(path) if system.isfile(one)]
            elif system.isdir(path):
                entries = system.ls(path, detail=True)
                paths = [entry["name"] for entry in entries if entry["type"] == "file"]
                paths = [one for one in paths if one.rpartition("/")[2][:1] not in (".", "_", "")]
    if not paths:
        raise InputError(f"{address}: there are no files")
    return [str(_local_copy(system, path, Path(cache_dir))) for path in sorted(paths)]


def _file_system(address: str) -> tuple[Any, str]:
    # torch needs it too
    import fsspec

    try:
        return fsspec.core.url_to_fs(address)
    except (ImportError, ValueError) as error:
        scheme = address.partition("://")[0]
        raise InputError(
            f"{address}: files of {scheme}:// need a package; pip install -r requirements/remote.txt has "
            "those of s3:// and oss://"
        ) from error


def _local_copy(system: Any, path: str, cache_dir: Path) -> Path:
    address = system.unstrip_protocol(path)
    key, size = _version(system, path, address)
    folder = cache_dir / f"remote-{key}"
    copy, part = folder / path.rpartition("/")[2], folder / ".part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{folder}.lock"):
            if copy.exists():
                return copy
            _download(system, path, part, size)
            if _version(system, path, address)[0] != key:
                part.unlink()
                raise TrainingError(f"{address}: the file changed while it was copied; start again")
            sync(part)
            part.replace(copy)
            sync(folder)
    except OSError as error:
        raise TrainingError(f"{copy}: cannot be written: {error.strerror or error}") from error
    return copy


def _version(system: Any, path: str, address: str) -> tuple[str, int | None]:
    """Return a key of what a file holds now, and its size in bytes where that is known."""
    with _reading(address):
        system.invalidate_cache()
        info = system.info(path)
    versions = {name: str(info[name]) for name in VERSIONS if name in info}
    return content_key(address, versions), info.get("size")


def _download(system: Any, path: str, part: Path, size: int | None) -> None:
    """Append to `part` what is missing of a file."""
    address = system.unstrip_protocol(path)
    start = part.stat().st_size if part.exists() else 0
    logger.info("%s: copied to %s from byte %d on", address, part.parent, start)
    with _reading(address):
        file = system.open(path, "rb", block_size=CHUNK)
    with file, part.open("r+b" if start else "wb") as target:
        # A server that sends no parts of files sends all of it again
        with suppress(ValueError):
            file.seek(start)
            target.seek(start)
        while True:
            with _reading(address):
                chunk = file.read(CHUNK)
            if not chunk:
                break
            target.write(chunk)
        target.truncate()
        arrived = target.tell()
    if size is not None and arrived != size:
        raise TrainingError(f"{address}: {arrived:,} of {size:,} bytes arrived; the same command resumes")


@contextmanager
def _reading(address: str) -> Iterator[None]:
    """Give the errors of a file system without their texts: some of these hold the name of a key."""
    try:
        yield
    except (InputError, TrainingError):
        raise
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{address}: there is no such file, or it may not be seen, or its server does not answer"
        ) from None
    # Each store raises different errors
    except Exception as error:  # noqa: BLE001
        raise TrainingError(
            f"{address}: cannot be read ({type(error).__name__}); check the address, the network, and the "
            "credentials in the environment. What has arrived is kept: the same command resumes"
        ) from None
