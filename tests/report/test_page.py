"""report.html: python -m pytest tests/report/test_page.py"""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from app.report.metrics import metrics_of
from app.report.page import (
    chart,
    render_page,
    row_groups,
    rows_of_split,
    sections,
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
    assert checked.tags.count("polyline") == 4 + is_single * (2 + bool(content["calibrated"]))
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


def test_places_in_a_chart():
    found = chart([0, 5, 10], [0, 1, 0.5], (0, 10), (0, 1))
    assert found["points"] == [(56, 196), (202, 10), (348, 103)]
    assert [tick for _, tick in found["x_ticks"]] == [0, 2, 4, 6, 8, 10]
    assert ticks(0.21, 0.39) == [0.25, 0.3, 0.35]
    assert ticks(3, 3) == [3]
