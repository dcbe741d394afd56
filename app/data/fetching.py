"""Downloading a known file from one of several mirrors, which may be broken, slow or wrong."""

import http.client
import logging
import shutil
import ssl
import time
import urllib.error
import urllib.request
from pathlib import Path

from filelock import FileLock

from ..config.public_sets import PublicFile
from ..errors import InputError, TrainingError, first_line
from ..runtime.disk import checksum, sync

logger = logging.getLogger(__name__)
CHUNK = 1 << 16
# Bytes a second; below it another mirror is tried
MIN_SPEED = 1024
FAILURES = (urllib.error.URLError, http.client.HTTPException, ssl.SSLError, TimeoutError, ConnectionError)
FAILURES += (ValueError,)


class MirrorError(Exception):
    """What is wrong with one mirror."""


def place_file(known: PublicFile, folder: Path, timeout: float, source: Path | None = None) -> bool:
    """Put a file into `folder`, from its mirrors or from the file `source`; return False if it is there.

    It has the known SHA-256, or is not there. A download is resumed. Raises InputError for another file of
    that name, and for a wrong `source`; TrainingError where no mirror has the file.
    """
    target, part = folder / known.name, folder / f".{known.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(folder / ".lock"):
            if target.exists():
                if checksum(target) == known.sha256:
                    return False
                raise InputError(
                    f"{target} is there and is not the known file (SHA-256 {known.sha256[:12]}...); move it "
                    "away"
                )
            if source is None:
                download(known, part, timeout)
            else:
                copy(known, source, part)
            sync(part)
            part.replace(target)
    except OSError as error:
        raise TrainingError(f"{target} cannot be written: {error.strerror or error}") from error
    return True


def copy(known: PublicFile, source: Path, part: Path) -> None:
    """Copy a file that must be the known one."""
    if not source.is_file():
        raise InputError(f"{source} is needed, and is not there; copy {known.name} into that folder")
    if (actual := checksum(source)) != known.sha256:
        raise InputError(
            f"{source} must have the SHA-256 {known.sha256[:12]}..., found {actual[:12]}...; it is another "
            "file"
        )
    shutil.copyfile(source, part)


def download(known: PublicFile, part: Path, timeout: float) -> None:
    """Download the known file into `part`, which may have its beginning; tries one mirror after the other."""
    problems = []
    for url in known.urls:
        # The beginning may be of a wrong mirror: then once more, all of it from this one
        for _ in range(2):
            has_beginning = part.exists() and part.stat().st_size > 0
            try:
                receive(url, known, part, timeout)
                if (actual := checksum(part)) == known.sha256:
                    return
                part.unlink()
                raise MirrorError(f"another file, SHA-256 {actual[:12]}... instead of {known.sha256[:12]}...")
            except MirrorError as error:
                problem = f"{url}: {error}"
            if part.exists() or not has_beginning:
                break
        logger.warning("%s", problem)
        problems.append(problem)
    raise TrainingError(
        f"no mirror has {known.name}:\n  "
        + "\n  ".join(problems)
        + "\nThe same command resumes what has arrived; or get the "
        "file on another machine and use --from FOLDER"
    )


def receive(url: str, known: PublicFile, part: Path, timeout: float) -> None:
    """Append what is missing of the file to `part`, from one mirror. Raises MirrorError where it fails, is
    slow (1 KiB a second over `timeout` seconds) or sends another size; only a file too long is removed."""
    start = part.stat().st_size if part.exists() else 0
    if start >= known.size:
        return
    if not url.startswith(("http://", "https://")):
        raise MirrorError("an address must begin with http:// or https://")
    request = urllib.request.Request(url, headers={"User-Agent": "chinese-text-classification"})
    if start:
        request.add_header("Range", f"bytes={start}-")
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            is_rest = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(
                f"bytes {start}-"
            )
            if start and answer.status == 206 and not is_rest:
                raise MirrorError(f"it sent another part: {answer.headers.get('Content-Range')}")
            with part.open("ab" if is_rest else "wb") as file:
                _copy_in_time(answer, file, known.size - (start if is_rest else 0), timeout)
    except urllib.error.HTTPError as error:
        raise MirrorError(f"HTTP status {error.code}") from error
    except FAILURES as error:
        raise MirrorError(first_line(error)) from error
    _check_size(known, part)


def _check_size(known: PublicFile, part: Path) -> None:
    """Raise MirrorError for a file that is too short, or too long, which is removed."""
    size = part.stat().st_size
    if size > known.size:
        part.unlink()
        raise MirrorError(f"more than the {known.size:,} bytes of the file")
    if size < known.size:
        raise MirrorError(f"it ended after {size:,} of {known.size:,} bytes")


def _copy_in_time(answer: http.client.HTTPResponse, file, missing: int, timeout: float) -> None:
    """Copy at most one byte more than is missing; raises MirrorError for a slow mirror."""
    since, arrived = time.monotonic(), 0
    while missing >= 0 and (chunk := answer.read1(min(CHUNK, missing + 1))):
        file.write(chunk)
        missing -= len(chunk)
        arrived += len(chunk)
        seconds = time.monotonic() - since
        if seconds >= timeout:
            if missing > 0 and arrived < MIN_SPEED * seconds:
                raise MirrorError(f"too slow, {arrived / seconds:.0f} bytes a second")
            since, arrived = time.monotonic(), 0
