"""report.html: python -m pytest tests/report/test_page.py"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from app.report.metrics import metrics_of
from app.report.page import (
    Axes,
    PageContent,
    class_sections,
    list_sections,
    render_page,
    row_groups,
    rows_of_split,
    ticks,
)
from app.report.text import visible
from tests.report.rows_case import TASKS, page_content
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
        self.tags.append(tag)
        self.attributes += attrs
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
    page = spoken_in(language, render_page, content)
    checked = Checker(page)
    assert "script" not in checked.tags
    assert not {"src", "onload", "onclick"} & {name for name, _ in checked.attributes}
    assert not re.search(r"https?:|url\(|@import", page)
    # Links lead to sections of the page
    targets = [value for name, value in checked.attributes if name == "href"]
    assert "#headline" in targets
    assert {target[1:] for target in targets} <= {value for name, value in checked.attributes if name == "id"}
    assert checked.text.count(f" {num_rows:,} ")
    for metric in metrics_of(content.task):
        if metric.headline:
            assert spoken_in(language, getattr, metric, "title") in checked.text
            assert f"{content.metrics[metric.key]:.4f}" in checked.text
        if metric.has_interval:
            low, high = content.metrics["intervals"][metric.key]
            assert f"[{low:.4f}, {high:.4f}]" in checked.text
    is_single = task == "single_label"
    assert page.count('class="matrix"') == (is_single and num_labels <= 30)
    # Of the curves, and of calibration and risk
    assert checked.tags.count("polyline") == 4 + is_single * (1 + bool(content.calibrated))
    assert not re.search(r"nan|NaN|None|inf\b", re.sub(r"[a-z-]*final|info", "", page))


def test_the_page_of_several_labels_speaks_of_them():
    content = page_content("multi_label", 300, ["甲", "乙"])
    english, chinese = (Checker(spoken_in(language, render_page, content)).text for language in ("en", "zh"))
    assert "Always the most frequent set of labels" in english
    assert "The rows with the most wrong labels" in english
    assert "总是预测最多的标签组合" in chinese
    assert "错误标签最多的样本" in chinese


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
    page = render_page(page_content(task, 400, names, lambda at: HOSTILE[at % len(HOSTILE)]))
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
    page = render_page(page_content("single_label", 20_000, [f"类别{label:04d}" for label in range(1500)]))
    assert len(page.encode()) < 300_000
    assert "The 40 classes with the lowest F1, of 1500" in page
    assert "The 50 most frequent confusions" in page


def test_confusions_and_examples_are_those_of_the_rows():
    content = page_content("single_label", 500, NAMES)
    scores, sections = content.scores, class_sections(content)
    matrix = np.array(sections["matrix"])
    assert matrix.sum() == 500
    assert np.trace(matrix) == scores.correct.sum()
    assert [rows for _, _, rows, _ in sections["examples"]] == sorted(
        (matrix[i, j] for i in range(3) for j in range(3) if i != j and matrix[i, j]), reverse=True
    )
    for name, other, rows, examples in sections["examples"]:
        label, predicted = NAMES.index(name), NAMES.index(other)
        assert matrix[label, predicted] == rows
        of_pair = np.flatnonzero((scores.labels == label) & (scores.predicted == predicted))
        surest = sorted(scores.confidence[of_pair].tolist(), reverse=True)[:3]
        assert [example["confidence"] for example in examples] == surest
        at = int(examples[0]["text"].removeprefix("文本 "))
        assert at in of_pair
        assert examples[0]["where"] == f"test.tsv, line {at}"


def test_the_rows_with_the_most_wrong_labels_come_first():
    content = page_content("multi_label", 300, list("甲乙丙丁"))
    num_wrong, shown = content.scores.num_wrong, list_sections(content)["errors"]
    wrong = [row["num_wrong"] for row in shown]
    assert wrong == sorted(num_wrong.tolist(), reverse=True)[: len(wrong)]
    at = int(shown[0]["text"].removeprefix("文本 "))
    assert len(set(shown[0]["true"]) ^ set(shown[0]["predicted"])) == wrong[0] == num_wrong[at]


def test_groups_count_every_row_once():
    content = page_content("single_label", 500, NAMES)
    by_length, by_unknown, by_seen = row_groups(content).values()
    for groups in (by_length, by_unknown, by_seen):
        assert sum(group["rows"] for group in groups) == 500
        right = sum(group["accuracy"] * group["rows"] for group in groups)
        assert right == pytest.approx(content.scores.correct.sum())
        assert all(group["interval"][0] <= group["accuracy"] <= group["interval"][1] for group in groups)
    assert [group["name"] for group in by_seen] == ["new text", "near copy of a training text"]
    assert [group["rows"] for group in by_seen] == [(~content.seen).sum(), content.seen.sum()]
    low, high = map(int, by_length[0]["name"].split("–"))
    assert by_length[0]["rows"] == ((content.lengths >= low) & (content.lengths <= high)).sum()


def test_rows_of_a_split_know_their_text_place_length_and_unknown_tokens(tmp_path):
    dataset, tokenizer, stores = open_tiny(tmp_path, pairs=True)
    split, train = dataset.splits["test"], dataset.splits["train"]
    store = stores["test"]
    rows = rows_of_split(split, train, store, 3)
    assert set(rows) < set(PageContent.__annotations__)
    for position, row in enumerate(split.rows):
        assert rows["lengths"][position] == len(store.row(row))
        assert rows["unknown"][position] == pytest.approx((store.row(row) == 3).mean())
        assert rows["text"](position) == f"{split.table.text(row)} ⟷ {split.table.pair(row)}"
        assert rows["where"](position) == split.table.where(row)
    assert not rows["seen"].any()
    assert rows_of_split(train, train, store, None)["seen"] is None


def test_places_in_a_chart():
    axes = Axes(0, 10, 0, 1)
    assert (axes.x(0), axes.x(10)) == (axes.left, axes.width - axes.right)
    assert Axes(0, 10, 1.71425, 1.71445).left > axes.left, "longer numbers beside the axis need more room"
    assert (axes.y(0), axes.y(1)) == (axes.height - axes.bottom, axes.top)
    assert axes.x_ticks == [0, 2, 4, 6, 8, 10]
    assert ticks(0.21, 0.39) == [0.25, 0.3, 0.35]
    assert ticks(3, 3) == [3]
    points = axes.line(np.linspace(0, 10, 5000), np.zeros(5000)).split()
    assert len(points) < 320
    assert points[-1].startswith("348")
