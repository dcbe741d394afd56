"""Multi-label rows, from a file to predictions: python -m pytest tests/tasks/test_multi_label.py"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import f1_score

from app.report.logits_file import read_logits
from app.tasks.multi_label import choose_thresholds, sigmoid
from tests.multi_label_runs import NAMES, predict_again, read_predictions, task_of, train
from tests.verbs import predict


@pytest.fixture
def trained(run_of) -> Path:
    return run_of("multi_label")


@pytest.fixture
def posts(trained) -> Path:
    return trained.parent / "rows.jsonl"


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
    shown = [[name in json.loads(row["predicted"]) for name in NAMES] for row in rows]
    assert np.array_equal(shown, predicted)
    assert [json.loads(row["labels"]) for row in rows] == [
        [name for name, has in zip(NAMES, labels, strict=True) if has] for labels in test.labels
    ]


def test_the_pipeline_of_transformers_agrees(trained):
    from transformers import pipeline

    rows = read_predictions(trained / "predictions.csv")[:5]
    classify = pipeline(
        "text-classification", str(trained), top_k=None, function_to_apply="sigmoid", device="cpu"
    )
    assert classify.model.config.problem_type == "multi_label_classification"
    for row, scores in zip(rows, classify([row["text"] for row in rows]), strict=True):
        found = {score["label"]: score["score"] for score in scores}
        assert found == pytest.approx({name: float(row[f"p_{name}"]) for name in NAMES}, abs=2e-6)


def test_a_report_on_the_rows_of_test_has_the_figures_of_the_run(trained, tmp_path, capsys):
    rows = read_predictions(trained / "predictions.csv")
    lists = [{"text": row["text"], "labels": json.loads(row["labels"])} for row in rows]
    of_columns = [
        {"text": row["text"]} | {name: int(name in row["labels"]) for name in NAMES} for row in lists
    ]
    joined = [{"text": row["text"], "tags": "|".join(row["labels"])} for row in lists]
    wanted = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    ways = {
        "lists": (lists, []),
        "columns": (of_columns, ["--data.label_columns", f"[{', '.join(NAMES)}]"]),
        "joined": (joined, ["--label_column", "tags", "--data.label_separator", "|"]),
    }
    for name, (records, options) in ways.items():
        source, out = tmp_path / f"{name}.jsonl", tmp_path / name
        source.write_text(
            "\n".join(json.dumps(record, ensure_ascii=False) for record in records), encoding="utf-8"
        )
        assert (
            predict(["--checkpoint", str(trained), "--input", str(source), "--report", str(out), *options])
            == 0
        )
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        for figure in ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy"):
            assert report[figure] == wanted[figure]
            assert report["intervals"][figure] == wanted["intervals"][figure]
        assert report["classes"] == wanted["classes"]
        assert "The rows with the most wrong labels" in (out / "report.html").read_text(encoding="utf-8")
        assert [row["labels"] for row in read_predictions(out / "predictions.csv")] == [
            row["predicted"] for row in rows
        ]
    assert "95 % intervals" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("record", "options", "message"),
    [
        ({"text": "好", "labels": ["别的"]}, [], "line 1: the model has no label '别的'"),
        ({"text": "好", "labels": "正面|负面"}, [], "set --data.label_separator '|', or write a JSON list"),
        ({"text": "好", "a": 2}, ["--data.label_columns", "[a]"], "must be 0 or 1, found 2"),
        ({"text": "好", "labels": []}, ["--data.label_columns", "a"], "a list of columns is needed"),
        (
            {"text": "好"},
            ["--data.label_columns", "[a]", "--label_column", "b"],
            "--data.label_columns is instead",
        ),
    ],
)
def test_labelled_rows_that_cannot_be_reported_are_errors(
    record, options, message, trained, tmp_path, capsys
):
    source = tmp_path / "rows.jsonl"
    source.write_text(json.dumps(record, ensure_ascii=False), encoding="utf-8")
    command = [
        "--checkpoint",
        str(trained),
        "--input",
        str(source),
        "--report",
        str(tmp_path / "out"),
        *options,
    ]
    assert predict(command) == 2
    assert message in capsys.readouterr().err


def test_zlpr_learns_and_a_row_has_the_labels_with_a_logit_above_0(posts, tmp_path):
    report = train(posts, tmp_path / "run", train__epochs=12, train__loss="zlpr", data__test_size=0.2)
    assert {scores["threshold"] for scores in report["classes"].values()} == {0.5}
    splits, _, _ = read_logits(tmp_path / "run" / "logits.safetensors")
    test = splits["test"]
    assert report["micro_f1"] == pytest.approx(f1_score(test.labels, test.logits > 0, average="micro"))
    assert report["micro_f1"] > 0.6


def test_a_run_without_dev_rows_uses_a_half(posts, tmp_path):
    report = train(posts, tmp_path / "run", train__max_steps=1, data__dev_size=0)
    assert {scores["threshold"] for scores in report["classes"].values()} == {0.5}
    assert "none was chosen on dev rows" in (tmp_path / "run" / "report.txt").read_text(encoding="utf-8")


def test_balanced_weights_are_rows_without_to_rows_with(posts):
    task = task_of(posts, class_weights="balanced")
    labels = np.asarray(task.dataset.splits["train"].labels)
    expected = (len(labels) - labels.sum(axis=0)) / labels.sum(axis=0)
    assert task.loss.weights.tolist() == pytest.approx(expected.tolist(), rel=1e-6)


def test_a_head_starts_at_the_log_odds_of_each_label(posts):
    name = task_of(posts)
    shares = np.asarray(name.dataset.splits["train"].labels).mean(axis=0)
    assert 1 / (1 + np.exp(-name.head_bias())) == pytest.approx(shares, abs=0.01)
    assert task_of(posts, class_weights="balanced").head_bias() == pytest.approx(np.zeros(3), abs=0.05)


@pytest.mark.parametrize("long", ["head_tail", "windows"])
def test_long_texts_are_read_in_training_as_in_prediction(long, posts, tmp_path):
    settings = {"data__long": long, "data__max_length": 8, "output__language": "zh"}
    train(posts, tmp_path / "run", train__max_steps=3, **settings)
    assert "微平均 F1" in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    rows = read_predictions(tmp_path / "run" / "predictions.csv")
    found = predict_again(tmp_path / "run", rows, tmp_path / "found.jsonl")
    assert [row["labels"] for row in found] == [json.loads(row["predicted"]) for row in rows]
