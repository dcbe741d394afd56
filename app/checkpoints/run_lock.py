"""One run in a folder at a time: a lock on the run folder that the system releases when its holder dies."""

import json
import logging
import os
import platform
import time
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from ..errors import InputError

try:
    import fcntl
except ImportError:
    # Not a POSIX system
    fcntl = None

logger = logging.getLogger(__name__)
LOCK = ".lock"
# For a holder that is just ending
SECONDS = 1.0
# A file server keeps the lock of a machine that died for up to 90 seconds
SECONDS_OTHER_HOST = 100.0


class RunLock:
    """Holds a run folder until `release` or the end of this process. Raises InputError naming the holder
    where another process has it. Where the file system has no locks, a warning says so."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / LOCK
        self.handle: int | None = None
        start = time.monotonic()
        while not self._acquire():
            waits = SECONDS if is_this_host(holder(self.path)) else SECONDS_OTHER_HOST
            if time.monotonic() > start + waits:
                raise in_use_error(folder)
            time.sleep(0.1)

    def _acquire(self) -> bool:
        """Return whether the lock is ours, or cannot be anyone's."""
        handle = None
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o666)
            # Else it was removed meanwhile
            if try_lock(handle) and os.fstat(handle).st_ino == self.path.stat().st_ino:
                self.handle, handle = handle, None
        except FileNotFoundError:
            return False
        except OSError as error:
            logger.warning(
                "%s cannot be locked (%s): start no second run in it.", self.path.parent, error.strerror
            )
            return True
        finally:
            if handle is not None:
                os.close(handle)
        if self.handle is None:
            return False
        since = datetime.now().astimezone().isoformat(timespec="seconds")
        # The disk is full: held all the same
        with suppress(OSError):
            os.ftruncate(self.handle, 0)
            os.pwrite(
                self.handle,
                json.dumps({"pid": os.getpid(), "host": platform.node(), "since": since}).encode(),
                0,
            )
        return True

    def release(self) -> None:
        """Let the next run have the folder."""
        if self.handle is None:
            return
        with suppress(OSError):
            self.path.unlink()
        os.close(self.handle)
        self.handle = None


def try_lock(handle: int) -> bool:
    """Lock an open file if no other process has; return whether it is ours. Raises OSError without locks."""
    if fcntl is None:
        raise OSError(0, "this system has no file locks")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def check_not_in_use(folder: Path) -> None:
    """Raise InputError where a run of this host is in the folder; for other hosts `RunLock` waits first."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR)
    except OSError:
        # There is none
        return
    try:
        if not try_lock(handle) and is_this_host(holder(folder / LOCK)):
            raise in_use_error(folder)
    except OSError:
        # No locks here: `RunLock` warns
        return
    finally:
        os.close(handle)


def holder(path: Path) -> dict:
    """Return pid, host and start of the process that has a lock, or what is known of it."""
    with suppress(OSError, ValueError):
        values = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(values, dict):
            return values
    return {}


def is_this_host(values: dict) -> bool:
    """Return whether a holder runs on this machine; also where it has not yet said."""
    return values.get("host", platform.node()) == platform.node()


def in_use_error(folder: Path) -> InputError:
    """Return the error of a folder in which another run is going on."""
    values = holder(folder / LOCK)
    who = f"process {values.get('pid', '?')} on {values.get('host', '?')}, since {values.get('since', '?')}"
    return InputError(
        f"a run folder is for one run at a time: {folder} is in use by {who}; wait until that run has ended, "
        "stop it, or choose another output.dir"
    )
