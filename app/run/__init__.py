"""One run, from the command line to the report."""

from .entry import main

__all__ = ["main"]
