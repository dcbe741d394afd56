"""The environment in which a new process finds this package."""

from __future__ import annotations

import os
from pathlib import Path


def child_environment() -> dict[str, str]:
    """Return the environment of this process, so changed that `python -m app` is this package in any folder.

    PYTHONSAFEPATH keeps the working folder off the module path: a folder `app` in it would be run instead.
    """
    root = str(Path(__file__).resolve().parents[3])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
