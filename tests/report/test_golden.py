"""The figures of reports stay what they were: python -m pytest tests/report/test_golden.py

Where a figure is meant to change: python -m tests.report.golden, and look at the difference.
"""

import json

import pytest

from tests.report.golden import GOLDEN, KINDS, report_of

FIGURES = json.loads(GOLDEN.read_text(encoding="utf-8"))


def differences(kept, found, where: str = "") -> list[str]:
    """Return where two reports differ: values by more than 1e-12, ends of intervals by more than 0.002."""
    if isinstance(kept, dict) and isinstance(found, dict):
        keys = [*kept, *(key for key in found if key not in kept)]
        missing = [f"{where}.{key}" for key in keys if key not in kept or key not in found]
        both = [key for key in keys if key in kept and key in found]
        return missing + [
            line for key in both for line in differences(kept[key], found[key], f"{where}.{key}")
        ]
    if isinstance(kept, list) and isinstance(found, list) and len(kept) == len(found):
        pairs = enumerate(zip(kept, found, strict=True))
        return [line for at, pair in pairs for line in differences(*pair, f"{where}[{at}]")]
    if isinstance(kept, float) and isinstance(found, float):
        limit = 0.002 if "interval" in where else 1e-12
        is_same = abs(kept - found) <= limit * max(1.0, abs(kept))
    else:
        is_same = kept == found and type(kept) is type(found)
    return [] if is_same else [f"{where}: {found}, was {kept}"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_of_a_report_are_those_that_are_kept(kind, tmp_path):
    found = report_of(tmp_path, kind)
    assert differences(FIGURES[kind]["report"], found["report"]) == []
    assert FIGURES[kind]["text"] == found["text"]


def test_a_difference_is_found():
    report = {"rows": 3, "loss": 0.5, "intervals": {"loss": [0.4, 0.6]}}
    assert differences(report, report | {"intervals": {"loss": [0.401, 0.6]}}) == []
    assert differences(report, report | {"loss": 0.5 + 1e-9}) == [".loss: 0.500000001, was 0.5"]
    assert differences(report, report | {"intervals": {"loss": [0.4, 0.61]}})
    assert differences(report, {"rows": 3, "loss": 0.5}) == [".intervals"]
