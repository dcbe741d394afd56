"""train.precision auto, in a run and when it resumes: python -m pytest tests/run/test_precision.py"""

from dataclasses import replace

import pytest

from app.checkpoints.run_history import HISTORY, write_config
from app.checkpoints.saving_and_resuming import with_saved_choices
from app.config.schema import Config, OutputConfig, TrainConfig
from app.modes import open_mode
from app.runtime import devices

AUTO = Config(train=TrainConfig(device="cpu", precision="auto", threads=1))
FP32 = replace(AUTO, train=replace(AUTO.train, precision="fp32"))


@pytest.mark.parametrize(
    ("config", "speedup", "precision"),
    [(AUTO, 0.5, "fp32"), (AUTO, 1.1, "fp32"), (AUTO, 1.9, "bf16"), (FP32, None, "fp32")],
)
def test_auto_takes_bf16_where_this_cpu_is_faster_in_it(monkeypatch, config, speedup, precision):
    """For a precision that is set nothing is measured."""
    monkeypatch.setattr(devices, "bf16_speedup", lambda: speedup or pytest.fail("measured"))
    with open_mode("single", config) as mode:
        assert mode.config.train.precision == precision


@pytest.mark.parametrize("precision", ["bf16", "fp32"])
def test_a_resumed_run_keeps_the_precision_that_it_was_started_with(tmp_path, precision):
    (tmp_path / HISTORY).write_text("{}")
    write_config(tmp_path, replace(AUTO, train=replace(AUTO.train, precision=precision)))
    for folder, resume, found in (("", "auto", precision), ("", "never", "auto"), ("new", "auto", "auto")):
        again = replace(AUTO, output=OutputConfig(dir=str(tmp_path / folder), resume=resume))
        assert with_saved_choices(again).train.precision == found
