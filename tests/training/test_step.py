"""One training step: python -m pytest tests/training/test_step.py"""

from dataclasses import replace

import pytest
import torch

from app.model import attention
from app.modes.single import Single
from tests.tiny import open_tiny
from tests.training.tiny_training import SETTINGS, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20, pairs=True)


class OnMeta(Single):
    """One process whose device has no values to wait for: whoever asks for one gets an error."""

    def __enter__(self):
        super().__enter__()
        self.device = torch.device("meta")
        return self


@pytest.mark.parametrize("varlen", [False, True], ids=["grouped", "varlen"])
def test_a_step_never_waits_for_the_device(rows, varlen, monkeypatch):
    # torch's shapes-only backward of the fp32 kernel has one argument too few (2.13)
    monkeypatch.setattr(
        attention,
        "attend_varlen",
        lambda query, key, value, starts, *rest: query + key[: len(query)] * value.sum(0),
    )
    config = replace(SETTINGS, accumulation_steps=2, max_steps=3)
    training = Training(rows, config, OnMeta, varlen=varlen).run()
    assert [step.loss_sum.device.type for step in training.steps] == ["meta"] * 3
    with pytest.raises(RuntimeError, match="meta"):
        float(training.steps[0].loss_sum)


@pytest.mark.gpu
@pytest.mark.parametrize("varlen", [False, True], ids=["grouped", "varlen"])
def test_no_step_waits_for_the_gpu(rows, varlen):
    config = replace(SETTINGS, device="cuda", precision="bf16", epochs=8)
    try:
        Training(rows, config, varlen=varlen).run(
            after_step=lambda state, _: state.step == 20 and torch.cuda.set_sync_debug_mode("error")
        )
    finally:
        torch.cuda.set_sync_debug_mode("default")
