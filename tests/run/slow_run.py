"""Run a mode whose steps take half a second while a file exists:  slow_run.py FILE MODE [settings]"""

import sys
import time
from pathlib import Path

from app.config.command_line import load_config
from app.run.entry import work
from app.strategies import load_strategy
from app.strategies.strategy import Strategy


def slow_work(config, mode: str, file: str) -> int:
    """Do the work of `mode`, slowly while `file` exists."""
    strategy = load_strategy(mode)
    unscale = strategy.unscale

    def slow_unscale(self: Strategy) -> None:
        if Path(file).exists():
            time.sleep(0.5)
        unscale(self)

    strategy.unscale = slow_unscale
    return work(config, mode)


if __name__ == "__main__":
    file, mode = sys.argv[1:3]
    arguments = load_config(sys.argv[3:]), mode, file
    sys.exit(load_strategy(mode).launcher.launch(slow_work, arguments, None))
