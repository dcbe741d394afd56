"""What the advice of a report is based on."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..config.schema import SETTINGS, Config, TrainConfig
from ..config.shipped import E5_SMALL, e5_file
from ..data.dataset import Split
from ..data.report import is_missing
from ..report.advice import Evidence, HeldOut
from ..report.advised_commands import AdvisedCommands, CallsOfPython
from ..report.logits_file import SplitLogits
from ..tasks.decision_file import FITTED_ON
from ..tasks.task import Task
from .build import Components

# Models to try where this one is no better than a linear one: the first that is another one
OTHER_MODELS = ("hfl/chinese-macbert-base", "hfl/chinese-roberta-wwm-ext")
OF_ONE_RUN = ("output.dir", "output.name", "output.resume")


def evidence_of(
    components: Components,
    split: str,
    metrics: dict,
    split_logits: dict[str, SplitLogits],
    evaluations: list[dict],
) -> Evidence:
    """Return what the advice follows from. `metrics` are on the rows of `split`, `split_logits` the logits by
    split, `evaluations` those of the run."""
    dataset = components.dataset
    task = components.task
    train = components.config.train
    dev_evaluations = []
    if is_loss_of_dev(train, dataset.splits["train"]):
        dev_evaluations = [line for line in evaluations if line["split"] == "dev"]
    train_losses = [line["train_loss"] for line in evaluations if "train_loss" in line]
    held_out = None
    # The thresholds of several labels a row were chosen on dev rows
    if split != "train" and task.has_labels and task.answer_column == "label":
        held_out = decisions_on(task, list(split_logits.values()))
    dev_rows = 0
    if FITTED_ON in dataset.splits:
        dev_rows = len(dataset.splits[FITTED_ON])
    return Evidence(
        metrics=metrics,
        history=dev_evaluations,
        train_losses=train_losses,
        learning_rate=train.learning_rate,
        held_out=held_out,
        class_rows=rows_of_classes(dataset.statistics["train"]),
        dev_rows=dev_rows,
        commands=advised_commands(components.config),
        longer=longer_training(components.config),
        instead={"model.name": other_model(components.config)},
        epochs=train.epochs,
        steps_per_epoch=components.plan.steps_per_epoch,
    )


def rows_of_classes(statistics: Mapping[str, Any]) -> dict[str, int]:
    """Return how many rows each class has, by the statistics of a split; a label that is a missing value is
    left out, as no more rows of it are wanted."""
    class_rows = {}
    for name, num_rows in statistics.get("classes", {}).items():
        if not is_missing(name):
            class_rows[name] = num_rows
    return class_rows


def is_loss_of_dev(train: TrainConfig, train_rows: Split) -> bool:
    """Return whether the loss of training is the one that is measured on dev, so that they can be compared: a
    cross entropy (or a squared error) of labels, without class weights."""
    if train_rows.targets is not None:
        return False
    return train.loss == "cross_entropy" and train.class_weights is None


def decisions_on(task: Task, splits: list[SplitLogits]) -> HeldOut:
    """Return how sure the calibrated decisions on the rows of some splits are, and which are right."""
    confidence = []
    correct = []
    for rows in splits:
        scores = task.score(rows.labels, rows.logits, calibrated=True)
        confidence.append(scores.confidence)
        correct.append(scores.correct)
    return HeldOut(np.concatenate(confidence), np.concatenate(correct))


def advised_commands(config: Config) -> AdvisedCommands:
    """Return how a run can be trained again: by commands, or from the Python program that has its rows."""
    if config.is_of_program:
        return CallsOfPython()
    return AdvisedCommands(given_settings(config))


def given_settings(config: Config) -> dict[str, Any]:
    """Return the settings that were given for a run, by dotted names, but for those of its folder and of the
    verb that trains it: another run has its own."""
    given = {}
    for name in SETTINGS:
        group, _dot, key = name.partition(".")
        if name in config.given and name not in OF_ONE_RUN:
            given[name] = getattr(getattr(config, group), key)
    return given


def longer_training(config: Config) -> dict[str, Any]:
    """Return the settings that train twice as long."""
    settings = {"train.epochs": 2 * config.train.epochs}
    if config.train.max_steps:
        settings["train.max_steps"] = 2 * config.train.max_steps
    return settings


def other_model(config: Config) -> str:
    """Return the name of a model to try instead of that of the settings."""
    if config.model.has_random_weights and e5_file():
        return E5_SMALL
    return next(name for name in OTHER_MODELS if name != config.model.name)
