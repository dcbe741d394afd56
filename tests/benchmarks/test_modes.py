"""Timing the modes: python -m pytest tests/benchmarks/test_modes.py -m "" """

import json

import pytest

from benchmarks.modes.__main__ import main, over_rounds, render
from tests.tiny import SIZES, write_tiny


def row(mode: str, turn: int, minutes: float, rows_per_second: float, memory: float, accuracy: float) -> dict:
    figures = {"minutes": minutes, "rows_per_second": rows_per_second, "memory_mib": memory}
    return {"mode": mode, "processes": 1, "round": turn, "global_batch": 32, "accuracy": accuracy} | figures


def test_rounds_of_modes_become_medians():
    """The machine is twice as fast in the second round: speed-ups are within a round."""
    runs = [
        row("single", 1, 1.0, 100.0, 700.0, 0.5),
        row("ddp", 1, 2.0, 80.0, 650.0, 0.6),
        row("single", 2, 0.5, 200.0, 690.0, 0.5),
        row("ddp", 2, 1.0, 160.0, 655.0, 0.6),
    ]
    single, ddp = over_rounds(runs).drop(columns="why").to_dict("records")
    assert list(single.values()) == ["single", 1, 32, 0.75, 150.0, 1.0, 700.0, 0.5]
    assert list(ddp.values()) == ["ddp", 1, 32, 1.5, 120.0, 0.8, 655.0, 0.6]
    why = "RuntimeError: a rank died"
    broken = over_rounds([*runs[:3], {"mode": "ddp", "processes": 2, "round": 2, "why": why}])
    assert render(broken).splitlines()[2].split(None, 8)[2:] == ["32", *"-----", why]
    alone = over_rounds(runs[1:2])["speed_up"]
    assert alone.isna().all(), "without single there is no speed-up"


@pytest.mark.slow
def test_the_table_of_modes_on_the_command_line(tmp_path, capsys):
    output = tmp_path / "modes.json"
    words = ["--modes", "dp", "single", "--output", str(output), "--train.epochs", "1"]
    words += ["--data.train", str(write_tiny(tmp_path / "rows.tsv")), "--model.config", json.dumps(SIZES)]
    words += ["--data.cache_dir", str(tmp_path / "cache"), "--train.device=cpu", "--train.precision=fp32"]
    assert main(words) == 0
    report = json.loads(output.read_text())
    assert [one["mode"] for one in report["modes"]] == ["single", "dp"]
    assert [one["round"] for one in report["runs"]] == [1, 1]
    assert all(one["rows_per_second"] > 0 and one["memory_mib"] > 100 for one in report["modes"])
    assert "rows/s speed-up" in capsys.readouterr().out
