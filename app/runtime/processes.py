"""How a process of a run ends: with its own status, and never later than the launcher that started it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from typing import NoReturn


def leave(status: int) -> NoReturn:
    """End this process with an exit status, without Python's own shutdown.

    A thread of gloo that releases its last result while Python shuts down is ended by force, which aborts the process
    (SIGABRT, torch 2.13): a run in some hundreds that had done all its work would be reported as failed.
    """
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def end_with_launcher() -> None:
    """End this process when its parent has ended, so that a killed launcher leaves no orphan."""
    launcher = os.getppid()

    def watch() -> None:
        while os.getppid() == launcher:
            time.sleep(1)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
