"""What is fitted on dev, temperatures and thresholds, and its file decision.json: python -m pytest
tests/tasks/test_decision.py"""

import json
import os

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from sklearn.metrics import average_precision_score, f1_score, precision_recall_curve, roc_auc_score

from app.config.command_line import load_config
from app.errors import InputError
from app.report.bootstrap import all_metrics
from app.report.logits_file import read_logits
from app.report.shown import calibration_effect, report_text
from app.tasks import open_task
from app.tasks.task import Task, choose_thresholds, fit_temperature, sigmoid
from tests.multi_label_runs import arguments, read_predictions, task_of, write_thresholds
from tests.report.rows_case import measured
from tests.verbs import predict


def overconfident(num_rows: int, temperature: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows whose labels are drawn from softmax(logits / temperature)."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 3, (num_rows, 4)).astype(np.float32)
    cumulated = softmax(logits / temperature, axis=1).cumsum(axis=1)
    return (generator.random((num_rows, 1)) > cumulated).sum(axis=1).clip(max=3), logits


def calibration_line(task: Task, figures: dict) -> str:
    """Return what a report says of the temperature."""
    metrics = measured(np.arange(4), np.eye(4, dtype=np.float32), task.label_names) | {"intervals": {}}
    return report_text(task, metrics | figures, {}, "").splitlines()[-1]


def test_a_temperature_is_that_of_another_optimizer_and_of_the_rows_that_were_drawn_with_it():
    for temperature in (0.5, 1.0, 2.5):
        found = fit_temperature(*overconfident(20_000, temperature))
        assert found == pytest.approx(temperature, rel=0.04)
    labels, logits = overconfident(300, 3)

    def loss(inverse):
        return -log_softmax(logits * inverse[0], axis=1)[np.arange(300), labels].mean()

    expected = 1 / minimize(loss, [1.0], method="Nelder-Mead", options={"xatol": 1e-6, "fatol": 1e-12}).x[0]
    assert fit_temperature(labels, logits) == pytest.approx(expected, rel=1e-3)
    assert fit_temperature(np.zeros(5, int), np.array([[3.0, 0]] * 5, np.float32)) == 1, "all are right"


def test_calibrated_rows_that_were_not_seen_are_better():
    dev, test = (overconfident(2000, 3, seed) for seed in (1, 2))
    task = open_task("single_label", list("abcd"))
    task.fit(*dev, np.arange(2000))
    figures = task.state() | calibration_effect(task, *test, "test")
    assert figures["after"]["loss"] < figures["before"]["loss"] - 0.2
    assert figures["after"]["ece"] < figures["before"]["ece"] / 3
    assert "fitted on 2,000 rows of dev; on test: loss " in calibration_line(task, {"calibration": figures})
    of_dev = task.state() | calibration_effect(task, *dev, "dev")
    assert "the rows it was fitted on" in calibration_line(task, {"calibration": of_dev})


@pytest.mark.parametrize(("num_rows", "why"), [(6, "few_rows"), (99, "few_rows"), (120, "no_better")])
def test_a_temperature_that_few_rows_or_held_out_rows_do_not_support_is_not_used(num_rows, why):
    """Six rows once gave a temperature of 19.999; and rows whose logits fit have nothing to gain."""
    task = open_task("single_label", list("abcd"))
    task.fit(*overconfident(num_rows, 1.0, seed=3), np.arange(num_rows, dtype=np.uint64))
    assert task.unfitted == {"why": why, "rows": num_rows}
    assert (task.temperature, task.state()) == (1, {})
    assert f"{num_rows} dev rows" in calibration_line(task, {"no_calibration": task.unfitted})


def test_a_threshold_is_the_best_of_all_that_could_be():
    generator = np.random.default_rng(0)
    labels = generator.random((200, 5)) < [0.5, 0.3, 0.1, 0.02, 0.0]
    # So that some are equal
    probabilities = sigmoid(labels * 2.0 - 1 + generator.normal(0, 2, labels.shape)).round(2)
    chosen = choose_thresholds(labels, probabilities)
    assert chosen[4] == 0.5, "no row has the label"
    for label in range(4):
        has, column = labels[:, label], probabilities[:, label]
        best = max(f1_score(has, column >= t, zero_division=0) for t in np.linspace(-0.005, 1.005, 102))
        assert f1_score(has, column >= chosen[label]) == pytest.approx(best)


def test_of_equally_good_thresholds_the_nearest_to_a_half_is_chosen_and_not_between_near_logits():
    labels = np.array([[1], [1], [0], [0]])
    assert choose_thresholds(labels, np.array([[0.9], [0.7], [0.2], [0.1]])).tolist() == [pytest.approx(0.45)]
    everything = np.ones((3, 1), dtype=np.uint8)
    assert choose_thresholds(everything, np.array([[0.9], [0.4], [0.2]])).tolist() == [pytest.approx(0.1)]
    logits = np.array([[3.0], [1.0 + 1e-6], [1.0], [-2.0]])
    assert sigmoid(-2.0) < choose_thresholds(labels, sigmoid(logits))[0] < sigmoid(0.9)
    assert choose_thresholds(labels, sigmoid(logits - 40))[0] < sigmoid(-39.1)


def test_the_file_of_a_run_is_read(tmp_path):
    path, one, several = tmp_path / "decision.json", *(open_task(f"{of}_label", ["a", "b"]) for of in KINDS)
    one.read(tmp_path)
    several.read(tmp_path)
    assert (one.temperature, several.thresholds.tolist()) == (1, [0.5, 0.5])
    path.write_text(json.dumps({"temperature": 1.5}))
    one.read(tmp_path, calibrate=False)
    assert one.temperature == 1
    one.read(tmp_path)
    assert one.temperature == 1.5
    write_thresholds(tmp_path, [0.25, 0.125], ["b", "a"], chosen_on="dev", rows=20)
    several.read(tmp_path)
    assert several.thresholds.tolist() == [0.125, 0.25]
    assert (several.chosen_on, several.rows) == ("dev", 20)


KINDS = ("single", "multi")
DAMAGED = ["", "[]", "{}", '{"thresholds": {"a": 0.5}}', '{"rare_class": "x"}']
DAMAGED += ['{"rare_class": "a", "rare_threshold": 2}']


@pytest.mark.parametrize("content", DAMAGED)
def test_a_damaged_file_is_an_error(tmp_path, content):
    (tmp_path / "decision.json").write_text(content)
    for kind in KINDS:
        with pytest.raises(InputError, match="what was fitted for the decision is needed.*to decide without"):
            open_task(f"{kind}_label", ["a", "b"]).read(tmp_path)


@pytest.mark.parametrize("value", ["-0.1", "1e300", "NaN", "Infinity", '"0.5"', "true", "null"])
def test_a_number_that_no_fit_gives_is_an_error_with_file_and_value(tmp_path, value):
    path, found = tmp_path / "decision.json", f"found {json.loads(value)!r}"
    contents = {
        f'{{"temperature": {value}}}': "temperature must be from 0.05 to 20",
        f'{{"thresholds": {{"a": 0.5, "b": {value}}}}}': "the threshold of b must be from 0 to 1",
    }
    for kind, (content, rule) in zip(KINDS, contents.items(), strict=True):
        path.write_text(content)
        with pytest.raises(InputError) as raised:
            open_task(f"{kind}_label", ["a", "b"]).read(tmp_path)
        assert str(path) in str(raised.value)
        assert f"{rule}, {found}" in str(raised.value)


def test_a_pipe_in_place_of_the_file_does_not_hang(tmp_path):
    os.mkfifo(tmp_path / "decision.json")
    with pytest.raises(InputError, match="a regular file is needed"):
        open_task("single_label", ["a", "b"]).read(tmp_path)


def rare_rows(num_rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return labels of which one in ten is 1, and logits with which argmax seldom says so."""
    generator = np.random.default_rng(0)
    labels = (generator.random(num_rows) < 0.1).astype(np.int64)
    odds = generator.normal(0, 1.5, num_rows) + 2 * labels - 3
    return labels, np.c_[np.zeros(num_rows), odds].astype(np.float32)


@pytest.mark.parametrize("recall_at", [0.9, 0.5])
def test_figures_of_the_rarer_class_are_those_of_scikit_learn_and_have_intervals(recall_at):
    labels, logits = rare_rows()
    task = open_task("single_label", ["a", "b"])
    task.recall_at = recall_at
    metrics = all_metrics(task, task.score(labels, logits))
    chances = task.probabilities(logits)[:, 1]
    precision, recall, _ = precision_recall_curve(labels, chances)
    expected = {
        "rare_f1": f1_score(labels, logits.argmax(axis=1)),
        "average_precision": average_precision_score(labels, chances),
        "roc_auc": roc_auc_score(labels, chances),
        "recall_at_precision": recall[precision >= recall_at].max(),
    }
    for key, value in expected.items():
        assert metrics[key] == pytest.approx(value)
        low, high = metrics["intervals"][key]
        assert low < metrics[key] < high
    three = open_task("single_label", ["a", "b", "c"])
    assert "roc_auc" not in all_metrics(three, three.score(labels, np.c_[logits, logits[:, 0] - 9]))
    one = task.score(np.zeros(5, int), logits[:5])
    assert all_metrics(task, one)["roc_auc"] == 0.5, "there is no pair to compare"


def test_the_threshold_of_dev_has_the_best_f1_and_is_independent_of_the_temperature(tmp_path):
    labels, logits = rare_rows(2000)
    # Too sure, so that there is a temperature
    logits, task = 2 * logits, open_task("single_label", ["a", "b"])
    task.rare, task.best_metric = 1, "rare_f1"
    task.fit(labels, logits, np.arange(len(labels)))
    assert task.temperature != 1
    chances, decided = task.probabilities(logits, calibrated=False)[:, 1], task.decide(logits)
    best = max(f1_score(labels, chances >= threshold) for threshold in np.unique(chances.round(3)))
    assert f1_score(labels, decided) >= best - 1e-3 > f1_score(labels, logits.argmax(axis=1)) + 0.1
    assert task.chosen(task.probabilities(logits)).tolist() == decided.tolist()
    task.write(tmp_path, 1, {})
    for calibrate in (True, False):
        again = open_task("single_label", ["a", "b"])
        again.read(tmp_path, calibrate)
        assert again.decide(logits).tolist() == decided.tolist()
        assert (again.temperature == 1) == (not calibrate)
    answer = int(decided[0])
    assert task.ranked_labels(task.probabilities(logits)[0]).tolist() == [answer, 1 - answer]


def test_a_run_decides_by_it_everywhere(run_of):
    run = run_of("rare_class")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    decision = json.loads((run / "decision.json").read_text(encoding="utf-8"))
    assert report["rare_class"] == decision["rare_class"] == "投诉"
    assert report["rare_threshold"] == decision["rare_threshold"] != 0.5
    test = read_logits(run / "logits.safetensors")[0]["test"]
    chances = open_task("single_label", ["其他", "投诉"]).probabilities(test.logits)[:, 1]
    predicted = chances >= report["rare_threshold"]
    assert report["rare_f1"] == pytest.approx(f1_score(test.labels, predicted))
    wanted = read_predictions(run / "predictions.csv")
    assert [row["predicted"] == "投诉" for row in wanted] == predicted.tolist()
    for name in ("report.txt", "README.md"):
        said = (run / name).read_text(encoding="utf-8")
        assert f"{report['rare_threshold']:.4f}" in said
        assert "投诉" in said
        assert "recall at precision 0.9" in said
    assert "Average precision" in (run / "report.html").read_text(encoding="utf-8")
    line = json.loads((run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[-1])
    assert 0 < line["rare_f1"] <= 1


def test_a_report_on_other_rows_has_the_recall_at_the_precision_of_the_threshold(run_of, tmp_path):
    run, out = run_of("rare_class"), tmp_path / "out"
    words = ["--input", str(run.parent / "rows.jsonl"), "--report", str(out)]
    assert predict(["--checkpoint", str(run), "--threshold", "precision=0.05", *words]) == 0
    rows, report = read_predictions(out / "predictions.csv"), json.loads((out / "report.json").read_text())
    is_rare, chances = [row["label"] == "投诉" for row in rows], [float(row["p_投诉"]) for row in rows]
    precision, recall, _ = precision_recall_curve(is_rare, chances)
    assert report["recall_at_precision"] == pytest.approx(recall[precision >= 0.05].max())
    assert "recall at precision 0.05" in (out / "report.txt").read_text(encoding="utf-8")
    assert "Recall at precision 0.05" in (out / "report.html").read_text(encoding="utf-8")


def test_what_chooses_the_best_checkpoint_must_fit_the_task(tmp_path):
    posts = tmp_path / "three.jsonl"
    lines = [json.dumps({"text": f"天{number}", "label": "abc"[number % 3]}) for number in range(90)]
    posts.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(InputError, match="train.best_metric rare_f1 needs two labels, found 3"):
        task_of(posts, "single_label", best_metric="rare_f1")
    for key, value in (("best_metric", "rare_f1"), ("loss", "logit_adjusted")):
        rule = f"train.{key} must be one of .* with data.task multi_label, found {value}$"
        with pytest.raises(InputError, match=rule):
            load_config(arguments(posts, tmp_path / "run", **{f"train__{key}": value}))
