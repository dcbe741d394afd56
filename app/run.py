"""What every entry script calls: the command line, then one job in one mode."""

from __future__ import annotations

import sys

from app.command_line import load_config
from app.errors import InputError


def main(mode: str, description: str, argv: list[str] | None = None) -> int:
    """Run one job in a mode from the command line; return the exit status: 0, or 2 for bad input.

    torch is imported only after the command line has been read, so that `--help` and its errors are quick.
    """
    try:
        config = load_config(argv, f"run_{mode}.py", description)
        from app.job import Job
        from app.strategies import load_strategy

        with load_strategy(mode)(config.train) as strategy:
            Job(config, mode, strategy).run()
    except InputError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0
