"""Imports of large libraries, without the garbage collector in between."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quick_imports(module: str) -> Iterator[None]:
    """Switch the garbage collector off while `module` is imported for the first time, and with it all that it
    imports.

    torch and transformers make some 600,000 objects that stay until the process ends. The collector would
    look at them over and over, which is an eighth of the time that these imports take, and would find nothing
    to free. So it is off, and afterwards it ignores what is there (`gc.freeze`). For programs of this project
    only: what a program of a user has made before would never be freed.
    """
    if module in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
