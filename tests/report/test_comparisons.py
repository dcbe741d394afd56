"""A model against its baselines on the same rows, and dev against the rows of the report."""

import numpy as np
import pytest

from app.ngrams.fit import fit_characters
from app.report.baselines import Sample, baselines, sample_positions
from app.report.bootstrap import all_metrics
from app.report.card import card_values
from app.report.paired_differences import MODEL_MINUS_BASELINE, verdict_on, verdicts
from app.report.split_gap import lead_of_dev, sentence_on_dev
from app.tasks import open_task
from tests.report.rows_case import random_rows
from tests.verbs import spoken_in

NAMES = list("甲乙丙丁")
LINEAR = "TF-IDF + logistic regression"


def compared(num_better: int, num_rows: int) -> dict:
    """Return the metrics of baselines and of a model that is right where the linear baseline is, and in so
    many more rows; half of the rows say nothing to the baseline."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 4, num_rows)
    texts = [NAMES[label] if row % 2 else "无" for row, label in enumerate(labels)]
    train = Sample([*NAMES * 30, *["无"] * 40], np.r_[np.tile(np.arange(4), 30), np.zeros(40, int)])
    task = open_task("single_label", NAMES)
    answers = np.where(np.arange(num_rows) % 2, labels, 0)
    more_right = np.flatnonzero(answers != labels)[:num_better]
    answers[more_right] = labels[more_right]
    report = Sample(texts, labels)
    metrics = all_metrics(task, task.score(labels, 9.0 * np.eye(4, dtype=np.float32)[answers]))
    characters = fit_characters(train.texts, train.labels, len(NAMES))
    metrics["baselines"] = baselines(task, train, None, report, characters, model_answers=answers)
    return metrics


def test_a_verdict_has_the_paired_interval():
    metrics = compared(50, 300)
    task = open_task("single_label", NAMES)
    figures = metrics["baselines"][LINEAR]
    difference = figures[MODEL_MINUS_BASELINE]["accuracy"]
    assert difference["difference"] == pytest.approx(metrics["accuracy"] - figures["accuracy"])
    low, high = difference["interval"]
    assert 0 < low < difference["difference"] < high
    # Both are right about half of the rows: drawn apart, they would differ by more
    unpaired = sum(np.diff(values["intervals"]["accuracy"])[0] ** 2 for values in (metrics, figures))
    assert high - low < 0.9 * unpaired**0.5
    verdict = verdict_on(metrics, "accuracy")
    assert (verdict.baseline, verdict.is_better, verdict.is_sure) == (LINEAR, True, True)
    assert [verdict.metric.key for verdict in verdicts(task, metrics)] == ["accuracy", "macro_f1"]
    assert verdict.sentence.endswith(f"({low:+.4f} to {high:+.4f}, same rows): surely better")
    assert "确实更好" in spoken_in("zh", lambda: verdict.sentence)


def test_a_difference_that_may_be_chance_is_called_so():
    metrics = compared(2, 60)
    verdict = verdict_on(metrics, "accuracy")
    assert verdict.is_better
    assert not verdict.is_sure
    assert verdict.sentence.endswith("not surely better")
    values = card_values({"task": open_task("single_label", NAMES), "metrics": metrics, "settings": {}})
    assert values["better_baselines"] == []
    assert values["unsure_verdict"].metric.key == "macro_f1"


def test_baselines_that_were_not_compared_have_no_verdict():
    metrics = compared(50, 300)
    for figures in metrics["baselines"].values():
        figures.pop(MODEL_MINUS_BASELINE)
    assert verdicts(open_task("single_label", NAMES), metrics) == []


def test_many_rows_are_drawn_once_for_baselines_and_model():
    positions = sample_positions(50_000)
    assert len(positions) == 20_000
    assert np.array_equal(positions, np.unique(positions))
    assert np.array_equal(positions, sample_positions(50_000))
    assert np.array_equal(sample_positions(3), np.arange(3))


def scored(noise: float, num_rows: int, name: str = "single_label"):
    """Return a task, and scores of random rows; more noise makes more errors."""
    task = open_task(name, NAMES)
    labels, logits = random_rows(name, num_rows, 4)
    generator = np.random.default_rng(1)
    return task, task.score(labels, (logits + noise * generator.normal(size=logits.shape)).astype(np.float32))


def test_dev_above_the_report_beyond_chance_is_said():
    task, dev = scored(0, 200)
    task.best_metric = "macro_f1"
    _, worse = scored(3, 200)
    metrics = all_metrics(task, worse)
    lead = lead_of_dev(task, dev, metrics)
    assert lead["metric"] == "macro_f1"
    assert lead["value"] > metrics["intervals"]["macro_f1"][1]
    sentence = sentence_on_dev(metrics | {"dev_is_better": lead})
    assert f"On dev macro F1 is {lead['value']:.4f}" in sentence
    assert sentence != spoken_in("zh", sentence_on_dev, metrics | {"dev_is_better": lead})
    task.best_metric = "loss"
    assert lead_of_dev(task, dev, metrics)["value"] < metrics["loss"]
    assert lead_of_dev(task, worse, all_metrics(task, dev)) == {}
    assert lead_of_dev(task, dev, all_metrics(task, dev)) == {}
    assert sentence_on_dev(metrics) == ""


def test_few_rows_and_several_labels_say_nothing_of_dev():
    task, dev = scored(0, 12)
    task.best_metric = "macro_f1"
    _, worse = scored(2, 12)
    assert lead_of_dev(task, dev, all_metrics(task, worse)) == {}
    task, dev = scored(0, 200, "multi_label")
    task.best_metric = "micro_f1"
    _, worse = scored(6, 200, "multi_label")
    assert lead_of_dev(task, dev, all_metrics(task, worse)) == {}
