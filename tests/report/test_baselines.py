"""Baselines of one label a row and of several: python -m pytest tests/report/test_baselines.py"""

import json
import tracemalloc

import numpy as np
import pytest

from app.report.baselines import Texts, baselines, split_texts
from app.tasks import open_task
from tests.report.rows_case import random_rows
from tests.tiny import open_tiny


def baselines_of(train: Texts, report: Texts, num_labels: int) -> dict:
    names = [f"类别{label}" for label in range(num_labels)]
    return baselines(open_task("single_label", names), train, None, report)


def baselines_of_lists(train: Texts, dev: Texts | None, report: Texts) -> dict:
    return baselines(open_task("multi_label", list("甲乙丙丁")), train, dev, report)


def test_baselines_learn_what_can_be_learned_and_are_repeatable(tmp_path):
    dataset, _, _ = open_tiny(tmp_path)
    train, test = (split_texts(dataset.splits[name]) for name in ("train", "test"))
    found = baselines_of(train, test, 3)
    assert list(found) == ["majority class", "TF-IDF + logistic regression"]
    assert found["majority class"]["accuracy"] == pytest.approx(1 / 3)
    assert found["majority class"]["macro_f1"] == pytest.approx(0.5 / 3)
    assert found["TF-IDF + logistic regression"]["accuracy"] > 0.9
    assert json.dumps(found) == json.dumps(baselines_of(train, test, 3))
    split = dataset.splits["test"]
    back = split_texts(split).read(np.arange(len(split))[::-1])
    assert back == [(split.table.text(row),) for row in split.rows[::-1]]


def test_baselines_of_many_classes_and_of_a_single_one_work():
    texts = Texts(np.arange(60), lambda at: [(chr(0x4E00 + position) * 3,) for position in at])
    assert baselines_of(texts, texts, 60)["TF-IDF + naive Bayes"]["accuracy"] > 0.9
    same = Texts(np.zeros(5, int), lambda at: [("好",)] * len(at))
    assert baselines_of(same, same, 2)["majority class"]["accuracy"] == 1


def texts_of(labels: np.ndarray) -> Texts:
    """Return texts with a character for each label that they have."""
    texts = [
        "的" + "".join(character for character, has in zip("甲乙丙丁", row, strict=True) if has)
        for row in labels
    ]
    return Texts(labels, lambda positions: [(texts[position],) for position in positions])


def test_baselines_learn_what_characters_say():
    labels, _ = random_rows("multi_label", 300, 4)
    train, dev, test = (texts_of(part) for part in (labels[:200], labels[200:250], labels[250:]))
    found = baselines_of_lists(train, dev, test)
    assert found["TF-IDF + logistic regression"]["micro_f1"] == 1
    assert found["TF-IDF + logistic regression"]["intervals"]["micro_f1"] == [1, 1]
    assert found["most frequent set"]["micro_f1"] == 0, "the most frequent set is the empty one"
    assert found["most frequent set"]["subset_accuracy"] == (labels[250:].sum(axis=1) == 0).mean()
    without = baselines_of_lists(train, None, test)
    assert without["TF-IDF + logistic regression"]["micro_f1"] > 0.9


def test_several_labels_have_one_logistic_regression_each_however_many(monkeypatch):
    labels = np.eye(60, dtype=np.uint8)[np.arange(600) % 60]
    texts = Texts(labels, lambda at: [(chr(0x4E00 + position % 60) * 3,) for position in at])
    names = [f"标签{label}" for label in range(60)]
    found = baselines(open_task("multi_label", names), texts, texts, texts)
    assert found["TF-IDF + logistic regression"]["micro_f1"] == 1
    monkeypatch.setattr("app.report.baselines.MAX_LABELS_X_VALUES", 60 * 600)
    found = baselines(open_task("multi_label", names), texts, texts, texts)
    assert found["TF-IDF + logistic regression"]["micro_f1"] < 1, "every second row has half of the labels"


def test_baseline_of_very_many_classes_needs_little_memory():
    generator = np.random.default_rng(0)
    texts = ["".join(map(chr, row)) for row in generator.integers(0x4E00, 0x4E00 + 5000, (2000, 30))]
    rows = Texts(np.arange(2000) % 1000, lambda at: [(texts[position],) for position in at])
    tracemalloc.start()
    baselines_of(rows, rows, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6
