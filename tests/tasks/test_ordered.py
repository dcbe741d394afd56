"""Ordered labels, and numbers: python -m pytest tests/tasks/test_ordered.py"""

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import cohen_kappa_score

from app.api import load
from app.config.command_line import load_config
from app.data.dataset import open_dataset
from app.errors import InputError
from app.report.bootstrap import answer_metrics
from app.report.label_issues import find_issues, judge
from app.report.metrics import Drawn, metrics_of
from app.runs.series import rendered
from app.tasks import open_task
from tests.multi_label_runs import arguments, predict_again, read_predictions, task_of
from tests.tasks.kinds import write_counted, write_scores, write_stars
from tests.verbs import export, predict

SCORE = open_task("regression", ["score"])


@pytest.fixture
def run(run_of) -> Path:
    return run_of("regression")


def test_metrics_are_those_of_scipy_also_of_rows_that_are_drawn_again():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 6, 200) + 1e6
    predicted = labels + generator.normal(0, 2, 200).round(1)
    counts = generator.multinomial(200, np.full(200, 1 / 200), 3)
    drawn = Drawn(SCORE, labels, predicted, counts)
    found = {metric.key: metric.of_answers(drawn) for metric in metrics_of(SCORE) if metric.of_answers}
    for at, count in enumerate(counts):
        one, other = np.repeat(labels, count), np.repeat(predicted, count)
        assert found["mae"][at] == pytest.approx(np.abs(one - other).mean())
        assert found["rmse"][at] == pytest.approx(np.sqrt(((one - other) ** 2).mean()))
        assert found["pearson"][at] == pytest.approx(pearsonr(one, other).statistic)
        assert found["spearman"][at] == pytest.approx(spearmanr(one, other).statistic)
    constant = answer_metrics(SCORE, np.arange(5.0), np.full(5, 0.1))
    assert (constant["pearson"], constant["spearman"]) == (0, 0)


def opened(path: Path):
    words = arguments(path, path.parent / "run", data__task="regression")
    return open_dataset(load_config(words).data)


@pytest.mark.parametrize("value", ["很好", "nan", "-inf", "1e200", "1_000", ""])
def test_what_is_no_number_is_refused_with_its_line(write, value):
    path = write("a.tsv", f"天气\t1\n今天\t2.5\n明天\t{value}\n" + "昨天\t3\n" * 20)
    rule = rf"must be a number up to 1e\+100, found '{value}'" if value else "is empty"
    with pytest.raises(InputError, match=rf"a\.tsv, line 3: the label {rule}"):
        opened(path)


def test_numbers_that_are_all_the_same_are_refused(write):
    path = write("a.tsv", "".join(f"第{number}天\t3\n" for number in range(40)))
    with pytest.raises(InputError, match=r"a\.tsv: the numbers of train must differ, found 3 in all"):
        opened(path)


def test_a_column_of_different_numbers_is_the_label_of_pairs_and_splits_are_alike(write):
    generator = random.Random(1)
    rows = [f"今天天气很好{n}\t今天天气不错{n}\t{generator.random():.9f}\n" for n in range(400)]
    dataset = opened(write("a.tsv", "".join(rows)))
    columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    assert dataset.files["train"].assumed == columns
    for statistics in dataset.statistics.values():
        assert statistics["mean"] == pytest.approx(0.5, abs=0.06)
        assert statistics["deviation"] == pytest.approx(0.29, abs=0.05)


def test_a_run_learns_and_speaks_in_the_unit_of_the_data(run):
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert report["intervals"]["spearman"][0] > 0.5
    assert report["baselines"]["mean"]["spearman"] == 0
    assert report["baselines"]["TF-IDF + ridge"]["spearman"] > 0.9
    rows = read_predictions(run / "predictions.csv")
    assert [*rows[0]][2:] == ["text", "score", "predicted"]
    errors = [abs(float(row["score"]) - float(row["predicted"])) for row in rows]
    assert np.mean(errors) == pytest.approx(report["mae"], abs=1e-3)
    assert all(990 < float(row["predicted"]) < 1030 for row in rows)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert page.count("<circle") >= len(rows)
    assert "The rows that are furthest off" in page
    text = (run / "report.txt").read_text(encoding="utf-8")
    assert "training texts; share of rows at most half a standard deviation off without them" in text
    assert "accuracy" not in text
    card = (run / "README.md").read_text(encoding="utf-8")
    assert "A model that gives Chinese texts a score" in card
    assert "decision.json" in card


def test_predictions_are_those_of_the_run_also_before_its_report(run, tmp_path, capsys):
    wanted = read_predictions(run / "predictions.csv")
    unfinished = tmp_path / "unfinished"
    shutil.copytree(run, unfinished, ignore=shutil.ignore_patterns("decision.json"))
    found = [float(row["score"]) for row in predict_again(unfinished, wanted, tmp_path / "found.csv")]
    assert found == pytest.approx([float(row["predicted"]) for row in wanted], rel=1e-5)
    with pytest.raises(InputError, match="the model gives numbers, not probabilities"):
        load(run).predict_proba(["好"])
    assert predict(["--checkpoint", str(run), "好"]) == 0
    last = capsys.readouterr().out.strip().rpartition(",")[2]
    assert float(last) == pytest.approx(load(run).predict(["好"])[0])
    assert predict(["--checkpoint", str(run), "--threshold", "0.9", "好"]) == 2
    assert "gives no probability" in capsys.readouterr().err


def test_rows_with_numbers_are_reported_on(run, tmp_path):
    source, folder = write_scores(tmp_path / "new.jsonl", rows=60, seed=3), tmp_path / "report"
    assert predict(["--checkpoint", str(run), "--input", str(source), "--report", str(folder)]) == 0
    assert json.loads((folder / "report.json").read_text(encoding="utf-8"))["spearman"] > 0.5


def test_an_exported_model_gives_the_same_numbers(run, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert export([str(run), "--output", str(tmp_path / "onnx")]) == 0
    proof = json.loads((tmp_path / "onnx" / "export.json").read_text(encoding="utf-8"))["proof"]
    assert proof["flipped"] == 0
    assert proof["spearman_change"] == pytest.approx([0, 0], abs=1e-4)
    texts = ["好天好", "天天天天"]
    assert load(tmp_path / "onnx").predict(texts) == pytest.approx(load(run).predict(texts), rel=1e-5)


def test_labels_that_are_far_off_are_found():
    pytest.importorskip("cleanlab", reason="needs cleanlab: pip install -r requirements/labels.txt")
    generator = np.random.default_rng(0)
    labels = generator.normal(5, 1, 300)
    predicted = labels + generator.normal(0, 0.2, 300)
    at = generator.permutation(300)[:15]
    labels[at] += 2 * np.where(labels[at] < 5, 1, -1)
    scores = SCORE.score(labels, predicted[:, None], predicted)
    order, _quality, flagged = find_issues(SCORE, scores, predicted[:, None])
    assert flagged[at].all()
    assert set(order[: len(at)]) == set(at)
    figures = {"can_judge": True, "ranked": len(order), "flagged": int(flagged.sum())}
    text = rendered("label_issues", found=figures, kind="score")
    assert "rows are more than half a standard deviation off" in text
    figures = judge(scores) | {"can_judge": False}
    text = rendered("label_issues", found=figures, kind="score")
    assert f"at most half a standard deviation off in {figures['accuracy']:.1%} of the rows" in text
    assert "most frequent" not in text


STARS = open_task("ordinal", list("12345"))


def test_probabilities_add_up_and_thresholds_are_in_order():
    outputs = np.random.default_rng(0).normal(0, 5, (200, 5)).astype(np.float32)
    probabilities = STARS.probabilities(outputs)
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(200))
    assert (probabilities > 0).all()
    assert 1 - probabilities[:, 0] == pytest.approx(1 / (1 + np.exp(-outputs[:, 0].astype(np.float64))))
    again = STARS.class_logits(torch.from_numpy(outputs).double(), torch).exp().numpy()
    assert again == pytest.approx(probabilities)


def test_a_head_starts_at_the_shares_of_the_labels(tmp_path):
    task = task_of(write_stars(tmp_path / "a.jsonl"), "ordinal")
    shares = np.bincount(task.dataset.splits["train"].labels) / len(task.dataset.splits["train"])
    assert task.probabilities(task.head_bias[None])[0] == pytest.approx(shares, abs=0.01)


def test_gradients_are_finite_where_outputs_are_large():
    outputs = torch.tensor([[90.0, -200.0, 50.0, 0.0], [-90.0, 50.0, -200.0, 0.0]], requires_grad=True)
    for label in range(4):
        loss = -STARS.class_logits(outputs, torch)[:, label].sum()
        (gradient,) = torch.autograd.grad(loss, outputs)
        assert loss.isfinite()
        assert gradient.isfinite().all()


def test_metrics_are_those_of_scikit_learn():
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 5, 300)
    predicted = (labels + generator.integers(-2, 3, 300)).clip(0, 4)
    found = answer_metrics(STARS, labels, predicted)
    off = np.abs(labels - predicted)
    assert found["kappa"] == pytest.approx(cohen_kappa_score(labels, predicted, weights="quadratic"))
    assert found["within_one"] == pytest.approx((off <= 1).mean())
    assert found["macro_mae"] == pytest.approx(np.mean([off[labels == label].mean() for label in range(5)]))
    assert f"{answer_metrics(STARS, labels, np.full(300, 2))['kappa']:.4f}" == "0.0000"


def test_the_decision_is_the_median_and_says_how_sure_it_is():
    task = open_task("ordinal", list("abc"))
    probabilities = np.array([[0.4, 0.25, 0.35], [0.6, 0.3, 0.1], [0.1, 0.3, 0.6]])
    assert task.chosen(probabilities).tolist() == [1, 0, 2]
    assert task.confidence(probabilities).tolist() == [0.25, 0.6, 0.6]
    assert task.columns(probabilities[0], 0.3)["decision"] == "abstain"
    assert [task.ranked_labels(row).tolist() for row in probabilities] == [[1, 0, 2], [0, 1, 2], [2, 1, 0]]
    outputs = np.random.default_rng(1).normal(0, 2, (50, 5)).astype(np.float32)
    scores = STARS.score(np.arange(50) % 5, outputs)
    assert (scores.predicted == STARS.decide(outputs)).all()
    assert scores.confidence == pytest.approx(STARS.confidence(STARS.probabilities(outputs)))


def test_the_order_is_that_of_numbers_or_of_the_setting(tmp_path):
    def names(labels: list[str], **settings) -> list[str]:
        path = write_counted(tmp_path / "a.jsonl", "label", labels * 2)
        words = arguments(path, tmp_path / "run", data__task="ordinal", **settings)
        return open_dataset(load_config(words).data).label_names

    assert names(["10", "2", "-1.5"]) == ["-1.5", "2", "10"]
    assert names(["重", "中", "轻"], data__labels="[轻, 中, 重]") == ["轻", "中", "重"]
    for labels in (["轻", "中", "重"], ["1", "1.00", "2"]):
        with pytest.raises(InputError, match="the order of labels .* must be known, .* from the lowest"):
            names(labels)


def test_a_run_reports_on_ordered_labels(run_of):
    run = run_of("ordinal")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert list(report["classes"]) == ["1", "2", "10"]
    assert report["intervals"]["kappa"][0] > 0.3
    assert {"kappa", "macro_mae", "within_one", "accuracy"} <= set(report["intervals"])
    assert report["baselines"]["majority class"]["kappa"] == 0
    assert "Cumulative logits" in (run / "README.md").read_text(encoding="utf-8")
    assert "Quadratic weighted kappa" in (run / "report.html").read_text(encoding="utf-8")
