"""Run a mode whose steps take half a second while a file exists:  slow_run.py FILE MODE [settings]"""

import sys
import time
from pathlib import Path

from app.config.command_line import load_config
from app.modes import load_mode
from app.modes.mode import Mode
from app.run import work


def slow_work(config, mode: str, file: str) -> int:
    """Do the work of `mode`, slowly while `file` exists."""
    kind = load_mode(mode)
    unscale = kind.unscale

    def slow_unscale(self: Mode) -> None:
        if Path(file).exists():
            time.sleep(0.5)
        unscale(self)

    kind.unscale = slow_unscale
    return work(config, mode)


if __name__ == "__main__":
    file, mode = sys.argv[1:3]
    arguments = load_config(sys.argv[3:]), mode, file
    sys.exit(load_mode(mode).launcher.launch(slow_work, arguments, None))
