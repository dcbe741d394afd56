"""The printed report, report.html and the model card: python -m pytest tests/report/test_shown.py"""

import re
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from sklearn.metrics import confusion_matrix

from app.checkpoints.run_folder import CARD
from app.report.metrics import metrics_of
from app.report.shown import (
    cost_of_length,
    render_card,
    render_page,
    report_text,
    row_groups,
    row_readings,
    rows_of_split,
    sections,
    visible,
)
from app.tasks import open_task
from tests.report.rows_case import TASKS, measured, page_content, random_rows
from tests.spoken import spoken_in
from tests.tiny import open_tiny

NAMES = ["中性", "正面", "负面"]
VOID = {"meta", "line", "circle", "polyline", "br"}


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


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize(("num_rows", "num_labels"), [(1, 2), (300, 3), (2000, 119)])
@pytest.mark.parametrize("task", TASKS)
def test_page_is_whole_and_loads_nothing(task, num_rows, num_labels, language):
    content = page_content(task, num_rows, [f"类别{label}" for label in range(num_labels)])
    page = spoken_in(language, lambda: render_page(**content))
    checked = Checker(page)
    assert "script" not in checked.tags
    assert not {"src", "onload", "onclick"} & {name for name, _ in checked.attributes}
    assert not re.search(r"https?:|url\(|@import", page)
    # Links lead to sections of the page
    targets = [value for name, value in checked.attributes if name == "href"]
    assert "#headline" in targets
    assert {target[1:] for target in targets} <= {value for name, value in checked.attributes if name == "id"}
    assert checked.text.count(f" {num_rows:,} ")
    for metric in metrics_of(content["task"]):
        if metric.has_interval:
            assert spoken_in(language, getattr, metric, "title") in checked.text
            low, high = content["metrics"]["intervals"][metric.key]
            assert f"{content['metrics'][metric.key]:.4f}[{low:.4f}, {high:.4f}]" in checked.text
    is_single = task == "single_label"
    assert page.count('class="matrix"') == (is_single and num_labels <= 30)
    # Of the curves, and of calibration and risk
    assert checked.tags.count("polyline") == 4 + is_single * (3 + bool(content["calibrated"]))
    assert not re.search(r"nan|NaN|None|inf\b", re.sub(r"[a-z-]*final|info", "", page))
    if task == "multi_label":
        several = {"en": "Always the most frequent set of labels", "zh": "总是预测最多的标签组合"}
        assert several[language] in checked.text


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "abc\u202egnp.exe\u2066x",
    "\x1b[31mred\x00\x07",
    "\ud800 alone",
    "x" * 1_000_000,
]


@pytest.mark.parametrize("task", TASKS)
def test_texts_and_labels_of_strangers_cannot_act(task):
    names = [f"{text[:60]}{number}" for number, text in enumerate(HOSTILE)]
    page = render_page(**page_content(task, 400, names, lambda at: HOSTILE[at % len(HOSTILE)]))
    page.encode()
    checked = Checker(page)
    assert not {"script", "img"} & set(checked.tags)
    assert "<script>alert(1)</script>" in checked.text, "it is shown"
    assert "{{ 7*7 }}" in checked.text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200b-\u200f\ud800-\udfff]", page)
    assert "‹U+202E›" in page
    assert "‹U+001B›" in page
    assert len(page) < 300_000


def test_visible_cuts_and_shows_code_points():
    assert visible("好\n人\t") == "好 人 "
    assert visible("a\u2028\ufeff") == "a‹U+2028›‹U+FEFF›"
    assert visible("好" * 300, 10) == "好" * 10 + "…"


@pytest.mark.slow
def test_pages_of_many_classes_and_rows_are_small():
    page = render_page(**page_content("single_label", 20_000, [f"类别{label:04d}" for label in range(1500)]))
    assert len(page.encode()) < 300_000
    assert "The 40 classes with the lowest F1, of 1500" in page
    assert "The 50 most frequent confusions" in page


def test_errors_are_those_of_the_rows_the_surest_or_worst_first():
    content = page_content("single_label", 500, NAMES)
    scores = content["scores"]
    found = sections(content["task"], scores, content["metrics"], None)
    assert np.trace(np.array(found["matrix"])) == scores.correct.sum()
    expected = np.sort(scores.confidence[~scores.correct])[::-1]
    assert scores.confidence[found["errors"]].tolist() == expected[:20].tolist()
    at = found["errors"][0]
    names = [NAMES[of[at]] for of in (scores.labels, scores.predicted)]
    sure = f"{expected[0] * 100:.1f} %"
    shown = f"文本 {at}true {names[0]} · predicted {names[1]} · {sure} · test.tsv, line {at}"
    assert shown in Checker(render_page(**content)).text
    content = page_content("multi_label", 300, list("甲乙丙丁"))
    num_wrong, found = content["scores"].num_wrong, sections(content["task"], content["scores"], {}, None)
    assert num_wrong[found["errors"]].tolist() == sorted(num_wrong.tolist(), reverse=True)[:20]


def test_groups_count_every_row_once():
    content = page_content("single_label", 500, NAMES)
    correct, lengths, seen = content["scores"].correct, content["lengths"], content["seen"]
    groups = row_groups(correct, lengths, content["readings"], seen)
    assert len(groups) == 3
    for found in groups.values():
        members = list(found.values())
        assert sum(group["rows"] for group in members) == 500
        right = sum(group["accuracy"] * group["rows"] for group in members)
        assert right == pytest.approx(correct.sum())
        assert all(group["interval"][0] <= group["accuracy"] <= group["interval"][1] for group in members)
    by_length, by_reading, by_seen = groups.values()
    assert {name: group["rows"] for name, group in by_seen.items()} == {
        "new text": (seen == 0).sum(),
        "near copy of a training text": (seen == 1).sum(),
    }
    assert list(by_reading) == ["read whole", "read whole, in several windows", "not read whole"]
    name, first = next(iter(by_length.items()))
    low, high = map(int, name.split("–"))
    assert first["rows"] == ((lengths >= low) & (lengths <= high)).sum()


def test_rows_of_a_split_know_their_text_place_and_length(tmp_path):
    dataset, _tokenizer, stores = open_tiny(tmp_path, pairs=True)
    split, train, store = dataset.splits["test"], dataset.splits["train"], stores["test"]
    rows = rows_of_split(split, train, store)
    for position, row in enumerate(split.rows):
        assert rows["lengths"][position] == len(store.row(row))
        assert rows["text"](position) == f"{split.table.text(row)} ⟷ {split.table.pair(row)}"
        assert rows["where"](position) == split.table.where(row)
    assert not rows["seen"].any()
    assert rows_of_split(train, train, store)["seen"] is None


def rendered(metrics: dict) -> str:
    task = open_task("single_label", list(metrics["classes"]))
    return report_text(task, metrics | {"intervals": {}}, {}, "title")


def test_confusions_of_many_classes_are_those_of_the_matrix():
    names = [f"类别{index}" for index in range(60)]
    labels, logits = random_rows("single_label", 2000, 60, 3)
    confusions = measured(labels, logits, names)["confusions"]
    matrix = confusion_matrix(labels, logits.argmax(1))
    wrong = {(names[i], names[j]): n for (i, j), n in np.ndenumerate(matrix) if i != j and n}
    assert {(true, predicted): rows for true, predicted, rows in confusions} == wrong
    assert [rows for *_, rows in confusions] == sorted(wrong.values(), reverse=True)
    right = np.eye(60, dtype=np.float32)
    assert "No class was taken for another." in rendered(measured(np.arange(60), right, names))


ON_A_TERMINAL = {
    "\x1b[2J清屏": "\\x1b[2J清屏",
    "\u202e反": "\\u202e反",
    "a\nb": "a\\nb",
    "字" * 300: "字" * 19 + "…",
    "\x1b" * 300: "\\x1b" * 9 + "\\x1…",
}


@pytest.mark.parametrize("num_others", [0, 60])
def test_labels_are_harmless_on_a_terminal(num_others):
    names = [*ON_A_TERMINAL, *(f"类别{index}" for index in range(num_others))]
    metrics = measured(np.arange(len(names)), np.eye(len(names), dtype=np.float32)[::-1], names)
    text = rendered(metrics)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert num_others or all(f"\n{shown} " in text for shown in ON_A_TERMINAL.values())
    assert set(metrics["classes"]) == set(names)


@pytest.mark.parametrize("name", TASKS)
def test_a_chinese_report_has_no_english_words_but_names(name):
    content = page_content(name, 300, ["甲", "乙", "丙"])
    shown = content["task"], content["metrics"], {}, ""
    english, chinese = report_text(*shown), spoken_in("zh", report_text, *shown)
    # Names of methods and metrics
    kept = re.compile(r"TF-IDF|Brier|F1|dev|test|these rows")
    assert not re.search("[A-Za-z]{3}", kept.sub("", chinese)), chinese
    assert re.findall(r"\d\.\d{4}", chinese) == re.findall(r"\d\.\d{4}", english)


ROWS, RIGHT = np.array([4, 0, 1, 3, 2]), np.array([True, True, False, True, False])


def cost(cut: list[int], windows: list[int] | None = None) -> dict:
    store = SimpleNamespace(cut=np.array(cut, np.uint8), has_windows=windows is not None)
    store.first_windows = np.cumsum([0, *(windows or [])])
    return cost_of_length(row_readings(store, ROWS), RIGHT, "windows" if windows else "cut", 32)


def test_rows_are_counted_by_what_was_read_of_them():
    found = cost([0, 1, 1, 0, 0])
    assert list(found) == ["long", "max_length", "whole", "not_whole"]
    assert found["whole"] | {"interval": 0} == {"rows": 3, "accuracy": 1.0, "interval": 0}
    assert found["not_whole"]["interval"] == pytest.approx([0, 1 - 0.025**0.5])
    metrics = measured(np.arange(2), np.eye(2, dtype=np.float32), ["a", "b"])
    metrics |= {"intervals": {}, "long_texts": found}
    text = report_text(open_task("single_label", ["a", "b"]), metrics, {}, "")
    assert "data.long cut, data.max_length 32" in text
    assert "not read whole" in text
    assert "in several windows" not in text
    found = cost([0, 0, 1, 0, 0], [1, 3, 8, 1, 2])
    rows = {name: of["rows"] for name, of in found.items() if isinstance(of, dict)}
    assert rows == {"whole": 2, "several_windows": 2, "not_whole": 1}
    # Nothing is said where all rows fit
    assert cost([0] * 5) == cost([0] * 5, [1] * 5) == {}


def card(num_labels: int = 3, names: list[str] | None = None, task: str = "single_label", **changes) -> dict:
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
        "long": "cut",
        "max_windows": 8,
    }
    return values | changes


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
    metrics = content["metrics"]
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
    text, metrics = render_card(content), content["metrics"]
    assert "Rows of test whose text is in train too: 2." in text
    assert "Texts in train with more than one label: 7." in text
    assert "no better than a baseline" not in text
    assert "Training: seed 42." in text
    worst = min(metrics["classes"], key=lambda name: metrics["classes"][name]["f1"])
    assert f"\nWeak: {worst}" in text
    worse = render_card(content | {"metrics": metrics | {"macro_f1": 0.2}})
    assert "**It is no better than a baseline** (majority class, TF-IDF + logistic regression)." in worse
    without = {key: value for key, value in metrics.items() if key not in ("calibration", "baselines")}
    assert "no temperature was fitted on dev rows" in render_card(content | {"metrics": without, "data": {}})
    of_dev = content | {"split": "dev", "splits": {"dev": content["splits"]["test"]}}
    assert "rows of dev, which also chose the checkpoint." in render_card(of_dev)
    assert "rows of train, the rows it was trained on." in render_card(content | {"split": "train"})


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
    said = render_card(card(names=names, name="---\nx: <b>"))
    (tmp_path / CARD).write_text("---\n" + said, encoding="utf-8")
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
