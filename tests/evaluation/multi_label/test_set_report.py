"""Intervals, baselines, page and card of label sets: python -m pytest tests/evaluation/multi_label"""

from dataclasses import replace

import numpy as np
import pytest
from huggingface_hub import ModelCard
from sklearn.metrics import accuracy_score, f1_score

from app.checkpoints.model_card import write_card
from app.evaluation.baseline import Texts
from app.evaluation.card.card import render_card, split_content
from app.evaluation.multi_label.baseline import MOST_FREQUENT, label_set_baselines
from app.evaluation.multi_label.decisions import LabelRule, default_rule
from app.evaluation.multi_label.intervals import (
    FIGURES,
    SetFigures,
    alike,
    label_set_differences,
    label_set_intervals,
)
from app.evaluation.multi_label.metrics import label_set_metrics
from app.evaluation.multi_label.page import most_wrong_rows, render_label_set_page
from app.evaluation.multi_label.row_sets import decide_rows, summarize_sets
from app.evaluation.page.page import PageContent
from app.evaluation.page.rows import EvaluatedRows
from tests.evaluation.card.test_card import card
from tests.evaluation.test_page import HOSTILE, Checker


def random_sets(num_rows: int = 150, num_labels: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return 0/1 labels and logits that have something to do with them."""
    generator = np.random.default_rng(seed)
    labels = (generator.random((num_rows, num_labels)) < 0.3).astype(np.uint8)
    return labels, (labels * 2.0 - 1 + generator.normal(0, 1.5, labels.shape)).astype(np.float32)


def sklearn_figures(labels: np.ndarray, predicted: np.ndarray) -> list[float]:
    averages = [f1_score(labels, predicted, average=name, zero_division=0) for name in ("micro", "macro")]
    samples = f1_score(labels, predicted, average="samples", zero_division=1)
    return [*averages, samples, accuracy_score(labels, predicted)]


def test_resampled_figures_are_those_of_scikit_learn_on_the_drawn_rows():
    labels, logits = random_sets()
    predicted = logits > 0
    cells, counts = alike(labels, predicted)
    assert counts.sum() == len(labels)
    assert len(counts) < len(labels)
    figures = SetFigures(*cells)
    generator = np.random.default_rng(1)
    for drawn in (counts, generator.multinomial(len(labels), counts / counts.sum())):
        rows = [np.repeat(cell, drawn, axis=0) for cell in cells]
        assert figures(drawn[None])[:, 0].tolist() == pytest.approx(sklearn_figures(*rows))


def test_intervals_are_those_of_resampled_rows():
    labels, logits = random_sets()
    predicted = (logits > 0).astype(np.uint8)
    found = label_set_intervals(labels, predicted)
    generator = np.random.default_rng(2)
    drawn = [generator.integers(0, len(labels), len(labels)) for _ in range(400)]
    each = np.ones((1, len(labels)))
    resampled = np.array([SetFigures(labels[rows] > 0, predicted[rows] > 0)(each)[:, 0] for rows in drawn])
    for at, name in enumerate(FIGURES):
        low, high = np.quantile(resampled[:, at], [0.025, 0.975])
        assert found[name] == pytest.approx((low, high), abs=0.02)


def test_differences_are_paired():
    labels, logits = random_sets(400)
    one = logits > 0
    better = one.copy()
    better[:40] = labels[:40]
    found = label_set_differences(labels, one, better, np.random.default_rng(0))
    for at, name in enumerate(FIGURES):
        difference, (low, high) = found[name]
        assert difference == pytest.approx(
            sklearn_figures(labels, better)[at] - sklearn_figures(labels, one)[at]
        )
        assert 0 < low < difference < high
    same = label_set_differences(labels, one, one, np.random.default_rng(0))
    assert set(same.values()) == {(0.0, (0.0, 0.0))}


def texts_of(labels: np.ndarray) -> Texts:
    """Return texts with a character for each label that they have."""
    texts = [
        "的" + "".join(character for character, has in zip("甲乙丙丁", row, strict=True) if has)
        for row in labels
    ]
    return Texts(labels, lambda positions: [texts[position] for position in positions])


def test_baselines_learn_what_characters_say_and_keep_the_limits():
    labels, _ = random_sets(300)
    train, dev, test = (texts_of(part) for part in (labels[:200], labels[200:250], labels[250:]))
    found = label_set_baselines(train, dev, test, default_rule(4))
    assert found["TF-IDF + logistic regression"]["micro_f1"] == 1
    assert found["TF-IDF + logistic regression"]["intervals"]["micro_f1"] == [1, 1]
    assert found[MOST_FREQUENT]["micro_f1"] == 0, "the most frequent set is the empty one"
    assert found[MOST_FREQUENT]["subset_accuracy"] == (labels[250:].sum(axis=1) == 0).mean()
    one_each = label_set_baselines(train, dev, test, default_rule(4, 1, 1))["TF-IDF + logistic regression"]
    assert one_each["subset_accuracy"] == (labels[250:].sum(axis=1) == 1).mean()
    without = label_set_baselines(train, None, test, default_rule(4))
    assert without["TF-IDF + logistic regression"]["micro_f1"] > 0.9


def page_of_sets(
    names: list[str], text=lambda at: f"文本 {at}", rule: LabelRule | None = None
) -> PageContent:
    labels, logits = random_sets(300, len(names))
    rule = rule or default_rule(len(names))
    rows = decide_rows(labels, logits, rule)
    metrics = label_set_metrics(labels, logits, rule, names) | summarize_sets(rows) | {"step": 20}
    figures = dict.fromkeys(FIGURES, 0.25) | {
        "intervals": {name: [0.2, 0.3] for name in FIGURES},
        "rows": 300,
    }
    metrics["baselines"] = {MOST_FREQUENT: figures, "TF-IDF + logistic regression": figures}
    generator = np.random.default_rng(0)
    evaluated = EvaluatedRows(rows, names, text, "test.tsv, line {}".format, generator.integers(3, 60, 300))
    history = [
        {"step": step, "split": "dev", "loss": 1.0, "micro_f1": 0.5, "macro_f1": 0.4, "subset_accuracy": 0.3}
        for step in (10, 20, 30)
    ]
    return PageContent("run-001 · Report", evaluated, metrics, None, history)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("num_labels", [2, 250])
def test_the_page_is_whole_and_loads_nothing(num_labels, language):
    names = [f"标签{number}" for number in range(num_labels)]
    content = page_of_sets(names)
    page = render_label_set_page(content, default_rule(num_labels), language)
    checked = Checker(page)
    assert "script" not in checked.tags
    assert not {"src", "href", "onload"} & {name for name, _ in checked.attributes}
    for name in FIGURES:
        low, high = content.metrics["intervals"][name]
        assert f"[{low:.4f}, {high:.4f}]" in checked.text
    assert (
        "总是预测最多的标签组合" if language == "zh" else "Always the most frequent set of labels"
    ) in checked.text
    assert (
        "错误标签最多的样本" if language == "zh" else "The rows with the most wrong labels"
    ) in checked.text
    assert checked.tags.count("polyline") == 4


def test_the_rows_with_the_most_wrong_labels_come_first():
    content = page_of_sets(list("甲乙丙丁"))
    scores = content.rows.scores
    shown = most_wrong_rows(content)
    wrong = [row["num_wrong"] for row in shown]
    assert wrong == sorted(scores.num_wrong.tolist(), reverse=True)[: len(wrong)]
    at = int(shown[0]["text"].removeprefix("文本 "))
    assert len(set(shown[0]["true"]) ^ set(shown[0]["predicted"])) == wrong[0] == scores.num_wrong[at]


def test_texts_and_labels_of_strangers_cannot_act():
    names = [f"{text[:60]}{number}" for number, text in enumerate(HOSTILE)]
    content = page_of_sets(names, lambda at: HOSTILE[at % len(HOSTILE)])
    page = render_label_set_page(content, default_rule(len(names)))
    page.encode()
    checked = Checker(page)
    assert not {"script", "img"} & set(checked.tags)
    assert "<script>alert(1)</script>" in checked.text


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_card_has_the_figures_and_thresholds_of_label_sets(tmp_path, language):
    content = replace(card(), metrics=page_of_sets(["甲", "乙", "丙"]).metrics)
    loaded = ModelCard.load(write_card(tmp_path, render_card(content, language)))
    averages = {result.metric_args["average"]: result.metric_value for result in loaded.data.eval_results}
    assert averages == {name: round(content.metrics[f"{name}_f1"], 4) for name in ("micro", "macro")}
    for name in FIGURES:
        low, high = content.metrics["intervals"][name]
        assert f"| {content.metrics[name]:.4f} | {low:.4f} to {high:.4f} |" in loaded.text
        assert f"| {content.metrics[name]:.4f} | {low:.4f} 至 {high:.4f} |" in loaded.text
    scores = content.metrics["classes"]["乙"]
    cells = " | ".join(f"{scores[key]:.4f}" for key in ("precision", "recall", "f1"))
    assert loaded.text.count(f"| 乙 | {cells} | {scores['support']} | {scores['threshold']:.4f} |") == 2
    assert 'function_to_apply="sigmoid"' in loaded.text
    assert "alibration" not in loaded.text
    worse = render_card(replace(content, metrics=content.metrics | {"micro_f1": 0.1}))
    assert "**It is no better than a baseline** (most frequent set, TF-IDF + logistic regression)." in worse


def test_content_of_a_split_depends_on_the_label_sets_and_not_on_the_order():
    labels, _ = random_sets(60)
    hashes = np.random.default_rng(0).integers(0, 1 << 60, 60).astype(np.uint64)
    first, order = split_content(hashes, labels), np.random.default_rng(1).permutation(60)
    assert split_content(hashes[order], labels[order]) == first
    other = labels.copy()
    other[3, 2] ^= 1
    assert split_content(hashes, other) != first
