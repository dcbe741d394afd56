"""Multi-label rows, from a file to predictions: python -m pytest tests/tasks/test_multi_label.py"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, hamming_loss, log_loss, precision_score, recall_score

from app.report.logits_file import read_logits
from app.report.metrics import measure
from app.tasks.task import choose_thresholds, sigmoid
from tests.multi_label_runs import NAMES, read_predictions, task_of, task_with, train
from tests.report.rows_case import measured
from tests.tasks.kinds import write_lines
from tests.verbs import predict


@pytest.fixture
def trained(run_of) -> Path:
    return run_of("multi_label")


@pytest.fixture
def posts(trained) -> Path:
    return trained.parent / "rows.jsonl"


def test_figures_are_those_of_scikit_learn():
    """The last label is never there."""
    generator = np.random.default_rng(0)
    labels = (generator.random((200, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]).astype(np.uint8)
    logits = (labels * 2.0 - 1 + generator.normal(0, 2, labels.shape)).astype(np.float32)
    task = task_with(thresholds := np.array([0.5, 0.3, 0.6, 0.2, 0.9]), list("abcde"))
    found, predicted = measure(task, task.score(labels, logits)), sigmoid(logits) >= thresholds
    scores = {"precision": precision_score, "recall": recall_score, "f1": f1_score}
    for average in ("micro", "macro", "weighted"):
        for name, score in scores.items():
            expected = score(labels, predicted, average=average, zero_division=0)
            assert found[average][name] == pytest.approx(expected, abs=1e-12)
    by_label = f1_score(labels, predicted, average=None, zero_division=0)
    assert [of["f1"] for of in found["classes"].values()] == pytest.approx(by_label.tolist())
    assert [of["support"] for of in found["classes"].values()] == labels.sum(axis=0).tolist()
    assert found["subset_accuracy"] == pytest.approx(accuracy_score(labels, predicted))
    assert found["hamming_loss"] == pytest.approx(hamming_loss(labels, predicted))
    by_row = f1_score(labels, predicted, average="samples", zero_division=1)
    assert found["samples_f1"] == pytest.approx(by_row)
    columns = [log_loss(labels[:, i], sigmoid(logits)[:, i], labels=[0, 1]) for i in range(5)]
    assert found["loss"] == pytest.approx(np.mean(columns), rel=1e-6)


def test_extreme_logits_have_finite_figures():
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], dtype=np.float32)
    found = measured(np.array([[1, 0], [0, 1]]), logits, ["a", "b"], "multi_label")
    assert (found["loss"], found["subset_accuracy"]) == (0, 1)


def test_the_report_has_the_figures_of_the_thresholds_of_dev(trained):
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    splits, names, name = read_logits(trained / "logits.safetensors")
    assert (names, name) == (NAMES, "multi_label")
    thresholds = choose_thresholds(splits["dev"].labels, sigmoid(splits["dev"].logits))
    assert [report["classes"][name]["threshold"] for name in NAMES] == pytest.approx(thresholds.tolist())
    test = splits["test"]
    predicted = sigmoid(test.logits) >= thresholds
    assert report["micro_f1"] == pytest.approx(f1_score(test.labels, predicted, average="micro"))
    assert report["micro_f1"] > 0.6
    low, high = report["intervals"]["micro_f1"]
    assert low < report["micro_f1"] < high
    page, card, text = (
        (trained / name).read_text(encoding="utf-8") for name in ("report.html", "README.md", "report.txt")
    )
    assert f"[{low:.4f}, {high:.4f}]" in page
    assert f"| micro F1 | {report['micro_f1']:.4f} | {low:.4f} to {high:.4f} |" in card
    assert "the best F1 on" in text
    rows = read_predictions(trained / "predictions.csv")
    for column, wanted in (("predicted", predicted), ("labels", test.labels.astype(bool))):
        shown = [[name in json.loads(row[column]) for name in NAMES] for row in rows]
        assert np.array_equal(shown, wanted)


def test_the_pipeline_of_transformers_agrees(trained):
    from transformers import pipeline

    rows, how = read_predictions(trained / "predictions.csv")[:5], {"top_k": None, "device": "cpu"}
    classify = pipeline("text-classification", str(trained), function_to_apply="sigmoid", **how)
    assert classify.model.config.problem_type == "multi_label_classification"
    for row, scores in zip(rows, classify([row["text"] for row in rows]), strict=True):
        found = {score["label"]: score["score"] for score in scores}
        assert found == pytest.approx({name: float(row[f"p_{name}"]) for name in NAMES}, abs=2e-6)


@pytest.mark.parametrize("way", ["lists", "columns", "joined"])
def test_a_report_on_the_rows_of_test_has_the_figures_of_the_run(way, trained, tmp_path, capsys):
    rows = read_predictions(trained / "predictions.csv")
    lists = [{"text": row["text"], "labels": json.loads(row["labels"])} for row in rows]
    of_columns = [{"text": of["text"]} | {name: int(name in of["labels"]) for name in NAMES} for of in lists]
    joined = [{"text": of["text"], "tags": "|".join(of["labels"])} for of in lists]
    ways = {
        "lists": (lists, []),
        "columns": (of_columns, ["--data.label_columns", f"[{', '.join(NAMES)}]"]),
        "joined": (joined, ["--label_column", "tags", "--data.label_separator", "|"]),
    }
    source, out = write_lines(tmp_path / "rows.jsonl", ways[way][0]), tmp_path / "out"
    words = ["--input", str(source), "--report", str(out), *ways[way][1]]
    assert predict(["--checkpoint", str(trained), *words]) == 0
    wanted = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    report = json.loads((out / "report.json").read_text(encoding="utf-8"))
    for figure in ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy"):
        assert report[figure] == wanted[figure]
        assert report["intervals"][figure] == wanted["intervals"][figure]
    assert report["classes"] == wanted["classes"]
    assert "The rows with the most wrong labels" in (out / "report.html").read_text(encoding="utf-8")
    predicted = [row["predicted"] for row in rows]
    assert [row["labels"] for row in read_predictions(out / "predictions.csv")] == predicted
    assert "95 % intervals" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"labels": ["别的"]}, [], "line 1: the model has no label '别的'"),
        ({"labels": "正面|负面"}, [], "set --data.label_separator '|', or write a JSON list"),
        ({"a": 2, "b": 0}, ["--data.label_columns", "[a, b]"], "must be 0 or 1, found 2"),
        ({"labels": []}, ["--data.label_columns", "a"], "--data.label_columns must be a list"),
        ({}, ["--data.label_columns", "[a, b]", "--label_column", "b"], "--data.label_columns is instead"),
    ],
)
def test_labelled_rows_that_cannot_be_reported_are_errors(
    record, options, message, trained, tmp_path, capsys
):
    source = write_lines(tmp_path / "rows.jsonl", [{"text": "好"} | record])
    words = ["--input", str(source), "--report", str(tmp_path / "out"), *options]
    assert predict(["--checkpoint", str(trained), *words]) == 2
    assert message in capsys.readouterr().err


def test_a_run_without_dev_rows_uses_a_half(posts, tmp_path):
    report = train(posts, tmp_path / "run", train__max_steps=1, data__dev_size=0)
    assert {scores["threshold"] for scores in report["classes"].values()} == {0.5}
    assert "none was chosen on dev rows" in (tmp_path / "run" / "report.txt").read_text(encoding="utf-8")


def test_a_head_starts_at_the_log_odds_of_each_label_and_balanced_weights_are_rows_without_to_rows_with(
    posts,
):
    task, balanced = task_of(posts), task_of(posts, class_weights="balanced")
    shares = np.asarray(task.dataset.splits["train"].labels).mean(axis=0)
    assert sigmoid(task.head_bias) == pytest.approx(shares, abs=0.01)
    assert balanced.head_bias == pytest.approx(np.zeros(3), abs=0.05)
    assert balanced.loss.weights.tolist() == pytest.approx(((1 - shares) / shares).tolist(), rel=1e-6)
