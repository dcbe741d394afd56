"""Two classes of which one is rare: python -m pytest tests/tasks/test_two_classes.py"""

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, roc_auc_score

from app.errors import InputError
from app.report.bootstrap import all_metrics
from app.report.logits_file import read_logits
from app.tasks import open_task
from tests.multi_label_runs import read_predictions, task_of


def rows(num_rows: int = 600, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which one in ten is 1, and logits with which argmax seldom says so."""
    generator = np.random.default_rng(seed)
    labels = (generator.random(num_rows) < 0.1).astype(np.int64)
    odds = generator.normal(0, 1.5, num_rows) + 2 * labels - 3
    return labels, np.c_[np.zeros(num_rows), odds].astype(np.float32)


@pytest.fixture
def run(run_of) -> Path:
    return run_of("rare_class")


def test_figures_of_the_rarer_class_are_those_of_scikit_learn_and_have_intervals():
    labels, logits = rows()
    task = open_task("single_label", ["a", "b"])
    metrics = all_metrics(task, task.score(labels, logits))
    chances = task.probabilities(logits)[:, 1]
    precision, recall, _ = precision_recall_curve(labels, chances)
    assert metrics["rare_f1"] == pytest.approx(f1_score(labels, logits.argmax(axis=1)))
    assert metrics["average_precision"] == pytest.approx(average_precision_score(labels, chances))
    assert metrics["roc_auc"] == pytest.approx(roc_auc_score(labels, chances))
    assert metrics["recall_at_precision"] == pytest.approx(recall[precision >= 0.9].max())
    for key in ("rare_f1", "average_precision", "roc_auc", "recall_at_precision"):
        low, high = metrics["intervals"][key]
        assert low < metrics[key] < high
    three = open_task("single_label", ["a", "b", "c"])
    assert "roc_auc" not in all_metrics(three, three.score(labels, np.c_[logits, logits[:, 0] - 9]))
    one = task.score(np.zeros(5, int), logits[:5])
    assert all_metrics(task, one)["roc_auc"] == 0.5, "there is no pair to compare"


def test_the_threshold_of_dev_has_the_best_f1_and_is_independent_of_the_temperature(tmp_path):
    labels, logits = rows(2000)
    # Too sure, so that there is a temperature
    logits = 2 * logits
    task = open_task("single_label", ["a", "b"])
    task.rare, task.best_metric = 1, "rare_f1"
    task.fit(labels, logits, np.arange(len(labels)))
    assert task.temperature != 1
    chances = task.probabilities(logits, calibrated=False)[:, 1]
    best = max(f1_score(labels, chances >= threshold) for threshold in np.unique(chances.round(3)))
    assert (
        f1_score(labels, task.decide(logits)) >= best - 1e-3 > f1_score(labels, logits.argmax(axis=1)) + 0.1
    )
    assert task.chosen(task.probabilities(logits)).tolist() == task.decide(logits).tolist()
    task.write(tmp_path, 1, {})
    for calibrate in (True, False):
        again = open_task("single_label", ["a", "b"])
        again.read(tmp_path, calibrate)
        assert again.decide(logits).tolist() == task.decide(logits).tolist()
        assert (again.temperature == 1) == (not calibrate)
    answer = int(task.decide(logits[:1])[0])
    assert task.ranked_labels(task.probabilities(logits)[0]).tolist() == [answer, 1 - answer]


def test_a_run_decides_by_it_everywhere(run):
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    decision = json.loads((run / "decision.json").read_text(encoding="utf-8"))
    assert report["rare_class"] == decision["rare_class"] == "投诉"
    assert report["rare_threshold"] == decision["rare_threshold"] != 0.5
    test, names = read_logits(run / "logits.safetensors")[0]["test"], ["其他", "投诉"]
    chances = open_task("single_label", names).probabilities(test.logits)[:, 1]
    predicted = chances >= report["rare_threshold"]
    assert report["rare_f1"] == pytest.approx(f1_score(test.labels, predicted))
    assert {"rare_f1", "average_precision", "roc_auc", "recall_at_precision"} <= set(report["intervals"])
    wanted = read_predictions(run / "predictions.csv")
    assert [row["predicted"] == "投诉" for row in wanted] == predicted.tolist()
    for name in ("report.txt", "README.md"):
        said = (run / name).read_text(encoding="utf-8")
        assert f"{report['rare_threshold']:.4f}" in said
        assert "投诉" in said
    assert "Average precision" in (run / "report.html").read_text(encoding="utf-8")
    line = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert 0 < line["rare_f1"] <= 1


def test_it_needs_two_labels_and_a_whole_file(run, tmp_path):
    posts = tmp_path / "three.jsonl"
    lines = [json.dumps({"text": f"天{number}", "label": "abc"[number % 3]}) for number in range(90)]
    posts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="train.best_metric rare_f1 needs two labels, found 3"):
        task_of(posts, "single_label", best_metric="rare_f1")
    for damaged in ({"rare_class": "x"}, {"rare_class": "a", "rare_threshold": 2}):
        (tmp_path / "decision.json").write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(InputError, match="what was fitted for the decision is needed"):
            open_task("single_label", ["a", "b"]).read(tmp_path)
