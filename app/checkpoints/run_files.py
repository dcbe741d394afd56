"""The files of a run folder by their names, and the report of a run that is trained for longer."""

from pathlib import Path

from ..report.logits_file import LOGITS
from ..tasks.task import DECISION
from .run_history import CARD, last_time

# The weights of the best checkpoint so far
MODEL = "model.safetensors"
# Written last: a folder that has it is a finished run
REPORT = "report.json"
TEXT, PREDICTIONS, PAGE = "report.txt", "predictions.csv", "report.html"
# In the order in which they are written and put aside; the card says what the report says
REPORT_FILES = (LOGITS, DECISION, TEXT, PREDICTIONS, PAGE, REPORT, CARD)
STATES = "state"
# A run with LoRA keeps what it trained here, in the best checkpoint so far; peft reads this file.
ADAPTER = "adapter/adapter_model.safetensors"


def finished_at(folder: Path) -> float | None:
    """Return when a run wrote its last report, in seconds since 1970, or None; also of one that trains on
    since. Its history says so, and the time of the file where that is damaged."""
    stem, suffix = REPORT.split(".")
    times = [path.stat().st_mtime for path in folder.glob(f"{stem}*.{suffix}")]
    return (last_time(folder, "finished") or max(times)) if times else None


def keep_reports(folder: Path, step: int) -> None:
    """Put the report of a finished run aside, under names with its last step, before the run is changed."""
    for path in (folder / name for name in REPORT_FILES):
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.step-{step}{path.suffix}"))
