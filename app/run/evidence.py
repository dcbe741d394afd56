"""A finished run -> what its advice is made of: figures, decisions, and the commands to try next."""

from __future__ import annotations

import shlex
import sys
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from ..checkpoints.run_history import CONFIG
from ..config.schema import Config, DataConfig
from ..config.shipped import E5_SMALL, PROGRAM, e5_file
from ..evaluation.logits_file import logits_of
from ..evaluation.measures.selective import RowDecisions
from ..model.recipe import fewest_steps
from ..outcomes.advice import Evidence, with_setting
from ..outcomes.outcome import FITTED_ON
from ..strategies import load_strategy
from ..strategies.launchers import Horovodrun, Torchrun
from ..training.loop import planned_steps
from .assembly import Components
from .log.metrics_file import METRICS, read_evaluations

# Of the user's command: a repeated run needs another folder, and its launcher adds its own words
OWN_FOLDER = ("--output.dir", "--output.resume", "--resume", "--local")
# What is chosen for random weights
OF_WEIGHTS = ("--model.", "--train.learning_rate", "--train.head_learning_rate")
# What a verb that trains several runs sets itself
OF_RUNS = ("--nprocs", "--train.nprocs", "--data.fold", "--data.train_share")
# To try where the model is no better than a linear one: the first that was not it
OTHERS = ("hfl/chinese-macbert-base", "hfl/chinese-roberta-wwm-ext")
# Tokens that pretrained models read
MAX_TOKENS = 512
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
    words = partial(words_of_user, sys.argv, folder, config.output.dir is not None)
    again, most = joined(start, words()), train.max_steps
    longer = ("--train.max_steps", 2 * most) if most else ("--train.epochs", 2 * train.epochs)
    enough = with_setting(
        with_setting(again, "--train.max_steps", "null") if most else again, "--train.epochs", "auto"
    )
    classes = dataset.statistics["train"].get("classes", {})
    # A head that is fitted needs no steps
    steps = planned_steps(components.plan, train)
    is_short = config.model.head != "linear" and steps < fewest_steps(len(classes))
    other = next(name for name in OTHERS if name != config.model.name)
    positions = getattr(components.model.model.config, "max_position_embeddings", MAX_TOKENS)
    has_pairs = dataset.files["train"].has_pairs
    read_more = reading_more(config.data, has_pairs, min(positions, MAX_TOKENS))
    return Evidence(
        metrics=metrics,
        history=history,
        decisions=decisions_of(components, split, results),
        class_rows=classes,
        dev_rows=len(dataset.splits[FITTED_ON]) if FITTED_ON in dataset.splits else 0,
        is_pretrained=config.model.name is not None,
        folder=shlex.quote(str(folder)),
        again_longer=with_setting(again, *longer),
        again_enough=enough if is_short else None,
        again_other_model=with_setting(again, "--model.name", other),
        again_pretrained=joined(start, with_pretrained(words(OF_WEIGHTS))),
        again_reading_more=with_setting(again, *read_more) if read_more else None,
        verb=joined(PROGRAM, "{}", words(OF_RUNS).replace("{", "{{").replace("}", "}}")),
    )


def reading_more(data: DataConfig, has_pairs: bool, most: int) -> tuple[str, object] | None:
    """Return the setting with which more of a long text is read, for a model that reads `most` tokens at
    once; None where there is none."""
    if data.long == "windows":
        return "--data.max_windows", 2 * data.max_windows
    if 2 * data.max_length <= most:
        return "--data.max_length", 2 * data.max_length
    return None if has_pairs else ("--data.long", "windows")


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


def words_of_user(
    argv: list[str], folder: Path, has_folder: bool = False, left_out: tuple[str, ...] = ()
) -> str:
    """Return the settings of a run's command line, but not those that begin as `left_out`, nor the folder of
    the run, also where a file of settings names it (`has_folder`); of a run that another program started, the
    run's own file of settings."""
    name = Path(argv[0]).name
    is_script = name.startswith("run_") and name.endswith(".py")
    kept, words = [], iter(argv[1:] if is_script else ["--config", str(folder / CONFIG)])
    for word in words:
        setting = [word] if "=" in word else [word, *islice(words, 1)]
        kept += [] if word.startswith(OWN_FOLDER + left_out) else setting
    has_file = any(word.startswith("--config") for word in kept)
    return shlex.join(kept + ["--output.dir", "null"] * (has_folder and has_file))


def with_pretrained(words: str) -> str:
    """Return the settings of a run from random weights as those of one from a pretrained model. Its file of
    settings stays, because it may name the data; what that says of random weights is replaced."""
    name = OTHERS[0] if e5_file() is None else E5_SMALL
    replaced = ["--model.config", "{}", "--train.learning_rate", "null"] if "--config" in words else []
    return joined(words, shlex.join(["--model.name", name, *replaced]))


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
