"""Run a mode whose rank 1 raises at step 12:  failing_run.py MODE [settings]"""

import sys

from app.config.command_line import load_config
from app.modes import load_mode
from app.modes.mode import Mode
from app.run import work


def failing_work(config, mode: str) -> int:
    """Do the work of `mode`, with a step that fails on rank 1."""
    kind = load_mode(mode)
    unscale, seen = kind.unscale, []

    def failing_unscale(self: Mode) -> None:
        seen.append(1)
        if self.group.rank == 1 and len(seen) == 12:
            raise RuntimeError("rank 1 gives up")
        unscale(self)

    kind.unscale = failing_unscale
    return work(config, mode)


if __name__ == "__main__":
    mode = sys.argv[1]
    sys.exit(
        load_mode(mode).launcher.launch(
            failing_work, (load_config(sys.argv[2:]), mode), 2 if mode == "mp" else None
        )
    )
