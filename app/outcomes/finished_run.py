"""The folder of a finished run -> its outcome, and the logits that its report is made of."""

from pathlib import Path

from ..errors import InputError
from ..evaluation.logits_file import LOGITS, RunLogits, SplitLogits, read_logits
from . import open_outcome
from .labelled_outcome import LabelledOutcome

# A report is about the first of these that the run has
SPLITS = ("test", "dev", "train")


def read_run(run: Path) -> tuple[LabelledOutcome, dict[str, SplitLogits]]:
    """Return the outcome of a run, which decides as the run does, and its logits by split. Raises InputError
    where there are none, and for damaged files."""
    path = run / LOGITS
    if not path.exists():
        raise InputError(f"{run}: a finished run with {LOGITS} is needed; train it again with this version")
    logits: RunLogits = read_logits(path)
    outcome = open_outcome(logits.task, logits.label_names)
    outcome.read_fitted(run)
    return outcome, logits.splits


def split_of_report(splits: dict[str, SplitLogits]) -> str:
    """Return the name of the split that the report of a run is about."""
    return next(name for name in SPLITS if name in splits)
