"""The printed report: python -m pytest tests/report/test_text.py"""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from app.report.bootstrap import all_metrics
from app.report.text import cost_of_length, report_text, row_readings
from app.tasks import open_task
from tests.report.rows_case import (
    TASKS,
    measured,
    page_content,
    random_rows,
)
from tests.spoken import spoken_in


def rendered(metrics: dict, title: str) -> str:
    """Return the report without the lines of intervals."""
    name = open_task("single_label", list(metrics["classes"]))
    text = report_text(name, metrics | {"intervals": {}}, {}, title)
    return text.partition("\n\n95 % intervals")[0]


def test_several_labels_have_thresholds_and_of_many_the_worst_are_shown():
    labels, logits = random_rows("multi_label", 50, 60)
    task = open_task("multi_label", [f"label {at}" for at in range(60)])
    text = report_text(task, all_metrics(task, task.score(labels, logits)), {}, "title")
    assert "The 20 worst of 60 labels" in text
    assert "threshold" in text.splitlines()[2]
    assert "none was chosen on dev rows" in text
    assert len(text.splitlines()) < 45


def test_report_names_every_class_in_even_columns():
    names = ["负面", "中性 (other)", "x"]
    text = rendered(measured(*random_rows("single_label", 300, 3, 1), names), "Report on test: step 7")
    lines = text.split("\n")
    assert lines[0] == "Report on test: step 7"
    table = lines[1 : lines.index("")]
    assert [line.split("  ")[0] for line in table[1:]] == [*names, "macro avg", "weighted avg"]

    def width(line: str) -> int:
        return sum(2 if "\u2e80" <= character <= "\uffef" else 1 for character in line)

    assert len({width(line) for line in table}) == 1
    assert "rows 300" in text
    confusion = lines[lines.index("Confusion matrix (rows: true class, columns: predicted)") + 1 :]
    assert len(confusion) == 4
    assert len({width(line) for line in confusion}) == 1
    assert all(name in confusion[0] for name in names)
    assert sum(int(cell) for line in confusion[1:] for cell in line.split()[-3:]) == 300


@pytest.mark.parametrize("count", [3, 60])
def test_a_class_that_is_never_predicted_is_named(count):
    """Class 1 is predicted, never rightly; class 2 never is; of class 3 there are no rows."""
    names = [f"c{index}" for index in range(count)]
    labels, logits = np.array([0, 0, 1, 2, 2]), np.zeros((5, count), np.float32)
    logits[[0, 2, 3, 4], 0] = logits[1, 1] = 1
    assert "\n\nNever predicted: c2\n" in rendered(measured(labels, logits, names), "title") + "\n"
    logits[4, 2] = 2
    assert "Never predicted" not in rendered(measured(labels, logits, names), "title")


def test_report_of_fifty_classes_is_whole_and_of_more_shows_the_worst():
    names = [f"类别{index:03d}" for index in range(50)]
    text = rendered(measured(*random_rows("single_label", 500, 50, 2), names), "title")
    assert "..." not in text
    assert all(text.count(name) == 3 for name in names)
    metrics = measured(*random_rows("single_label", 500, 51, 2), [*names, "其他"])
    assert "confusion_matrix" not in metrics
    lines = rendered(metrics, "title").split("\n")
    assert lines[1] == "The 20 worst of 51 classes; all are in report.json"
    shown = lines[3 : lines.index("") - 2]
    scores = [float(line.split()[-2]) for line in shown]
    assert len(scores) == 20
    assert scores == sorted(scores)
    assert (
        max(scores)
        <= min(value["f1"] for name, value in metrics["classes"].items() if name not in str(shown)) + 5e-5
    )
    true, predicted, rows = metrics["confusions"][0]
    assert lines[-20].split() == [true, predicted, str(rows)]


def test_confusions_of_many_classes_are_those_of_the_matrix():
    names = [f"类别{index}" for index in range(60)]
    labels, logits = random_rows("single_label", 2000, 60, 3)
    confusions = measured(labels, logits, names)["confusions"]
    matrix = confusion_matrix(labels, logits.argmax(1))
    wrong = {(names[i], names[j]): n for (i, j), n in np.ndenumerate(matrix) if i != j and n}
    assert {(true, predicted): rows for true, predicted, rows in confusions} == wrong
    assert [rows for *_, rows in confusions] == sorted(wrong.values(), reverse=True)
    right = np.eye(60, dtype=np.float32)
    assert "No class was taken for another." in rendered(measured(np.arange(60), right, names), "title")


def test_thousands_of_labels_make_a_small_report():
    names = [f"第{index}个很长的标签" * 20 for index in range(3000)]
    metrics = measured(*random_rows("single_label", 6000, 3000, 4), names)
    assert len(rendered(metrics, "title")) < 10_000
    short = measured(*random_rows("single_label", 6000, 3000, 4), [f"标签{index}" for index in range(3000)])
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
    text = rendered(metrics, "title")
    assert all(character.isprintable() or character == "\n" for character in text)
    assert num_others or all(f"\n{shown} " in text for shown in HOSTILE.values())
    assert set(metrics["classes"]) == set(names)


@pytest.mark.parametrize("name", TASKS)
def test_a_chinese_report_has_no_english_words_but_names(name):
    content = page_content(name, 300, ["甲", "乙", "丙"])
    shown = content.task, content.metrics, {}, ""
    english, chinese = report_text(*shown), spoken_in("zh", report_text, *shown)
    # Names of methods and metrics
    kept = re.compile(r"TF-IDF|Brier|F1|dev|test|these rows")
    assert not re.search("[A-Za-z]{3}", kept.sub("", chinese)), chinese
    assert re.findall(r"\d\.\d{4}", chinese) == re.findall(r"\d\.\d{4}", english)


ROWS = np.array([4, 0, 1, 3, 2])


def store(cut: list[int], windows: list[int] | None = None) -> SimpleNamespace:
    found = SimpleNamespace(cut=np.array(cut, np.uint8), has_windows=windows is not None)
    found.first_windows = np.cumsum([0, *(windows or [])])
    return found


def test_rows_are_counted_by_what_was_read_of_them():
    right = np.array([True, True, False, True, False])
    found = cost_of_length(row_readings(store([0, 1, 1, 0, 0]), ROWS), right, "cut", 32)
    assert {name: found[name] for name in ("long", "max_length")} == {"long": "cut", "max_length": 32}
    assert (found["whole"]["rows"], found["whole"]["accuracy"]) == (3, 1.0)
    assert (found["not_whole"]["rows"], found["not_whole"]["accuracy"]) == (2, 0.0)
    assert found["not_whole"]["interval"] == pytest.approx([0, 1 - 0.025**0.5])
    metrics = measured(np.arange(2), np.eye(2, dtype=np.float32), ["a", "b"])
    metrics |= {"intervals": {}, "long_texts": found}
    text = report_text(open_task("single_label", ["a", "b"]), metrics, {}, "")
    assert "data.long cut, data.max_length 32" in text
    assert "not read whole" in text
    assert "in several windows" not in text


def test_windows_have_a_line_of_their_own():
    some = store([0, 0, 1, 0, 0], [1, 3, 8, 1, 2])
    assert row_readings(some, ROWS).tolist() == [1, 0, 1, 0, 2]
    found = cost_of_length(
        row_readings(some, ROWS), np.array([True, True, False, True, False]), "windows", 32
    )
    assert {name: found[name]["rows"] for name in found if isinstance(found[name], dict)} == {
        "whole": 2,
        "several_windows": 2,
        "not_whole": 1,
    }


def test_nothing_is_said_where_all_rows_fit():
    for some in (store([0] * 5), store([0] * 5, [1] * 5)):
        assert cost_of_length(row_readings(some, ROWS), np.ones(5, bool), "cut", 32) == {}
