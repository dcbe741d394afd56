"""What people read: report.txt, report.html and the model card of every kind of answer, whose figures stay
what they were, and of unusual rows.

Where a figure is meant to change, write golden.json with python -m tests.report.test_report_files, and look
at the difference.
"""

from __future__ import annotations

import html
import json
import re
import tempfile
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt

from app.checkpoints.run_files import CARD, PAGE, PREDICTIONS, TEXT
from app.config.command_line import load_config
from app.data.dataset import Split
from app.report.bootstrap import all_metrics
from app.report.card import render_card
from app.report.charts import training_curves
from app.report.metrics import BY_KEY, metrics_of
from app.report.page import PageRows, render_page
from app.report.row_groups import row_groups
from app.report.template_environment import template_environment
from app.report.text_report import report_text
from app.tasks import open_task
from app.training.advice_evidence import is_loss_of_dev
from app.training.card_content import card_content
from app.words import _
from tests.report.rows_case import KINDS, Written, random_rows, report_of
from tests.verbs import spoken_in

GOLDEN = Path(__file__).with_name("golden.json")
VOID = {"meta", "line", "circle", "polyline", "br"}
# What the page or the card says of a kind of answer only
SENTENCES = {
    "two_classes": ["Average precision", "Recall at precision 0.9"],
    "many_classes": ["most frequent confusions"],
    "multi_label": ["Always the most frequent set of labels", 'function_to_apply="sigmoid"'],
    "ordinal": ["Quadratic weighted kappa", "Cumulative logits"],
    "regression": ["The rows that are furthest off", "A model that gives Chinese texts a score", "**Unit.**"],
    "single_path": ["Upper levels, with all that is below them", "stops at the deepest level"],
    "multi_path": ["Upper levels, with all that is below them", "has all that is above it"],
}


class Checker(HTMLParser):
    """Collects tags, attributes and text of a page, and that every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def check_harmless(page: str) -> Checker:
    """The page is whole, runs nothing, loads nothing, and has no characters that cannot be seen."""
    checked = Checker(page)
    assert not {"script", "img"} & set(checked.tags)
    assert not {"src", "onload", "onclick", "onerror"} & {name for name, _ in checked.attributes}
    assert not re.search(r"https?:|url\(|@import", page)
    assert not HIDDEN.search(page)
    return checked


def check_page(written: Written, language: str) -> None:
    """The page is harmless, and has every figure with its interval, the charts of its kind, and
    the errors of which the model was surest, or the worst."""
    page = written.read(PAGE)
    metrics = written.report
    task = written.task
    scores = written.scores
    checked = check_harmless(page)
    # Links lead to sections of the page
    targets = [value for name, value in checked.attributes if name == "href"]
    assert "#headline" in targets
    # In the order of the sections
    assert [target[1:] for target in targets] == [value for name, value in checked.attributes if name == "id"]
    commands = [advice["command"] for advice in metrics["what_next"]]
    shown_commands = re.findall(r'<code class="command">(.*?)</code>', page)
    shown_commands = [
        html.unescape(command).replace(str(written.folder), "RUN") for command in shown_commands
    ]
    assert shown_commands == commands
    assert f" {metrics['rows']:,} " in checked.text
    for metric in metrics_of(task):
        if metric.has_interval:
            assert spoken_in(language, getattr, metric, "title") in checked.text
            low, high = metrics["intervals"][metric.key]
            assert f"{metrics[metric.key]:.4f}[{low:.4f}, {high:.4f}]" in checked.text
    assert all(f"<bdi>{name}</bdi>" in page for name in metrics.get("parents", ()))
    assert page.count('class="matrix') == ("confusion_matrix" in metrics)
    # Of the curves; of calibration and risk; of numbers that are predicted as they are
    others = {"label": 3 + ("calibration" in metrics), "labels": 0, "score": 1}[task.answer_column]
    # The loss of training is drawn beside that of dev
    assert checked.tags.count("polyline") == len(task.log_metrics) + 1 + others
    assert not re.search(r"nan|NaN|None|inf\b", re.sub(r"[a-z-]*final|info", "", page))
    place = r"test\.jsonl, line \d+" if language == "en" else r"test\.jsonl 第 \d+ 行"
    errors = re.split(place, checked.text)[:-1]
    if task.answer_column == "labels":
        worst = sorted(scores.num_wrong.tolist(), reverse=True)[:20]
        assert [int(re.findall(r"[:：] ?(\d+) · ", error)[-1]) for error in errors] == worst
    elif task.answer_column == "label":
        surest = np.sort(scores.confidence[~scores.correct])[::-1][:20]
        percentages = [re.findall(r" · ([\d.]+) % · ", error)[-1] for error in errors]
        assert percentages == [f"{confidence * 100:.1f}" for confidence in surest]


def check_card(written: Written, language: str) -> None:
    """A hub reads the metadata of the card, which has every figure with its interval in both languages."""
    loaded = ModelCard.load(written.folder / CARD)
    metrics = written.report
    task = written.task
    metadata = loaded.data
    assert (metadata.language, metadata.library_name) == (["zh"], "transformers")
    assert metadata.pipeline_tag == "text-classification"
    results = [
        (result.metric_type, result.metric_args, result.metric_value) for result in metadata.eval_results
    ]
    expected = []
    for key in task.baseline_metrics:
        average, _underscore, name = key.rpartition("_")
        arguments = {"average": average} if average else None
        expected.append((name, arguments, round(metrics[key], 4)))
    assert results == expected
    assert {result.dataset_split for result in metadata.eval_results} == {"test"}
    for key, (low, high) in metrics["intervals"].items():
        assert f"| {metrics[key]:.4f} | {low:.4f} to {high:.4f} |" in loaded.text
        assert f"| {metrics[key]:.4f} | {low:.4f} 至 {high:.4f} |" in loaded.text
    assert (loaded.text.index("## Limits") < loaded.text.index("## 局限")) == (language == "en")
    assert not re.search(r"\bnan\b|None|Undefined|\n\n\n\n", loaded.text.replace("top_k=None", ""))
    if "calibration" in metrics:
        assert f"{metrics['calibration']['temperature']:.3f}" in loaded.text
    assert ("alibration" in loaded.text) == (task.answer_column == "label")
    for name, scores in metrics["classes"].items() if task.answer_column == "labels" else ():
        cells = " | ".join(f"{scores[key]:.4f}" for key in ("precision", "recall", "f1"))
        row = f"| {name} | {cells} | {scores['support']} | {scores['threshold']:.4f} |"
        assert loaded.text.count(row) == 2


def golden(written: Written) -> dict:
    """Return the figures and the text, in which commands have RUN in place of the run's folder."""
    text = written.read(TEXT).replace(str(written.folder), "RUN")
    return {"report": written.report, "text": text.splitlines()}


def flat(value, where: str = "") -> dict:
    """Return the values of a report by where they are."""
    if not isinstance(value, (dict, list)):
        return {where: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    values = {}
    for name, part in parts:
        values |= flat(part, f"{where}.{name}")
    return values


@pytest.mark.parametrize("answer_kind", KINDS)
def test_the_report_of_a_kind_of_answer_is_whole_and_its_figures_are_those_that_are_kept(
    answer_kind, tmp_path
):
    """Values may differ by 1e-12, ends of intervals by 0.002. The solver of ridge regression stops at a
    tolerance: processors of two kinds were seen to end 4e-11 apart."""
    stored = json.loads(GOLDEN.read_text(encoding="utf-8"))[answer_kind]
    written = report_of(tmp_path, answer_kind)
    current = golden(written)
    expected = flat(stored["report"])
    for where, value in expected.items():
        if isinstance(value, float):
            tolerance = 0.002 if "interval" in where else 1e-9 if "ridge" in where else 1e-12
            expected[where] = pytest.approx(value, rel=tolerance, abs=tolerance)
    assert flat(current["report"]) == expected
    assert stored["text"] == current["text"]
    if written.task.has_labels:
        check_page(written, "en")
        check_card(written, "en")
        has_rare_class = answer_kind == "two_classes"
        assert ("The rarer class is 少见; of two with equally many" in written.read(TEXT)) == has_rare_class
        columns = written.read(PREDICTIONS).splitlines()[0]
        assert columns.endswith(",most_probable") == (answer_kind == "many_classes")
        both = written.read(PAGE) + written.read(CARD)
        assert [sentence for sentence in SENTENCES.get(answer_kind, ()) if sentence not in both] == []


# It matches a mark of English beside a Chinese character
HALF_WIDTH = "[\u4e00-\u9fff][:,;(].{,9}|.{,9}[:,;)][\u4e00-\u9fff]"


@pytest.mark.parametrize("answer_kind", ["two_classes", "many_classes", "multi_label"])
def test_a_chinese_report_has_no_english_words_but_names(answer_kind, tmp_path):
    written = report_of(tmp_path, answer_kind, "zh")
    check_page(written, "zh")
    check_card(written, "zh")
    # Names of methods and settings; what to do next has commands too
    text = written.read(TEXT).partition(spoken_in("zh", _, "What next?"))[0]
    text = re.sub("python -m app .*", "", text)
    names = {"TF-IDF", "Brier", "ROC-AUC", "dev", "test", "report.json"}
    names |= {"data.long", "data.max_length", "cut"}
    assert set(re.findall(r"[A-Za-z][A-Za-z0-9_.-]{2,}", text)) - names - BY_KEY.keys() == set()
    assert re.findall(HALF_WIDTH, text) == []


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "abc\u202egnp.exe\u2066x",
    "\x1b[31mred\x00\x07",
    "\ud800 alone",
    "x" * 1_000_000,
]
# Labels, and what a terminal shows of them
ON_A_TERMINAL = {
    "\x1b[2J清屏": "\\x1b[2J清屏",
    "\u202e反": "\\u202e反",
    "a|b\n---\nlicense: mit": "a|b\\n---\\nlicense: mit",
    "字" * 300: "字" * 19 + "…",
    "a" + "\x1b" * 300: "a" + "\\x1b" * 9 + "\\x…",
    "[x](javascript:1)": "[x](javascript:1)",
    "`code` **bold**": "`code` **bold**",
    "{{ 7*7 }}": "{{ 7*7 }}",
    "<script>alert(1)</script>": "<script>alert(1)</script>",
}
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]")
# Kinds, and how many labels they have beside those of strangers
STRANGERS = [("single_label", 0), ("single_label", 60), ("multi_label", 0)]


@pytest.mark.parametrize(("answer_kind", "num_others"), STRANGERS)
def test_texts_and_names_of_strangers_cannot_act(answer_kind, num_others, tmp_path):
    names = [*ON_A_TERMINAL, *(f"类别{number}" for number in range(num_others))]
    # A file with half a character is refused
    texts = tuple(text[:5000] for text in HOSTILE if "\ud800" not in text)
    written = report_of(tmp_path, answer_kind, labels=names, texts=texts, name="--- x: <b>")
    page, text, card = (written.read(name) for name in (PAGE, TEXT, CARD))
    checked = check_harmless(page)
    assert "<script>alert(1)</script>" in checked.text, "it is shown"
    assert "{{ 7*7 }}" in checked.text
    assert "‹U+001B›" in page
    assert len(page) < 300_000
    assert set(written.report["classes"]) == set(names)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert num_others or all(f"\n{label} " in text for label in ON_A_TERMINAL.values())
    loaded = ModelCard.load(written.folder / CARD)
    assert loaded.data.get("license") is None
    rendered = MarkdownIt("commonmark").enable("table").render(loaded.text)
    assert not re.search("<(script|b|a|img)[ >]", rendered)
    assert not HIDDEN.search(card)
    assert "‹U+202E›" in page
    if not num_others:
        assert "‹U+202E›" in card
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in rendered
        assert "{{ 7*7 }}" in rendered
        rows = re.findall(r"^\| .*? \|( [\d.]+ \|){3} \d+ \|", loaded.text, re.MULTILINE)
        assert len(rows) == 2 * len(names)


@pytest.mark.parametrize(("num_rows", "num_labels"), [(1, 2), (3000, 300)])
def test_pages_of_one_row_and_of_many_classes(num_rows, num_labels):
    labels, logits = random_rows("single_label", num_rows, num_labels)
    task = open_task("single_label", [f"类别{label:03d}" for label in range(num_labels)])
    scores, lengths = task.score(labels, logits), np.arange(num_rows) % 60
    rows = PageRows(text=str, where=str, lengths=lengths, readings=lengths % 3)
    page = render_page(task, scores, all_metrics(task, scores), rows, page_title="run")
    assert not re.search(r"nan|NaN|None|inf\b", page)
    assert len(page.encode()) < 300_000
    assert ("The 40 classes with the lowest F1, of 300" in page) == (num_labels > 2)
    assert ("The 50 most frequent confusions" in page) == (num_labels > 2)


def test_the_training_loss_is_beside_that_of_dev_or_has_a_chart_of_its_own():
    """It is beside the loss on dev where it is the same loss, on the same axes. A run from before a version
    that kept it has none."""
    history = [
        {"step": 10, "split": "dev", "loss": 1.0, "train_loss": 2.0},
        {"step": 20, "split": "dev", "loss": 0.5, "train_loss": 0.25},
    ]
    curves = training_curves(history, ["loss"], best_step=20, is_same_loss=True)
    assert list(curves) == ["loss"]
    points = [*curves["loss"].chart.points, *curves["loss"].train_points]
    # Smaller losses are lower in the drawing, whose heights count from the top
    heights = [height for _place, height in points]
    assert sorted(heights) == [heights[2], heights[0], heights[1], heights[3]]
    curves = training_curves(history, ["loss"], best_step=20, is_same_loss=False)
    assert list(curves) == ["loss", "train_loss"]
    assert len(curves["loss"].train_points) == 0
    for line in history:
        del line["train_loss"]
    for is_same_loss in (True, False):
        curves = training_curves(history, ["loss"], best_step=20, is_same_loss=is_same_loss)
        assert list(curves) == ["loss"]
        assert list(curves["loss"].train_points) == []


@pytest.mark.parametrize(
    ("settings", "is_same"),
    [
        ([], True),
        (["--train.loss", "focal"], False),
        (["--train.class_weights", "balanced"], False),
    ],
)
def test_losses_of_training_and_dev_are_compared_only_where_they_are_the_same(settings, is_same):
    config = load_config(["--data.train", "rows.csv", *settings])
    rows = Split("train", table=None, rows=np.arange(2), labels=np.array([0, 1]))
    assert is_loss_of_dev(config.train, rows) == is_same
    with_shares = replace(rows, targets=np.array([[0.8, 0.2], [0, 1]], np.float32))
    assert not is_loss_of_dev(config.train, with_shares)


def test_groups_count_every_row_once():
    generator = np.random.default_rng(0)
    correct = generator.random(500) < 0.8
    lengths = generator.integers(3, 60, 500)
    readings = generator.integers(0, 3, 500)
    seen = generator.integers(0, 2, 500)
    by_length, by_reading, by_seen = row_groups(correct, lengths, readings, seen).values()
    for groups in (by_length, by_reading, by_seen):
        assert sum(group["rows"] for group in groups.values()) == 500
        right = sum(group["accuracy"] * group["rows"] for group in groups.values())
        assert right == pytest.approx(correct.sum())
        for group in groups.values():
            assert group["interval"][0] <= group["accuracy"] <= group["interval"][1]
    assert list(by_reading) == ["read whole", "read whole, in several windows", "not read whole"]
    assert list(by_seen) == ["new text", "near copy of a training text"]
    assert by_seen["new text"]["rows"] == (seen == 0).sum()
    name, first = next(iter(by_length.items()))
    low, high = map(int, name.split("–"))
    assert first["rows"] == ((lengths >= low) & (lengths <= high)).sum()


def test_limits_on_a_card_are_those_of_the_figures_and_the_data(tmp_path):
    written = report_of(tmp_path, "single_label")
    metrics = written.report
    content = card_content("sample-001", written.components, "test", metrics, {"seed": 42})
    content |= {"data": {"test": {"also_in": {"train": 2}}, "train": {"conflicting": 7}}}
    content |= {"base_model": "org/base", "hub_name": "org/base", "max_length": 128}
    text = render_card(content)
    assert "base_model: org/base" in text
    assert "Rows of test whose text is in train too: 2." in text
    assert "Texts in train with more than one label: 7." in text
    assert "no better than a baseline" not in text
    assert "Training: seed 42." in text
    worst = min(metrics["classes"], key=lambda name: metrics["classes"][name]["f1"])
    assert f"\nWeak: {worst}" in text
    worse = render_card(content | {"metrics": metrics | {"macro_f1": 0.01}})
    assert "**It is no better than a baseline** (majority class, TF-IDF + logistic regression)." in worse
    without = {key: value for key, value in metrics.items() if "calibration" not in key}
    assert "no temperature was fitted on dev rows" in render_card(content | {"metrics": without, "data": {}})
    assert "rows of dev, which also chose the checkpoint." in render_card(content | {"split": "dev"})
    assert "rows of train, the rows it was trained on." in render_card(content | {"split": "train"})
    sentences = {"cut": "Texts are cut at 128", "windows": "in up to 8 windows", "head_tail": "end are read"}
    for long, sentence in sentences.items():
        assert sentence in render_card(content | {"long": long})


def test_one_row_is_in_the_singular():
    template = template_environment().get_template("calibration.jinja")
    few_rows = {"no_calibration": {"why": "few_rows", "rows": 1}}
    line = spoken_in("en", template.module.calibration_line, few_rows)
    assert line.endswith(": dev has 1 row, too few to fit a temperature.")
    task = open_task("masked_language_modelling", [])
    metrics = {"targets": 1, "rows": 1, "perplexity": 2.0, "accuracy": 1.0, "loss": 0.7}
    text = spoken_in("en", report_text, task, metrics, {}, "Report")
    assert "1 masked token of 1 row, the same before and after" in text


if __name__ == "__main__":
    reports = {}
    for name in KINDS:
        with tempfile.TemporaryDirectory() as place:
            reports[name] = golden(report_of(Path(place), name))
    GOLDEN.write_text(json.dumps(reports, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
