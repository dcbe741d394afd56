"""One run, from the command line to the report."""

import signal
import sys

from ..errors import missing_package


def main(mode: str, description: str, argv: list[str] | None = None) -> int:
    """Run one job in a mode from the command line; return the exit status, 130 after Ctrl-C."""
    try:
        from .entry import main as run

        return run(mode, description, argv)
    except ModuleNotFoundError as error:
        print(missing_package(error), file=sys.stderr)  # noqa: T201
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)  # noqa: T201
        return 128 + signal.SIGINT
