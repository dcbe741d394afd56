"""predict with a temperature and with a threshold, of one label and of several a row: python -m pytest
tests/commands/test_predict_decisions.py"""

import csv
import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from app.report.logits_file import SplitLogits, write_logits
from tests.multi_label_runs import write_thresholds
from tests.saved_classifier import LABELS, random_texts, save_checkpoint
from tests.verbs import predict as main

TEMPERATURE = 2.5
SHARES = [f"p_{name}" for name in LABELS]
SEVERAL = "multi_label_classification"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A checkpoint with decision.json and dev logits, whose predictions are right as often as they say."""
    folder = save_checkpoint(tmp_path_factory.mktemp("run"))
    (folder / "decision.json").write_text(json.dumps({"temperature": TEMPERATURE}))
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (800, 3)).astype(np.float32)
    chances = softmax(logits / TEMPERATURE, axis=1).cumsum(axis=1)
    labels = (generator.random((800, 1)) > chances).sum(axis=1).clip(max=2)
    hashes = generator.integers(0, 1 << 63, 800).astype(np.uint64)
    dev = SplitLogits(np.arange(800), labels, hashes, logits)
    write_logits(folder / "logits.safetensors", {"dev": dev}, LABELS, 5, "single_label")
    return folder


@pytest.fixture(scope="module")
def run_of_several(tmp_path_factory) -> Path:
    folder = save_checkpoint(tmp_path_factory.mktemp("run"), problem_type=SEVERAL)
    write_thresholds(folder, np.array([0.4, 0.5, 0.6]), LABELS, chosen_on="dev", rows=800)
    return folder


@pytest.fixture
def predict(tmp_path, capsys):
    """Return a function that gives the rows that predict writes for 40 texts."""

    def rows(folder: Path, *options: str) -> list[dict]:
        (tmp_path / "texts.txt").write_text("\n".join(random_texts(40)), encoding="utf-8")
        files = ["--input", str(tmp_path / "texts.txt"), "--device", "cpu"]
        assert main(["--checkpoint", str(folder), *files, *options]) == 0
        rows.said = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(rows.said.out, newline="")))

    return rows


def probabilities_of(rows: list[dict]) -> np.ndarray:
    return np.array([[float(row[name]) for name in SHARES] for row in rows])


def test_probabilities_are_those_of_the_run_s_temperature(run, predict):
    calibrated = predict(run)
    (run / "decision.json").rename(run / "aside.json")
    plain = predict(run)
    (run / "aside.json").rename(run / "decision.json")
    expected = softmax(np.log(np.maximum(probabilities_of(plain), 1e-12)) / TEMPERATURE, axis=1)
    # Six digits are enough for the rest
    sure = probabilities_of(plain).min(axis=1) > 1e-3
    assert sure.sum() > 5
    np.testing.assert_allclose(probabilities_of(calibrated)[sure], expected[sure], atol=1e-3)
    assert [row["label"] for row in plain] == [row["label"] for row in calibrated]
    assert list(plain[0]) == ["line", "text", "label", "probability", *SHARES]


def test_threshold_decides_rows(run, predict):
    rows = predict(run, "--threshold", "0.5")
    assert list(rows[0])[:6] == ["line", "text", "label", "probability", "decision", "margin"]
    assert {row["decision"] for row in rows} == {"accept", "abstain"}
    for row, chances in zip(rows, np.sort(probabilities_of(rows)), strict=True):
        assert (row["decision"] == "accept") == (float(row["probability"]) >= 0.5)
        assert float(row["margin"]) == pytest.approx(chances[-1] - chances[-2], abs=2e-6)


def test_a_row_of_several_labels_is_as_sure_as_its_least_certain_one(run_of_several, predict):
    plain = predict(run_of_several)
    rows = predict(run_of_several, "--threshold", "0.55")
    assert list(rows[0]) == ["line", "text", "labels", "decision", "confidence", *SHARES]
    assert [row["labels"] for row in rows] == [row["labels"] for row in plain]
    assert {row["decision"] for row in rows} == {"accept", "abstain"}
    thresholds = json.loads((run_of_several / "decision.json").read_text(encoding="utf-8"))["thresholds"]
    for row in rows:
        sure = []
        for name in LABELS:
            chance, threshold = float(row[f"p_{name}"]), thresholds[name]
            odds = chance / (1 - chance) * (1 - threshold) / threshold
            sure.append(odds / (1 + odds) if name in json.loads(row["labels"]) else 1 / (1 + odds))
        assert float(row["confidence"]) == pytest.approx(min(sure), abs=1e-4)
        assert (row["decision"] == "accept") == (float(row["confidence"]) >= 0.55)


def test_threshold_for_a_precision_is_chosen_on_dev_and_measured_on_its_other_half(run, predict):
    rows = predict(run, "--threshold", "precision=0.6")
    threshold = float(predict.said.err.split("threshold ")[1].split()[0])
    assert "for precision 0.6, chosen on half of dev; on the " in predict.said.err
    assert 0.4 < threshold < 0.7
    assert [row["decision"] == "accept" for row in rows] == [
        float(row["probability"]) >= threshold for row in rows
    ]


@pytest.mark.parametrize("problem_type", ["single_label_classification", SEVERAL])
def test_jsonl_and_lines_have_decisions_and_no_run_has_no_precision(
    problem_type, tmp_path, capsys, monkeypatch
):
    folder = save_checkpoint(tmp_path / "model", problem_type=problem_type)
    is_multi = problem_type == SEVERAL
    if is_multi:
        write_thresholds(folder, np.full(3, 0.5), LABELS)
    words = ["--checkpoint", str(folder), "--device", "cpu", "今天真开心", "--threshold"]
    assert main([*words, "0.5", "--output", str(tmp_path / "labels.jsonl")]) == 0
    record = json.loads((tmp_path / "labels.jsonl").read_text(encoding="utf-8"))
    sure = record["confidence" if is_multi else "probability"]
    assert record["decision"] == ("accept" if sure >= 0.5 else "abstain")
    assert is_multi or 0 <= record["margin"] <= 1
    assert main([*words, "precision=0.6"]) == 2
    assert "precision=P needs a model of one label a row, and the logits" in capsys.readouterr().err
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main([*words, "0.5"]) == 0
    assert record["decision"] in capsys.readouterr().out.split("\n")[0]


@pytest.mark.parametrize(
    ("threshold", "message"),
    [
        ("precision=0.99999", "cannot be reached on at least 20 of the"),
        ("recall=0.9", "precision=P is needed"),
        ("precision=", "found nothing"),
        ("1.5", "must be from 0 to 1"),
        ("high", "must be from 0 to 1"),
    ],
)
def test_what_cannot_be_decided_is_an_error(run, threshold, message, capsys):
    assert main(["--checkpoint", str(run), "--device", "cpu", "--threshold", threshold, "今天真开心"]) == 2
    assert message in capsys.readouterr().err
