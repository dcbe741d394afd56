"""predict with a temperature and with a threshold: python -m pytest
tests/commands/test_predict_decisions.py"""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax

from app.report.logits_file import SplitLogits, write_logits
from tests.commands.predicted_rows import predict
from tests.multi_label_runs import write_thresholds
from tests.saved_classifier import LABELS, save_checkpoint
from tests.verbs import predict as main

TEMPERATURE = 2.5


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A checkpoint with decision.json and dev logits, whose predictions are right as often as they say."""
    folder = save_checkpoint(tmp_path_factory.mktemp("run"))
    (folder / "decision.json").write_text(json.dumps({"temperature": TEMPERATURE}))
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (600, 3)).astype(np.float32)
    chances = softmax(logits / TEMPERATURE, axis=1).cumsum(axis=1)
    labels = (generator.random((600, 1)) > chances).sum(axis=1).clip(max=2)
    hashes = generator.integers(0, 1 << 63, 600).astype(np.uint64)
    dev = SplitLogits(np.arange(600), labels, hashes, logits)
    write_logits(folder / "logits.safetensors", {"dev": dev}, LABELS, 5, "single_label")
    return folder


def probabilities_of(rows: list[dict]) -> np.ndarray:
    return np.array([[float(row[f"p_{name}"]) for name in LABELS] for row in rows])


def test_probabilities_are_those_of_the_run_s_temperature(run, tmp_path):
    calibrated = predict(run, tmp_path)
    (run / "decision.json").rename(run / "aside.json")
    plain = predict(run, tmp_path)
    (run / "aside.json").rename(run / "decision.json")
    expected = softmax(np.log(np.maximum(probabilities_of(plain), 1e-12)) / TEMPERATURE, axis=1)
    # Six digits are enough for the rest
    sure = probabilities_of(plain).min(axis=1) > 1e-3
    assert sure.sum() > 5
    np.testing.assert_allclose(probabilities_of(calibrated)[sure], expected[sure], atol=1e-3)
    assert [row["label"] for row in plain] == [row["label"] for row in calibrated]
    assert list(plain[0]) == ["line", "text", "label", "probability", *(f"p_{name}" for name in LABELS)]


def test_threshold_decides_rows(run, tmp_path):
    rows = predict(run, tmp_path, "--threshold", "0.5")
    assert list(rows[0])[:6] == ["line", "text", "label", "probability", "decision", "margin"]
    assert {row["decision"] for row in rows} == {"accept", "abstain"}
    for row, chances in zip(rows, np.sort(probabilities_of(rows)), strict=True):
        assert (row["decision"] == "accept") == (float(row["probability"]) >= 0.5)
        assert float(row["margin"]) == pytest.approx(chances[-1] - chances[-2], abs=2e-6)


def test_threshold_for_a_precision_is_chosen_on_dev_and_measured_on_its_other_half(run, tmp_path, capsys):
    rows = predict(run, tmp_path, "--threshold", "precision=0.6")
    said = capsys.readouterr().err
    threshold = float(said.split("threshold ")[1].split()[0])
    assert "for precision 0.6, chosen on half of dev; on the " in said
    assert 0.4 < threshold < 0.7
    assert [row["decision"] == "accept" for row in rows] == [
        float(row["probability"]) >= threshold for row in rows
    ]


PROBLEM_TYPES = ["single_label_classification", "multi_label_classification"]


@pytest.mark.parametrize("problem_type", PROBLEM_TYPES)
def test_jsonl_and_lines_have_decisions_too(problem_type, tmp_path, capsys, monkeypatch):
    folder = save_checkpoint(tmp_path / "model", problem_type=problem_type)
    is_multi = problem_type == PROBLEM_TYPES[1]
    if is_multi:
        write_thresholds(folder, np.full(3, 0.5), LABELS)
    arguments = ["--checkpoint", str(folder), "--device", "cpu", "--threshold", "0.5", "今天真开心"]
    assert main([*arguments, "--output", str(tmp_path / "labels.jsonl")]) == 0
    record = json.loads((tmp_path / "labels.jsonl").read_text(encoding="utf-8"))
    sure = record["confidence" if is_multi else "probability"]
    assert record["decision"] == ("accept" if sure >= 0.5 else "abstain")
    assert is_multi or 0 <= record["margin"] <= 1
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(arguments) == 0
    assert record["decision"] in capsys.readouterr().out.split("\n")[0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--threshold", "precision=0.99999"], "cannot be reached on at least 20 of the"),
        (["--threshold", "recall=0.9"], "precision=P is needed"),
        (["--threshold", "precision="], "found nothing"),
        (["--threshold", "1.5"], "above 0 and up to 1"),
        (["--threshold", "high"], "above 0 and up to 1"),
    ],
)
def test_what_cannot_be_decided_is_an_error(run, options, message, capsys):
    assert main(["--checkpoint", str(run), "--device", "cpu", *options, "今天真开心"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("problem_type", PROBLEM_TYPES)
def test_a_checkpoint_that_is_no_run_cannot_choose_a_threshold(problem_type, tmp_path, capsys):
    folder = save_checkpoint(tmp_path / "model", problem_type=problem_type)
    options = ["--device", "cpu", "--threshold", "precision=0.6"]
    assert main(["--checkpoint", str(folder), *options, "今天真开心"]) == 2
    assert "--threshold precision=P needs the logits of a run" in capsys.readouterr().err
