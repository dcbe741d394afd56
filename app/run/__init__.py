"""One run, from the command line to the report."""

from app.run.entry import main

__all__ = ["main"]
