"""report.html: python -m pytest tests/evaluation/test_page.py"""

import json
import re
import tracemalloc
from html.parser import HTMLParser

import numpy as np
import pytest

from app.evaluation.baseline import Texts, baselines, split_texts
from app.evaluation.page.charts import Axes, ticks
from app.evaluation.page.confusions import confused_pairs, confusion_matrix, errors_of_pairs, surest_errors
from app.evaluation.page.page import visible
from app.evaluation.page.rows import (
    groups_by_length,
    groups_by_seen,
    groups_by_unknown,
    rows_of_split,
    unknown_counts,
)
from app.evaluation.page.words import WORDS
from tests.evaluation.page_case import page_content, render_page
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
def test_page_is_whole_and_loads_nothing(num_rows, num_labels, language):
    content = page_content(num_rows, [f"类别{label}" for label in range(num_labels)])
    page = render_page(content, language)
    checked = Checker(page)
    assert "script" not in checked.tags
    assert not {"src", "href", "onload", "onclick"} & {name for name, _ in checked.attributes}
    assert not re.search(r"https?:|url\(|@import", page)
    for name in ("accuracy", "macro_f1", "loss", "brier", "ece"):
        low, high = content.metrics["intervals"][name]
        assert WORDS[name][language == "zh"] in checked.text
        assert f"{content.metrics[name]:.4f}" in checked.text
        assert f"[{low:.4f}, {high:.4f}]" in checked.text
    assert page.count('class="matrix"') == (num_labels <= 30)
    assert not re.search(r"nan|NaN|None|inf\b", re.sub(r"[a-z-]*final|info", "", page))


HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ 7*7 }}{% raw %}",
    "abc\u202egnp.exe\u2066x",
    "\x1b[31mred\x00\x07",
    "\ud800 alone",
    "x" * 1_000_000,
]


def test_texts_and_labels_of_strangers_cannot_act():
    names = [f"{text[:60]}{number}" for number, text in enumerate(HOSTILE)]
    content = page_content(400, names, lambda at: HOSTILE[at % len(HOSTILE)])
    page = render_page(content)
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


def test_pages_of_many_classes_and_rows_are_small():
    content = page_content(20_000, [f"类别{label:04d}" for label in range(1500)])
    page = render_page(content)
    assert len(page.encode()) < 300_000
    assert "The 40 classes with the lowest F1, of 1500" in page
    assert "The 50 most frequent confusions" in page


def test_confusions_and_examples_are_those_of_the_rows():
    rows = page_content(500, NAMES).rows
    scores = rows.scores
    matrix = confusion_matrix(scores, 3)
    assert matrix.sum() == 500
    assert np.trace(matrix) == scores.correct.sum()
    pairs = confused_pairs(scores, 3)
    assert [pair.rows for pair in pairs] == sorted(
        (matrix[i, j] for i in range(3) for j in range(3) if i != j), reverse=True
    )
    for pair in pairs:
        assert matrix[pair.label, pair.predicted] == pair.rows
        found = surest_errors(scores, pair, 2)
        of_pair = [
            scores.confidence[at]
            for at in range(500)
            if (scores.labels[at], scores.predicted[at]) == (pair.label, pair.predicted)
        ]
        assert scores.confidence[found].tolist() == sorted(of_pair, reverse=True)[:2]
    first = errors_of_pairs(rows)[0]
    assert (first["label"], first["predicted"]) == (NAMES[pairs[0].label], NAMES[pairs[0].predicted])
    assert first["examples"][0]["where"] == f"test.tsv, line {surest_errors(scores, pairs[0])[0]}"


def test_groups_count_every_row_once():
    rows = page_content(500, NAMES).rows
    for groups in (groups_by_length(rows), groups_by_unknown(rows), groups_by_seen(rows, "new", "seen")):
        assert sum(group.rows for group in groups) == 500
        assert sum(group.right for group in groups) == rows.scores.correct.sum()
        assert all(group.interval[0] <= group.accuracy <= group.interval[1] for group in groups)
    new, seen = groups_by_seen(rows, "new", "seen")
    assert (new.rows, seen.rows) == ((~rows.seen).sum(), rows.seen.sum())
    shortest = groups_by_length(rows)[0]
    low, high = map(int, shortest.name.split("–"))
    assert shortest.rows == ((rows.lengths >= low) & (rows.lengths <= high)).sum()


def test_rows_of_a_split_know_their_text_place_length_and_unknown_tokens(tmp_path):
    dataset, tokenizer, stores = open_tiny(tmp_path, pairs=True)
    split, train = dataset.splits["test"], dataset.splits["train"]
    store = stores["test"]
    scores = page_content(len(split), NAMES).rows.scores
    rows = rows_of_split(split, train, store, 3, scores, NAMES)
    for position, row in enumerate(split.rows):
        assert rows.lengths[position] == len(store.row(row))
        assert rows.unknown[position] == pytest.approx((store.row(row) == 3).mean())
        assert rows.text(position) == f"{split.table.text(row)} ⟷ {split.table.pair(row)}"
        assert rows.where(position) == split.table.where(row)
    assert not rows.seen.any()
    assert rows_of_split(train, train, store, None, scores, NAMES).seen is None
    every = np.arange(split.table.num_rows)
    assert unknown_counts(store, every, 7).sum() == (np.asarray(store.tokens) == 7).sum()


def test_baselines_learn_what_can_be_learned_and_are_repeatable(tmp_path):
    dataset, _, _ = open_tiny(tmp_path)
    train, test = (split_texts(dataset.splits[name]) for name in ("train", "test"))
    found = baselines(train, test, 3)
    assert list(found) == ["majority class", "TF-IDF + logistic regression"]
    assert found["majority class"]["accuracy"] == pytest.approx(1 / 3)
    assert found["majority class"]["macro_f1"] == pytest.approx(0.5 / 3)
    assert found["TF-IDF + logistic regression"]["accuracy"] > 0.9
    assert json.dumps(found) == json.dumps(baselines(train, test, 3))
    split = dataset.splits["test"]
    back = split_texts(split).read(np.arange(len(split))[::-1])
    assert back == [split.table.text(row) for row in split.rows[::-1]]


def test_baselines_of_many_classes_and_of_a_single_one_work():
    texts = Texts(np.arange(60), lambda at: [chr(0x4E00 + position) * 3 for position in at])
    assert baselines(texts, texts, 60)["TF-IDF + naive Bayes"]["accuracy"] > 0.9
    same = Texts(np.zeros(5, int), lambda at: ["好"] * len(at))
    assert baselines(same, same, 2)["majority class"]["accuracy"] == 1


def test_places_in_a_chart():
    axes = Axes(0, 10, 0, 1)
    assert (axes.x(0), axes.x(10)) == (axes.left, axes.width - axes.right)
    assert (axes.y(0), axes.y(1)) == (axes.height - axes.bottom, axes.top)
    assert axes.x_ticks == [0, 2, 4, 6, 8, 10]
    assert ticks(0.21, 0.39) == [0.25, 0.3, 0.35]
    assert ticks(3, 3) == [3]
    points = axes.line(np.linspace(0, 10, 5000), np.zeros(5000)).split()
    assert len(points) < 320
    assert points[-1].startswith("348")


def test_baseline_of_very_many_classes_needs_little_memory():
    generator = np.random.default_rng(0)
    texts = ["".join(map(chr, row)) for row in generator.integers(0x4E00, 0x4E00 + 5000, (2000, 30))]
    rows = Texts(np.arange(2000) % 1000, lambda at: [texts[position] for position in at])
    tracemalloc.start()
    baselines(rows, rows, 1000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 300e6
