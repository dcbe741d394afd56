"""Run a mode whose steps are disturbed:  disturbed_run.py fail|FILE MODE [settings]

With `fail` rank 1 raises in step 12; else each step takes half a second while FILE exists.
"""

import sys
import time
from pathlib import Path

from app.config.command_line import load_config
from app.modes import load_mode
from app.modes.group import launch
from app.modes.mode import Mode
from app.run import work


def disturbed_work(config, mode: str, what: str) -> int:
    """Do the work of `mode`."""
    kind = load_mode(mode)
    step, seen = kind.step, []

    def disturbed(self: Mode, max_norm: float):
        seen.append(1)
        if what == "fail" and self.group.rank == 1 and len(seen) == 12:
            raise RuntimeError("rank 1 gives up")
        if Path(what).exists():
            time.sleep(0.5)
        return step(self, max_norm)

    kind.step = disturbed
    return work(config, mode)


if __name__ == "__main__":
    what, mode = sys.argv[1:3]
    arguments = load_config(sys.argv[3:]), mode, what
    sys.exit(launch(load_mode(mode).launcher, disturbed_work, arguments, 2))
