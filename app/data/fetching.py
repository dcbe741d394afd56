"""Downloading a known file from one of several mirrors, which may be broken or have another file."""

import hashlib
import http.client
import logging
import urllib.request
from pathlib import Path

from filelock import FileLock

from ..config.public_sets import PublicFile
from ..errors import InputError, TrainingError, first_line
from ..runtime.disk import checksum, write_bytes

logger = logging.getLogger(__name__)
# ValueError: what is no address
FAILURES = (OSError, http.client.HTTPException, ValueError)


def place_file(known: PublicFile, folder: Path, timeout: float, source: Path | None = None) -> bool:
    """Put a file into `folder`, from its mirrors or from the file `source`; return False if it is there.

    It has the known SHA-256, or is not there. Raises InputError for another file of that name, and for a
    wrong `source`; TrainingError where no mirror has the file. `timeout`: seconds for an answer.
    """
    target = folder / known.name
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
            write_bytes(target, download(known, timeout) if source is None else read(known, source))
    except OSError as error:
        raise TrainingError(f"{target} cannot be written: {error.strerror or error}") from error
    return True


def read(known: PublicFile, source: Path) -> bytes:
    """Return the content of a file that must be the known one."""
    if not source.is_file():
        raise InputError(f"{source} is needed, and is not there; copy {known.name} into that folder")
    content = source.read_bytes()
    if problem := problem_of(content, known):
        raise InputError(f"{source} must have the SHA-256 {known.sha256[:12]}...; it is {problem}")
    return content


def download(known: PublicFile, timeout: float) -> bytes:
    """Return the content of the known file, from the first of its mirrors that has it."""
    problems = []
    for url in known.urls:
        try:
            request = urllib.request.Request(url, headers={"User-Agent": "chinese-text-classification"})
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                # A byte more shows that it is another file, which may have no end
                content = answer.read(known.size + 1)
            problem = problem_of(content, known)
            if problem is None:
                return content
        except FAILURES as error:
            problem = first_line(error)
        logger.warning("%s: %s", url, problem)
        problems.append(f"  {url}: {problem}\n")
    raise TrainingError(
        f"no mirror has {known.name}:\n{''.join(problems)}Try again; or get the file on another machine and "
        "use --from FOLDER"
    )


def problem_of(content: bytes, known: PublicFile) -> str | None:
    """Return what a file is that is not the known one, or None."""
    digest = hashlib.sha256(content).hexdigest()
    size = f"{len(content):,} of {known.size:,} bytes"
    return None if digest == known.sha256 else f"another file, or a part: {size}, SHA-256 {digest[:12]}..."
