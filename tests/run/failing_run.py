"""Run a mode whose rank 1 raises at step 12:  failing_run.py MODE [settings]"""

import sys

from app.config.command_line import load_config
from app.run.entry import work
from app.strategies import load_strategy
from app.strategies.strategy import Strategy


def failing_work(config, mode: str) -> int:
    """Do the work of `mode`, with a step that fails on rank 1."""
    strategy = load_strategy(mode)
    unscale, seen = strategy.unscale, []

    def failing_unscale(self: Strategy) -> None:
        seen.append(1)
        if self.group.rank == 1 and len(seen) == 12:
            raise RuntimeError("rank 1 gives up")
        unscale(self)

    strategy.unscale = failing_unscale
    return work(config, mode)


if __name__ == "__main__":
    mode = sys.argv[1]
    sys.exit(
        load_strategy(mode).launcher.launch(
            failing_work, (load_config(sys.argv[2:]), mode), 2 if mode == "mp" else None
        )
    )
