"""A run that is stopped after a step, as by SIGTERM."""

from __future__ import annotations

import signal

from app.config.schema import Config
from app.run.after_step import AfterStep
from app.run.entry import work


def stop_after(step: int, config: Config) -> None:
    """Train in this process until SIGTERM stops the run after `step`."""
    call = AfterStep.__call__

    def stop(self, state, log):
        call(self, state, log)
        if state.step == step:
            self.stopped_by, state.stop = signal.SIGTERM, True

    try:
        AfterStep.__call__ = stop
        assert work(config, "single") == 128 + signal.SIGTERM
    finally:
        AfterStep.__call__ = call
