"""Where log lines go: standard error on rank 0, and the run folder's train.log as soon as there is one."""

import logging
import sys
from logging.handlers import MemoryHandler
from pathlib import Path


def start_logging(is_main: bool) -> None:
    """Send log lines to standard error; rank 0 keeps them for the run folder's log too, other ranks only
    warn."""
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO if is_main else logging.WARNING,
        format="%(message)s",
        force=True,
    )
    # A full disk must not fill the terminal with tracebacks of the log file
    logging.raiseExceptions = False
    if is_main:
        # It keeps more until it has a target
        logging.getLogger().addHandler(MemoryHandler(capacity=1000))
    for noisy in ("transformers", "httpx", "httpx2", "tensorboard", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def open_log_file(path: Path) -> logging.FileHandler:
    """Return a handler that writes all log lines to `path`, those since `start_logging` first."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    for early in [handler for handler in root.handlers if isinstance(handler, MemoryHandler)]:
        early.setTarget(handler)
        root.removeHandler(early)
        # Writes what it has kept
        early.close()
    root.addHandler(handler)
    return handler


def close_log_file(handler: logging.FileHandler) -> None:
    """Write no more log lines to the file of this handler."""
    logging.getLogger().removeHandler(handler)
    handler.close()
