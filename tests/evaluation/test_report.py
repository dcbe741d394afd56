"""The printed report: python -m pytest tests/evaluation/test_report.py"""

from app.evaluation.metrics import compute_metrics
from app.evaluation.report import render_report
from tests.evaluation.test_metrics import random_case


def test_report_names_every_class_in_even_columns():
    names = ["负面", "中性 (other)", "x"]
    text = render_report(compute_metrics(*random_case(300, 3, 1), names), "Report on test: step 7")
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


def test_report_of_many_classes_is_not_cut_off():
    names = [f"类别{index:03d}" for index in range(80)]
    text = render_report(compute_metrics(*random_case(500, 80, 2), names), "title")
    assert "..." not in text
    assert all(text.count(name) == 3 for name in names)
