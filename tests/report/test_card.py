"""The model card of a run: python -m pytest tests/report/test_card.py"""

import re
from dataclasses import replace

import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from app.checkpoints.run_folder import CARD
from app.report.card import CardContent, render_card
from tests.report.rows_case import page_content
from tests.spoken import spoken_in


def card(
    num_labels: int = 3, names: list[str] | None = None, task: str = "single_label", **changes
) -> CardContent:
    page = page_content(task, 400, names or [f"类别{label}" for label in range(num_labels)])
    values = {
        "name": "sample-001",
        "task": page["task"],
        "split": "test",
        "metrics": page["metrics"],
        "data": {"test": {"also_in": {"train": 2}}, "train": {"conflicting": 7}},
        "splits": dict.fromkeys(("train", "test"), ("rows.csv", 400, "csv abcd")),
        "model_type": "bert",
        "base_model": "org/base",
        "hub_name": "org/base",
        "max_length": 128,
        "settings": {"seed": 42},
        "has_pairs": False,
    }
    return CardContent(**values | changes)


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(
    ("task", "num_labels", "averages"),
    [
        ("single_label", 2, {None: "accuracy", "macro": "macro_f1"}),
        ("single_label", 119, {None: "accuracy", "macro": "macro_f1"}),
        ("multi_label", 3, {"micro": "micro_f1", "macro": "macro_f1"}),
    ],
)
def test_hub_reads_its_metadata_and_figures(tmp_path, language, task, num_labels, averages):
    content = card(num_labels, task=task)
    metrics = content.metrics
    (tmp_path / CARD).write_text("---\n" + spoken_in(language, render_card, content), encoding="utf-8")
    loaded = ModelCard.load(tmp_path / CARD)
    said = loaded.data
    assert (said.language, said.pipeline_tag, said.library_name) == (
        ["zh"],
        "text-classification",
        "transformers",
    )
    assert said.base_model == "org/base"
    results = {(result.metric_args or {}).get("average"): result for result in said.eval_results}
    for average, key in averages.items():
        assert results[average].metric_value == round(metrics[key], 4)
        assert results[average].dataset_split == "test"
    for key, (low, high) in metrics["intervals"].items():
        assert f"| {metrics[key]:.4f} | {low:.4f} to {high:.4f} |" in loaded.text
        assert f"| {metrics[key]:.4f} | {low:.4f} 至 {high:.4f} |" in loaded.text
    assert (loaded.text.index("## Limits") < loaded.text.index("## 局限")) == (language == "en")
    shown = loaded.text.replace("top_k=None", "")
    assert not re.search(r"\bnan\b|None|Undefined|\n\n\n\n", shown)
    if task == "single_label":
        assert f"{metrics['calibration']['temperature']:.3f}" in loaded.text
        return
    scores = metrics["classes"]["类别1"]
    cells = " | ".join(f"{scores[key]:.4f}" for key in ("precision", "recall", "f1"))
    assert loaded.text.count(f"| 类别1 | {cells} | {scores['support']} | {scores['threshold']:.4f} |") == 2
    assert 'function_to_apply="sigmoid"' in loaded.text
    assert "alibration" not in loaded.text


def test_limits_are_those_of_the_figures_and_the_data():
    content = card(6)
    text, metrics = render_card(content), content.metrics
    assert "Rows of test whose text is in train too: 2." in text
    assert "Texts in train with more than one label: 7." in text
    assert "no better than a baseline" not in text
    assert "Training: seed 42." in text
    worst = min(metrics["classes"], key=lambda name: metrics["classes"][name]["f1"])
    assert f"\nWeak: {worst}" in text
    worse = render_card(replace(content, metrics=metrics | {"macro_f1": 0.2}))
    assert "**It is no better than a baseline** (majority class, TF-IDF + logistic regression)." in worse
    without = {key: value for key, value in metrics.items() if key not in ("calibration", "baselines")}
    assert "no temperature was fitted on dev rows" in render_card(replace(content, metrics=without, data={}))
    of_dev = replace(content, split="dev", splits={"dev": content.splits["test"]})
    assert "rows of dev, which also chose the checkpoint." in render_card(of_dev)
    assert "rows of train, the rows it was trained on." in render_card(replace(content, split="train"))


@pytest.mark.parametrize(
    ("long", "said"),
    [("cut", "Texts are cut at 128"), ("windows", "in up to 8 windows"), ("head_tail", "end are read")],
)
def test_what_is_read_of_long_texts_is_said(long, said):
    assert said in render_card(card(long=long))


def test_names_of_strangers_are_neither_markdown_nor_html_nor_metadata(tmp_path):
    names = [
        "<script>alert(1)</script>",
        "a|b\n---\nlicense: mit",
        "[x](javascript:1)",
        "`code` **bold**",
        "\u202egnp",
        "{{ 7*7 }}",
    ]
    (tmp_path / CARD).write_text(
        "---\n" + render_card(card(names=names, name="---\nx: <b>")), encoding="utf-8"
    )
    loaded = ModelCard.load(tmp_path / CARD)
    assert loaded.data.get("license") is None
    assert "‹U+202E›" in loaded.text
    assert "\u202e" not in (tmp_path / CARD).read_text(encoding="utf-8")
    page = MarkdownIt("commonmark").enable("table").render(loaded.text)
    assert not re.search("<(script|b|a|img)[ >]", page)
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "{{ 7*7 }}" in page
    rows = re.findall(r"^\| .*? \| [\d.]+ \| [\d.]+ \| [\d.]+ \| \d+ \|$", loaded.text, re.MULTILINE)
    assert len(rows) == 2 * len(names)
