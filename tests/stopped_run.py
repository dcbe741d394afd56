"""Runs that are stopped after a step, as by SIGTERM, or fail in it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from safetensors.numpy import load_file

from app.config.command_line import load_config
from app.config.schema import Config
from app.run import work
from app.training.train import Run


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def crash() -> None:
    raise RuntimeError("the machine has failed")


def stop_after(step: int, config: Config) -> None:
    """Train in this process until SIGTERM stops the run after `step`."""
    after_step = Run.after_step

    def stop(self, state, log):
        if state.step == step:
            terminate()
        after_step(self, state, log)

    try:
        Run.after_step = stop
        assert work(config, "single") == 128 + signal.SIGTERM
    finally:
        Run.after_step = after_step


def check_resumed(words: list[str], folder: Path, run: Path) -> None:
    """Stop the run of a command line, which writes into `folder`, after step 4, and resume it: it must end
    with the weights and the report of `run`, which was not stopped."""
    stop_after(4, load_config(words))
    assert work(load_config([*words, "--output.resume", "auto"]), "single") == 0
    wanted, found = (load_file(one / "model.safetensors") for one in (run, folder))
    assert all((wanted[name] == found[name]).all() for name in wanted)
    assert (folder / "report.json").read_bytes() == (run / "report.json").read_bytes()
