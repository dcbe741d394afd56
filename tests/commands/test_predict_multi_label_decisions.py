"""predict with a threshold for multi-label models: python -m pytest
tests/commands/test_predict_multi_label_decisions.py"""

import json
from pathlib import Path

import numpy as np
import pytest

from app.report.logits_file import SplitLogits, write_logits
from app.tasks.multi_label import choose_thresholds, sigmoid
from tests.commands.predicted_rows import predict
from tests.multi_label_runs import task_with, write_thresholds
from tests.saved_classifier import LABELS, save_checkpoint


def dev_rows(num_rows: int = 800, seed: int = 0) -> SplitLogits:
    """Return rows whose labels are there as often as the logits say."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 3, (num_rows, 3)).astype(np.float32)
    labels = (generator.random((num_rows, 3)) < sigmoid(logits)).astype(np.int64)
    hashes = generator.integers(0, 1 << 63, num_rows).astype(np.uint64)
    return SplitLogits(np.arange(num_rows), labels, hashes, logits)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = save_checkpoint(tmp_path_factory.mktemp("run"), problem_type="multi_label_classification")
    dev = dev_rows()
    write_logits(folder / "logits.safetensors", {"dev": dev}, LABELS, 5, "multi_label")
    thresholds = choose_thresholds(dev.labels, sigmoid(dev.logits))
    write_thresholds(folder, thresholds, LABELS, chosen_on="dev", rows=len(dev))
    return folder


def test_a_row_is_as_sure_as_its_least_certain_label(run, tmp_path):
    plain = predict(run, tmp_path)
    rows = predict(run, tmp_path, "--threshold", "0.55")
    fixed = ["line", "text", "labels", "decision", "confidence"]
    assert list(rows[0]) == [*fixed, *(f"p_{name}" for name in LABELS)]
    assert [row["labels"] for row in rows] == [row["labels"] for row in plain]
    assert {row["decision"] for row in rows} == {"accept", "abstain"}
    thresholds = json.loads((run / "decision.json").read_text(encoding="utf-8"))["thresholds"]
    for row in rows:
        sure = []
        for name in LABELS:
            chance, threshold = float(row[f"p_{name}"]), thresholds[name]
            odds = chance / (1 - chance) * (1 - threshold) / threshold
            sure.append(odds / (1 + odds) if name in json.loads(row["labels"]) else 1 / (1 + odds))
        assert float(row["confidence"]) == pytest.approx(min(sure), abs=1e-4)
        assert (row["decision"] == "accept") == (float(row["confidence"]) >= 0.55)


def held_out(dev: SplitLogits, thresholds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return how sure and how right decisions by thresholds are."""
    return task_with(thresholds, LABELS).held_out(dev.labels, dev.logits, dev.hashes)


def test_dev_rows_are_decided_by_thresholds_of_other_rows():
    dev = dev_rows()
    confidence, correct = held_out(dev, choose_thresholds(dev.labels, sigmoid(dev.logits)))
    first = dev.hashes % 2 == 0
    parts = [first & (dev.hashes // 2 % 2 == bit) for bit in (0, 1)]
    for rows, choosing in ((parts[0], parts[1]), (parts[1], parts[0]), (~first, first)):
        thresholds = choose_thresholds(dev.labels[choosing], sigmoid(dev.logits[choosing]))
        decided = sigmoid(dev.logits[rows]) >= thresholds
        assert correct[rows].tolist() == (decided == dev.labels[rows]).all(axis=1).tolist()
        expected = task_with(thresholds, LABELS).confidence(sigmoid(dev.logits[rows]))
        assert confidence[rows].tolist() == expected.tolist()
    by_hand = np.array([0.3, 0.5, 0.8])
    sets = task_with(by_hand, LABELS).decide(dev.logits)
    assert held_out(dev, by_hand)[1].tolist() == (sets == dev.labels).all(axis=1).tolist()


def test_a_precision_is_the_share_of_rows_with_all_labels_right(run, tmp_path, capsys):
    rows = predict(run, tmp_path, "--threshold", "precision=0.8")
    said = capsys.readouterr().err
    threshold = float(said.split("threshold ")[1].split()[0])
    dev = dev_rows()
    confidence, correct = held_out(dev, choose_thresholds(dev.labels, sigmoid(dev.logits)))
    other = dev.hashes % 2 == 1
    decided = other & (confidence >= threshold - 5e-5)
    assert f"on the {other.sum():,} rows of the other half it decides {decided.sum():,} (" in said
    assert f"precision {correct[decided].mean():.4f}, at least" in said
    assert correct[decided].mean() == pytest.approx(0.8, abs=0.1)
    assert correct[other].mean() < 0.6
    sure = [float(row["confidence"]) >= threshold for row in rows]
    assert [row["decision"] == "accept" for row in rows] == sure
