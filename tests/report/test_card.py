"""The model card of a run: python -m pytest tests/report/test_card.py"""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from app.checkpoints.run_history import CARD, write_card
from app.report.card import CardContent, SplitFacts, render_card, split_content
from tests.report.rows_case import page_content, random_rows
from tests.spoken import spoken_in


def card(
    num_labels: int = 3, names: list[str] | None = None, task: str = "single_label", **changes
) -> CardContent:
    names = names or [f"类别{label}" for label in range(num_labels)]
    page = page_content(task, 400, names)
    facts = SplitFacts("rows.csv", 400, "csv abcd", "ef01")
    data = {"test": {"also_in": {"train": 2}}, "train": {"conflicting": 7}}
    content = CardContent(
        "sample-001",
        page.task,
        "test",
        page.metrics,
        data,
        {"train": facts, "test": facts},
        "bert",
        None,
        None,
        128,
        {"seed": 42},
        False,
    )
    return replace(content, **changes)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("num_labels", [2, 3, 119])
def test_hub_reads_its_metadata_and_figures(tmp_path, language, num_labels):
    content = card(num_labels, base_model="org/base", hub_name="org/base")
    write_card(tmp_path, spoken_in(language, render_card, content))
    loaded = ModelCard.load(tmp_path / CARD)
    assert loaded.data.language == ["zh"]
    assert loaded.data.pipeline_tag == "text-classification"
    assert loaded.data.library_name == "transformers"
    assert loaded.data.base_model == "org/base"
    by_type = {result.metric_type: result for result in loaded.data.eval_results}
    assert by_type["accuracy"].metric_value == round(content.metrics["accuracy"], 4)
    assert by_type["f1"].metric_value == round(content.metrics["macro_f1"], 4)
    assert by_type["f1"].dataset_split == "test"
    assert by_type["f1"].dataset_revision == "ef01"
    for key in ("accuracy", "macro_f1", "loss", "brier", "ece"):
        low, high = content.metrics["intervals"][key]
        assert f"| {content.metrics[key]:.4f} | {low:.4f} to {high:.4f} |" in loaded.text
        assert f"| {content.metrics[key]:.4f} | {low:.4f} 至 {high:.4f} |" in loaded.text
    assert f"{content.metrics['calibration']['temperature']:.3f}" in loaded.text
    assert (loaded.text.index("## Limits") < loaded.text.index("## 局限")) == (language == "en")
    assert not re.search(r"\bnan\b|None|Undefined|\n\n\n\n", loaded.text)


def test_limits_are_those_of_the_figures_and_the_data():
    text = render_card(card())
    assert "Rows of test whose text is in train too: 2." in text
    assert "Texts in train with more than one label: 7." in text
    assert "no better than a baseline" not in text
    content = card()
    weak = {"macro_f1": 0.2}
    worse = render_card(replace(content, metrics=content.metrics | weak))
    assert "**It is no better than a baseline** (majority class, TF-IDF + logistic regression)." in worse
    without = {
        key: value for key, value in content.metrics.items() if key not in ("calibration", "baselines")
    }
    assert "no temperature was fitted on dev rows" in render_card(replace(content, metrics=without, data={}))
    facts = content.splits["test"]
    of_dev = replace(content, split="dev", splits={"dev": facts})
    assert "rows of dev, which also chose the checkpoint." in render_card(of_dev)
    of_train = replace(content, split="train")
    assert "rows of train, the rows it was trained on." in render_card(of_train)


@pytest.mark.parametrize(
    ("long", "said"),
    [("cut", "Texts are cut at 128"), ("windows", "in up to 8 windows"), ("head_tail", "end are read")],
)
def test_what_is_read_of_long_texts_is_said(long, said):
    assert said in render_card(card(long=long))


def test_weak_classes_are_those_below_the_mean_and_confusions_are_the_most_frequent():
    content = card(6)
    text = render_card(content)
    classes = content.metrics["classes"]
    worst = min(classes, key=lambda name: classes[name]["f1"])
    assert f"\nWeak: {worst} (F1 {classes[worst]['f1']:.4f})" in text
    matrix = np.array(content.metrics["confusion_matrix"])
    np.fill_diagonal(matrix, 0)
    label, predicted = np.unravel_index(matrix.argmax(), matrix.shape)
    assert f"Most often confused: 类别{label} taken for 类别{predicted} ({matrix.max()})" in text


def test_names_of_strangers_are_neither_markdown_nor_html_nor_metadata(tmp_path):
    names = [
        "<script>alert(1)</script>",
        "a|b\n---\nlicense: mit",
        "[x](javascript:1)",
        "`code` **bold**",
        "\u202egnp",
        "{{ 7*7 }}",
    ]
    content = card(names=names, name="---\nx: <b>")
    write_card(tmp_path, render_card(content))
    loaded = ModelCard.load(tmp_path / CARD)
    assert loaded.data.get("license") is None
    assert "‹U+202E›" in loaded.text
    assert "\u202e" not in (tmp_path / CARD).read_text(encoding="utf-8")
    page = MarkdownIt("commonmark").enable("table").render(loaded.text)
    tags = []

    class Tags(HTMLParser):
        def handle_starttag(self, tag, attrs):
            tags.append(tag)

    Tags().feed(page)
    assert not {"script", "b", "a", "img"} & set(tags)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "{{ 7*7 }}" in page
    rows = re.findall(r"^\| .*? \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \d+ \|$", loaded.text, re.MULTILINE)
    assert len(rows) == 2 * len(names)


@pytest.mark.parametrize("language", ["en", "zh"])
def test_the_card_of_several_labels_has_their_metrics_and_thresholds(tmp_path, language):
    content = card(names=["甲", "乙", "丙"], task="multi_label")
    write_card(tmp_path, spoken_in(language, render_card, content))
    loaded = ModelCard.load(tmp_path / CARD)
    averages = {result.metric_args["average"]: result.metric_value for result in loaded.data.eval_results}
    assert averages == {name: round(content.metrics[f"{name}_f1"], 4) for name in ("micro", "macro")}
    for key, (low, high) in content.metrics["intervals"].items():
        assert f"| {content.metrics[key]:.4f} | {low:.4f} to {high:.4f} |" in loaded.text
        assert f"| {content.metrics[key]:.4f} | {low:.4f} 至 {high:.4f} |" in loaded.text
    scores = content.metrics["classes"]["乙"]
    cells = " | ".join(f"{scores[key]:.4f}" for key in ("precision", "recall", "f1"))
    assert loaded.text.count(f"| 乙 | {cells} | {scores['support']} | {scores['threshold']:.4f} |") == 2
    assert 'function_to_apply="sigmoid"' in loaded.text
    assert "alibration" not in loaded.text
    worse = render_card(replace(content, metrics=content.metrics | {"micro_f1": 0.1}))
    assert "**It is no better than a baseline** (most frequent set, TF-IDF + logistic regression)." in worse


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_content_of_a_split_depends_on_texts_and_labels_and_not_on_their_order(task):
    generator = np.random.default_rng(0)
    hashes, labels = generator.integers(0, 1 << 60, 50).astype(np.uint64), random_rows(task, 50, 3)[0]
    first = split_content(hashes, labels)
    order = generator.permutation(50)
    assert split_content(hashes[order], labels[order]) == first
    assert split_content(hashes, np.roll(labels, 1, axis=0)) != first
    assert split_content(hashes[1:], labels[1:]) != first
