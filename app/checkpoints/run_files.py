"""The files of a run folder: their names, and what they say of the run."""

import os
from pathlib import Path

from ..report.logits_file import LOGITS
from ..runtime.disk import whole_file
from ..tasks.decision_file import DECISION

CHECKPOINTS = Path("checkpoints")
LOCK = ".lock"
STATES = "state"
# This file has the weights of the best checkpoint so far
MODEL = "model.safetensors"
# A run with LoRA keeps what it trained here, in the best checkpoint so far; peft reads this file.
ADAPTER = "adapter/adapter_model.safetensors"
# It is written last: a folder that has it is a finished run
REPORT = "report.json"
TEXT = "report.txt"
PREDICTIONS = "predictions.csv"
PAGE = "report.html"
CARD = "README.md"
# They are put aside in this order; the card is one of them, as it says what the report says
REPORT_FILES = (LOGITS, TEXT, PREDICTIONS, PAGE, REPORT, CARD)
CONFIG = "config.yaml"
HISTORY = "run_history.json"
SKIPPED = "skipped_rows.csv"


def best_weights(folder: Path, has_adapter: bool) -> Path:
    """Return the file with the best weights so far of a run, which is one with LoRA if it `has_adapter`."""
    return folder / (ADAPTER if has_adapter else MODEL)


def holds_run(folder: Path) -> bool:
    return os.path.isfile(folder / HISTORY)  # noqa: PTH113 - also in a folder that may not be entered


def is_finished(folder: Path) -> bool:
    return (folder / REPORT).exists()


def saved_states(folder: Path) -> list[Path]:
    """Return the folders of the training states of a run, the newest first."""
    states = []
    for path in (folder / STATES).glob("step-*"):
        number = path.name.removeprefix("step-")
        if number.isdecimal():
            states.append(path)
    return sorted(states, reverse=True)


def step_of_state(state: Path) -> int:
    """Return the step of a training state, by the name of its folder."""
    return int(state.name.removeprefix("step-"))


def put_reports_aside(folder: Path, step: int) -> None:
    """Put the report of a finished run aside, under names with its last step, before the run is changed. Its
    decision is copied: it stays with the best model for as long as that is the best."""
    decision = folder / DECISION
    if is_finished(folder) and decision.exists():
        with whole_file(name_with_step(decision, step)) as copy:
            copy.write(decision.read_bytes())
    for name in REPORT_FILES:
        path = folder / name
        if path.exists():
            path.rename(name_with_step(path, step))


def name_with_step(path: Path, step: int) -> Path:
    return path.with_name(f"{path.stem}.step-{step}{path.suffix}")
