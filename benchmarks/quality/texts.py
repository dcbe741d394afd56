"""The rows of a job as texts and class ids, and what is left out to choose settings of the baselines."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import Dataset, open_dataset
from app.errors import InputError

HELD_OUT = 0.1  # of the training rows, to choose settings where a job has no dev rows


def open_job(job: str) -> tuple[DataConfig, Dataset]:
    """Return the settings and the dataset of a job: `sample`, a YAML file of settings, or a labelled file.

    Where a job has a dev file and no test rows, the dev rows are the test rows: nothing is chosen on them
    then. Raises InputError where it has neither.
    """
    arguments = ["--data.train", job]
    if job == "sample":
        arguments = []
    elif Path(job).suffix in (".yaml", ".yml"):
        arguments = ["--config", job]
    settings = replace(load_config(arguments).data, cache_dir=load_config([]).data.cache_dir)
    if settings.task != "single_label":
        raise InputError(f"{job}: a job with one label a row is needed, found data.task {settings.task}")
    if settings.test is None and settings.test_size == 0 and settings.dev is not None:
        settings = replace(settings, test=settings.dev, dev=None, dev_size=0)
    dataset = open_dataset(settings)
    if "test" not in dataset.splits:
        raise InputError(
            f"{job}: a job with test rows or a dev file is needed; give data.test, data.test_size or data.dev"
        )
    return settings, dataset


def rows_by_part(dataset: Dataset) -> dict[str, pd.DataFrame]:
    """Return the rows of `train`, `choose` and `test`, each a `text` and the class id of its `label`; both
    texts of a pair are joined by a tab.

    `choose` are the dev rows; without them, every tenth of the training rows in random order, which `train`
    then lacks. Settings are chosen on them, never on test rows.
    """
    rows = {}
    for name, split in dataset.splits.items():
        texts = split.table.texts(split.rows)
        if split.table.has_pairs:
            texts = list(map("\t".join, texts))
        rows[name] = pd.DataFrame({"text": texts, "label": np.asarray(split.labels)})
    if "dev" in rows:
        return {"train": rows["train"], "choose": rows["dev"], "test": rows["test"]}
    train = rows["train"].iloc[np.random.default_rng(0).permutation(len(rows["train"]))]
    held_out = max(1, round(HELD_OUT * len(train)))
    return {"train": train[held_out:], "choose": train[:held_out], "test": rows["test"]}
