"""train.precision auto, in a run and when it resumes: python -m pytest tests/run/test_precision.py"""

from dataclasses import replace

import pytest

from app.checkpoints.run_history import HISTORY, write_config
from app.checkpoints.saving_and_resuming import with_saved_choices
from app.config.schema import Config, OutputConfig, TrainConfig
from app.modes import open_mode
from app.runtime import devices

AUTO = Config(train=TrainConfig(device="cpu", precision="auto", threads=1))


@pytest.mark.parametrize(("speedup", "precision"), [(0.5, "fp32"), (1.1, "fp32"), (1.9, "bf16")])
def test_auto_takes_bf16_where_this_cpu_is_faster_in_it(monkeypatch, speedup, precision):
    monkeypatch.setattr(devices, "bf16_speedup", lambda: speedup)
    with open_mode("single", AUTO) as mode:
        assert mode.config.train.precision == precision


def test_a_precision_that_is_set_is_not_measured(monkeypatch):
    monkeypatch.setattr(devices, "bf16_speedup", lambda: pytest.fail("measured"))
    with open_mode("single", replace(AUTO, train=replace(AUTO.train, precision="fp32"))) as mode:
        assert mode.config.train.precision == "fp32"


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_resumed_run_keeps_the_precision_that_it_was_started_with(tmp_path, precision):
    started = replace(AUTO, train=replace(AUTO.train, precision=precision))
    (tmp_path / HISTORY).write_text("{}")
    write_config(tmp_path, started)
    again = replace(AUTO, output=OutputConfig(dir=str(tmp_path), resume="auto"))
    assert with_saved_choices(again).train.precision == precision
    assert (
        with_saved_choices(replace(again, output=OutputConfig(dir=str(tmp_path)))).train.precision == "auto"
    )
    other = replace(again, output=replace(again.output, dir=str(tmp_path / "new")))
    assert with_saved_choices(other).train.precision == "auto"
