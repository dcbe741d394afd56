"""Run a mode whose steps are disturbed:  disturbed_run.py fail|FILE MODE [settings]

With `fail` rank 1 raises in step 12; else each step takes half a second while FILE exists.
"""

import sys
import time
from pathlib import Path

from app.config.command_line import load_config
from app.modes import load_mode
from app.modes.mode import Mode
from app.run import work


def disturbed_work(config, mode: str, what: str) -> int:
    """Do the work of `mode`."""
    kind = load_mode(mode)
    unscale, seen = kind.unscale, []

    def disturbed(self: Mode) -> None:
        seen.append(1)
        if what == "fail" and self.group.rank == 1 and len(seen) == 12:
            raise RuntimeError("rank 1 gives up")
        if Path(what).exists():
            time.sleep(0.5)
        unscale(self)

    kind.unscale = disturbed
    return work(config, mode)


if __name__ == "__main__":
    what, mode = sys.argv[1:3]
    arguments = load_config(sys.argv[3:]), mode, what
    sys.exit(load_mode(mode).launcher.launch(disturbed_work, arguments, 2 if mode == "mp" else None))
