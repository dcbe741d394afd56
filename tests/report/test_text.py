"""The printed report: python -m pytest tests/report/test_text.py"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from app.report.text import cost_of_length, report_text, row_readings
from app.tasks import open_task
from tests.report.rows_case import TASKS, measured, page_content, random_rows
from tests.spoken import spoken_in


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


def test_thousands_of_labels_make_a_small_report():
    rows = random_rows("single_label", 6000, 3000, 4)
    metrics = measured(*rows, [f"第{index}个很长的标签" * 20 for index in range(3000)])
    assert len(rendered(metrics)) < 10_000
    short = measured(*rows, [f"标签{index}" for index in range(3000)])
    assert len(json.dumps(short, ensure_ascii=False)) < 1_000_000


HOSTILE = {
    "\x1b[2J清屏": "\\x1b[2J清屏",
    "\u202e反": "\\u202e反",
    "a\nb": "a\\nb",
    "字" * 300: "字" * 19 + "…",
    "\x1b" * 300: "\\x1b" * 9 + "\\x1…",
}


@pytest.mark.parametrize("num_others", [0, 60])
def test_labels_are_harmless_on_a_terminal(num_others):
    names = [*HOSTILE, *(f"类别{index}" for index in range(num_others))]
    metrics = measured(np.arange(len(names)), np.eye(len(names), dtype=np.float32)[::-1], names)
    text = rendered(metrics)
    assert all(character.isprintable() or character == "\n" for character in text)
    assert num_others or all(f"\n{shown} " in text for shown in HOSTILE.values())
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
