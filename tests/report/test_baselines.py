"""Baselines of one label a row and of several: python -m pytest tests/report/test_baselines.py"""

import json

import numpy as np
import pytest

from app.report.baselines import Sample, baselines, sample
from app.tasks import open_task
from tests.report.rows_case import random_rows
from tests.tiny import open_tiny


def baselines_of(name: str, num_labels: int, train: Sample, dev: Sample | None, report: Sample) -> dict:
    names = [f"类别{label}" for label in range(num_labels)]
    return baselines(open_task(name, names), train, dev, report)


def test_baselines_learn_what_can_be_learned_and_are_repeatable(tmp_path):
    dataset, _, _ = open_tiny(tmp_path)
    train, test = (sample(dataset.splits[name]) for name in ("train", "test"))
    found = baselines_of("single_label", 3, train, None, test)
    assert list(found) == ["majority class", "TF-IDF + logistic regression"]
    assert found["majority class"]["accuracy"] == pytest.approx(1 / 3)
    assert found["majority class"]["macro_f1"] == pytest.approx(0.5 / 3)
    assert found["TF-IDF + logistic regression"]["accuracy"] > 0.9
    assert json.dumps(found) == json.dumps(baselines_of("single_label", 3, train, None, test))


def test_baselines_of_many_classes_and_of_a_single_one_work():
    texts = [chr(0x4E00 + label) * 3 for label in range(60)], np.arange(60)
    found = baselines_of("single_label", 60, texts, None, texts)
    assert found["TF-IDF + naive Bayes"]["accuracy"] > 0.9
    same = ["好"] * 5, np.zeros(5, int)
    assert baselines_of("single_label", 2, same, None, same)["majority class"]["accuracy"] == 1


def test_baselines_of_several_labels_choose_thresholds_on_dev():
    labels, _ = random_rows("multi_label", 300, 4)
    # A character for each label of a row
    texts = ["的" + "".join(np.array(list("甲乙丙丁"))[row > 0]) for row in labels]
    train, dev, test = ((texts[at], labels[at]) for at in (slice(200), slice(200, 250), slice(250, 300)))
    found = baselines_of("multi_label", 4, train, dev, test)
    assert found["TF-IDF + logistic regression"]["micro_f1"] == 1
    assert found["TF-IDF + logistic regression"]["intervals"]["micro_f1"] == [1, 1]
    assert found["most frequent set"]["micro_f1"] == 0, "the most frequent set is the empty one"
    assert found["most frequent set"]["subset_accuracy"] == (test[1].sum(axis=1) == 0).mean()
    without = baselines_of("multi_label", 4, train, None, test)
    assert without["TF-IDF + logistic regression"]["micro_f1"] > 0.9


def test_several_labels_have_one_logistic_regression_each_however_many(monkeypatch):
    labels = np.eye(60, dtype=np.uint8)[np.arange(600) % 60]
    rows = [chr(0x4E00 + at % 60) * 3 for at in range(600)], labels
    found = baselines_of("multi_label", 60, rows, rows, rows)
    assert found["TF-IDF + logistic regression"]["micro_f1"] == 1
    monkeypatch.setattr("app.report.baselines.MAX_LABELS_X_VALUES", 60 * 600)
    found = baselines_of("multi_label", 60, rows, rows, rows)
    assert found["TF-IDF + logistic regression"]["micro_f1"] < 1, "every second row has half of the labels"
