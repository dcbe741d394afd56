"""The printed report: python -m pytest tests/outcomes/test_report_text.py"""

import json
import re

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix

from app.outcomes import open_outcome
from app.outcomes.resampling import all_metrics
from app.words import current_language
from tests.outcomes.rows_case import (
    TASKS,
    fitted_outcome,
    measured,
    page_content,
    random_rows,
    report_metrics,
)
from tests.spoken import spoken_in


def rendered(metrics: dict, title: str) -> str:
    """Return the report without the lines of intervals."""
    text = open_outcome("single_label", list(metrics["classes"])).report_text(
        metrics | {"intervals": {}}, {}, title
    )
    return text.partition("\n\n95 % intervals")[0]


def test_every_metric_is_shown_with_its_interval_and_beside_the_baselines():
    for task, frequent in (("single_label", "majority class"), ("multi_label", "most frequent set")):
        labels, logits = random_rows(task, 300, 3)
        outcome = fitted_outcome(task, ["甲", "乙", "丙"], labels, logits)
        metrics = report_metrics(outcome, labels, logits)
        text = outcome.report_text(metrics, {}, "title")
        for metric in outcome.metrics:
            if metric.has_interval:
                low, high = metrics["intervals"][metric.key]
                assert f"{metric.english:17} {metrics[metric.key]:.4f}   {low:.4f} to {high:.4f}" in text
        first = "accuracy" if task == "single_label" else "micro F1"
        assert f"  {frequent}: {first} 0.2500, macro F1 0.2500" in text
        assert ("Calibration: temperature" in text) == (task == "single_label")


def test_several_labels_have_thresholds_and_of_many_the_worst_are_shown():
    labels, logits = random_rows("multi_label", 50, 60)
    outcome = open_outcome("multi_label", [f"label {at}" for at in range(60)])
    text = outcome.report_text(all_metrics(outcome, outcome.score(labels, logits)), {}, "title")
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


@pytest.mark.parametrize("task", TASKS)
def test_a_chinese_report_has_no_english_words_but_names(task):
    outcome, content = page_content(task, 300, ["甲", "乙", "丙"])
    english = outcome.report_text(content.metrics, {}, "")
    chinese = spoken_in("zh", outcome.report_text, content.metrics, {}, "")
    # Names of methods and metrics
    kept = re.compile(r"TF-IDF|Brier|F1|dev|test|these rows")
    assert not re.search("[A-Za-z]{3}", kept.sub("", chinese)), chinese
    assert re.findall(r"\d\.\d{4}", chinese) == re.findall(r"\d\.\d{4}", english)


def test_auto_is_the_language_of_the_locale(monkeypatch):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    assert current_language() == "en"
    monkeypatch.setenv("LANG", "zh_CN.UTF-8")
    assert (current_language(), spoken_in("en", current_language)) == ("zh", "en")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert current_language() == "en"
