"""What it costs that long texts are not read whole: python -m pytest tests/evaluation/test_long_rows.py"""

from types import SimpleNamespace

import numpy as np
import pytest

from app.evaluation.long_rows import cost_of_length, render_cost_of_length, row_readings

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
    text = render_cost_of_length(found)
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
