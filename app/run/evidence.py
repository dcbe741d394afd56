"""A finished run -> what its advice is made of: figures, decisions, and the commands to try next."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from ..checkpoints.run_history import CONFIG
from ..config.schema import Config
from ..config.shipped import PROGRAM
from ..evaluation.logits_file import logits_of
from ..evaluation.measures.selective import RowDecisions
from ..outcomes.advice import Evidence, with_setting
from ..outcomes.outcome import FITTED_ON
from ..strategies import load_strategy
from ..strategies.launchers import Horovodrun, Torchrun
from .assembly import Components
from .log.metrics_file import METRICS, read_evaluations

# Of the user's command: a repeated run needs another folder, another model other settings
OWN_FOLDER = ("--output.dir", "--output.resume", "--output.overwrite", "--resume")
MODEL = ("--config", "--model.")
# With these the loss of training is that of dev
PLAIN = {
    "loss": "cross_entropy",
    "label_smoothing": 0,
    "class_weights": "none",
    "positive_weights": "none",
    "sampling": "all",
}


def evidence_of(
    folder: Path,
    config: Config,
    components: Components,
    start: str,
    split: str,
    metrics: dict,
    results: dict[str, np.ndarray],
) -> Evidence:
    """Return what is known of a run that was started by `start`, without settings. `results` (num_rows, any)
    are those of the split of the report and of dev, by name."""
    dataset, train = components.dataset, config.train
    history = [line for line in read_evaluations(folder / METRICS, ("loss",)) if line.get("split") == "dev"]
    if any(getattr(train, name) != value for name, value in PLAIN.items()):
        history = [{key: value for key, value in line.items() if key != "train_loss"} for line in history]
    words = partial(words_of_user, sys.argv, folder)
    steps = train.max_steps
    longer = ("--train.max_steps", 2 * steps) if steps else ("--train.epochs", 2 * train.epochs)
    return Evidence(
        metrics=metrics,
        history=history,
        decisions=decisions_of(components, split, results),
        class_rows=dataset.statistics["train"].get("classes", {}),
        dev_rows=len(dataset.splits[FITTED_ON]) if FITTED_ON in dataset.splits else 0,
        is_pretrained=config.model.name is not None,
        max_length=config.data.max_length,
        folder=shlex.quote(str(folder)),
        again=joined(start, words()),
        again_longer=with_setting(joined(start, words()), *longer),
        again_pretrained=joined(start, words(OWN_FOLDER + MODEL)),
        verb=joined(PROGRAM, "{}", words().replace("{", "{{").replace("}", "}}")),
    )


def decisions_of(components: Components, split: str, results: dict[str, np.ndarray]) -> RowDecisions | None:
    """Return the decisions on the rows that were not trained on; None where there are none."""
    outcome = components.outcome
    if split == "train" or not (outcome.has_labels and outcome.has_confidence):
        return None
    decisions = [
        outcome.held_out_decisions(logits_of(components.loaders[name].split, results[name]))
        for name in results
    ]
    return RowDecisions(
        np.concatenate([part.confidence for part in decisions]),
        np.concatenate([part.correct for part in decisions]),
    )


def words_of_user(argv: list[str], folder: Path, left_out: tuple[str, ...] = OWN_FOLDER) -> str:
    """Return the settings of a run's command line, but not those that begin as `left_out`; of a run that
    another program started, the run's own file of settings."""
    name = Path(argv[0]).name
    if not (name.startswith("run_") and name.endswith(".py")):
        return shlex.join(["--config", str(folder / CONFIG)])
    kept, words = [], iter(argv[1:])
    for word in words:
        setting = [word] if "=" in word else [word, *islice(words, 1)]
        kept += [] if word.startswith(left_out) else setting
    return shlex.join(kept)


def joined(*parts: str) -> str:
    """Return the parts of a command that are there."""
    return " ".join(filter(None, parts))


def start_of(mode: str, processes: int) -> str:
    """Return how a person starts a mode, without settings."""
    launcher, script = load_strategy(mode).launcher, f"run_{mode}.py"
    if isinstance(launcher, Torchrun):
        return f"torchrun --nproc_per_node={processes} {script}"
    if isinstance(launcher, Horovodrun):
        return f"horovodrun -np {processes} -H localhost:{processes} --gloo python {script}"
    return f"python {script}"
