"""The rows of a job as texts and class ids, and what is left out to choose settings of the baselines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.config.shipped import RANDOM_CONFIG
from app.data.dataset import Dataset, open_dataset
from app.errors import InputError

# Of the training rows, to choose settings where a job has no dev rows
HELD_OUT = 0.1


@dataclass(frozen=True)
class Rows:
    """The texts of a split and their class ids, (num_rows,) int64."""

    texts: list[str]
    labels: np.ndarray

    def part(self, index: np.ndarray) -> Rows:
        """Return the rows at `index`, (any,) int64."""
        return Rows([self.texts[i] for i in index], self.labels[index])


def data_settings(job: str) -> DataConfig:
    """Return the data settings of a job: `sample`, a YAML file of settings, or a file with labelled rows."""
    if job == "sample":
        arguments = []
    elif Path(job).suffix in (".yaml", ".yml"):
        arguments = ["--config", job]
    else:
        arguments = ["--config", str(RANDOM_CONFIG), "--data.train", job]
    settings = load_config(arguments).data
    if settings.task != "single_label":
        raise InputError(f"{job}: a job with one label a row is needed, found data.task {settings.task}")
    return replace(settings, cache_dir=load_config([]).data.cache_dir)


def rows_of(dataset: Dataset, name: str) -> Rows:
    """Return the rows of a split; both texts of a pair are joined by a tab."""
    split = dataset.splits[name]
    texts = [split.table.text(row) for row in split.rows]
    if split.table.has_pairs:
        texts = [f"{text}\t{split.table.pair(row)}" for text, row in zip(texts, split.rows, strict=True)]
    return Rows(texts, np.asarray(split.labels))


def open_job(job: str) -> tuple[DataConfig, Dataset]:
    """Return the settings and the dataset of a job; raises InputError where it has no test rows.

    Where a job has a dev file and no test rows, the dev rows are the test rows: nothing is chosen on them
    then.
    """
    settings = data_settings(job)
    if settings.test is None and settings.test_size == 0 and settings.dev is not None:
        settings = replace(settings, test=settings.dev, dev=None, dev_size=0)
    dataset = open_dataset(settings)
    if "test" not in dataset.splits:
        raise InputError(
            f"{job}: a job with test rows or a dev file is needed; give data.test, data.test_size or data.dev"
        )
    return settings, dataset


def rows_by_part(dataset: Dataset) -> dict[str, Rows]:
    """Return the rows of `train`, `choose` and `test`.

    `choose` are the dev rows; without them, every tenth of the training rows in random order, which `train`
    then lacks. Settings are chosen on them, never on test rows.
    """
    rows = {name: rows_of(dataset, name) for name in dataset.splits}
    train = rows["train"]
    if "dev" in rows:
        return {"train": train, "choose": rows["dev"], "test": rows["test"]}
    order = np.random.default_rng(0).permutation(len(train.texts))
    held_out = max(1, round(HELD_OUT * len(order)))
    parts = {"train": train.part(order[held_out:]), "choose": train.part(order[:held_out])}
    return {**parts, "test": rows["test"]}
