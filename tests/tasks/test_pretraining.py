"""Masked words from a file of texts to a checkpoint: python -m pytest tests/tasks/test_pretraining.py"""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from app.batching.loader import Batch
from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.run import work
from tests.multi_label_runs import arguments, task_of
from tests.tiny import write_tiny

MASKED = "masked_language_modelling"


@pytest.fixture
def trained(run_of) -> Path:
    return run_of(MASKED)


def test_perplexity_falls_and_is_reported_before_and_after(trained):
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert report["perplexity"] < report["before_training"]["perplexity"] / 50
    assert report["loss"] == pytest.approx(np.log(report["perplexity"]))
    text = (trained / "report.txt").read_text(encoding="utf-8")
    assert "before" in text
    said = f"{report['targets']:,} masked tokens of {report['rows']:,} rows, the same before and after"
    assert said in text
    first = json.loads((trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["step"] == 0
    assert first["perplexity"] == report["before_training"]["perplexity"]
    assert not (trained / "predictions.csv").exists()


def test_training_goes_on_from_the_checkpoint_at_the_same_perplexity(trained, tmp_path):
    before = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    settings = {"data__dev_size": 0.1, "data__test_size": 0.1, "model__name": trained, "data__task": MASKED}
    settings |= {"train__max_steps": 1, "train__seed": 9}
    words = arguments(trained.parent / "texts.txt", tmp_path / "again", sizes={}, **settings)
    assert work(load_config(["--config", "configs/pretrain.yaml", *words]), "single") == 0
    after = json.loads((tmp_path / "again" / "report.json").read_text(encoding="utf-8"))
    assert after["before_training"]["perplexity"] == pytest.approx(before["perplexity"], rel=1e-5)


def test_a_labelled_file_is_read_without_its_labels(tmp_path):
    path = write_tiny(tmp_path / "rows.tsv")
    dataset = open_dataset(DataConfig(task=MASKED, train=str(path), cache_dir=str(tmp_path / "cache")))
    assert dataset.label_names == []
    assert dataset.splits["train"].table.text(0)


def test_results_of_rows_add_up_to_the_metrics(trained):
    task = task_of(trained.parent / "texts.txt", MASKED)
    outputs = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0]])
    batch = Batch({}, torch.tensor([0, 1, 0]), torch.tensor([4, 9, 2]), torch.tensor([0, 0, 2]))
    results = task.row_results(outputs, batch)
    assert results[:, 1:].tolist() == [[2, 2], [0, 0], [1, 0]]
    assert float(results[:, 0].sum()) == pytest.approx(float(task.loss(outputs, batch.labels)), rel=1e-6)
    metrics = task.measure(results.numpy())
    assert metrics["targets"] == 3
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["loss"]))
