"""A program that has a process group of torch.distributed of its own, and uses this package in one of its
processes: that process is not a rank of ours, and the others know nothing of it."""

import time
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist

from app import TextClassifier, load
from tests.ranks import SMALL, fork
from tests.tiny import tiny_lines

SECONDS = 100  # the other process waits so long, and does nothing
SETTINGS = {"train.threads": 1, "train.eval_every": 2, "train.best_metric": "loss"}
SETTINGS |= {"train.schedule": "constant", "train.warmup": 0, "model.name": "random"}
SETTINGS |= {"model.config": SMALL}
SHAPE = {"max_length": 16, "batch_size": 16, "precision": "fp32", "device": "cpu"}


def fit_and_classify(folder: Path) -> np.ndarray:
    """Train, so that the best model is not the last one and is loaded again for the report; train it for
    longer; return the probabilities of the fitted models, and of the last one when it is opened."""
    rows = [line.split("\t") for line in tiny_lines(20)]
    texts = [text for text, _label in rows]
    labels = [label for _text, label in rows]
    # The rate wrecks the model after the first evaluation
    words = SHAPE | {"learning_rate": 0.5, "dev_size": 0.3, "output_dir": folder}
    fitted = TextClassifier(settings=SETTINGS, max_steps=4, **words).fit(texts, labels)
    resumed = SETTINGS | {"output.resume": "auto"}
    longer = TextClassifier(settings=resumed, max_steps=6, **words).fit(texts, labels)
    opened = load(folder, device="cpu")
    assert opened.predict(texts[:9]).tolist() == longer.predict(texts[:9]).tolist()
    return np.stack([model.predict_proba(texts[:9]) for model in (fitted.model_, longer.model_, opened)])


def act_alone(acting_rank: int, folder: Path) -> int:
    """Be a process of a program with a group, of which one uses this package while the other does nothing."""
    dist.init_process_group("gloo")
    done = folder / "done"
    if dist.get_rank() == acting_rank:
        np.save(folder / "found.npy", fit_and_classify(folder / "run"))
        done.touch()
    deadline = time.monotonic() + SECONDS
    while not done.exists():
        assert time.monotonic() < deadline, "the other process waits for this one"
        time.sleep(0.1)
    # The group of the program is as it was
    total = torch.ones(1)
    dist.all_reduce(total)
    assert total == 2
    return 0


@pytest.mark.slow
@pytest.mark.parametrize("acting_rank", [0, 1])
def test_one_process_of_a_group_trains_and_classifies_alone(acting_rank, tmp_path):
    fork(act_alone, (acting_rank, tmp_path), 2, tmp_path / "log")
    expected = fit_and_classify(tmp_path / "alone")
    assert np.array_equal(np.load(tmp_path / "found.npy"), expected)
