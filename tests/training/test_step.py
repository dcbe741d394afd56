"""One training step, and steps that are repeated where memory runs out: python -m pytest
tests/training/test_step.py"""

from dataclasses import replace

import pytest
import torch

from app.errors import TrainingError
from app.model import attention
from app.modes.torch_modes import Single
from app.runtime.group import Group
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


class Small(Single):
    """A device whose memory is enough for the gradients of a few rows."""

    max_rows = 3

    def forward(self, inputs):
        rows = len(inputs["first_tokens"])
        if self.module.training and rows > self.max_rows:
            raise torch.OutOfMemoryError(f"out of memory for {rows} rows")
        return super().forward(inputs)


def test_micro_batches_get_smaller_until_they_fit_and_stay_so(rows, caplog):
    caplog.set_level("INFO")
    small = Training(rows, SETTINGS, Small).run()
    messages = [message for message in caplog.messages if "memory ran out" in message]
    assert ["with micro-batches of 10 rows" in messages[0], "of 5 rows" in messages[1]] == [True, True]
    assert len(messages) == 2
    assert small.state.micro_batch_size == 3
    small.assert_same_job(Training(rows, SETTINGS).run())


def test_a_failed_try_leaves_no_trace(rows):
    """The step that is repeated has the bits of one that had small micro-batches from the start."""
    small = Training(rows, SETTINGS, Small, dropout=0.3).run(until=3)
    # Batches of 10 rows, of at most 3
    config = replace(SETTINGS, accumulation_steps=4)
    small.assert_same_bits(Training(rows, config, dropout=0.3).run(until=3))


class NoMemory(Small):
    max_rows = 0


class SmallForAdamW(Single):
    """Memory runs out when the weights are changed, some of which may then have changed already."""

    def step(self, max_norm):
        raise torch.OutOfMemoryError("out of memory in the update")


class Broken(Single):
    def forward(self, inputs):
        raise RuntimeError("shapes do not fit")


class OneOfTwo(Small):
    """Rank 0 of two, of which the other is not here."""

    group_class = type("TwoRanks", (Group,), {"world_size": 2})


@pytest.mark.parametrize(
    ("mode_class", "error", "message"),
    [
        (NoMemory, TrainingError, "step 1 with micro-batches of one row; lower data.max_length"),
        (SmallForAdamW, torch.OutOfMemoryError, "in the update"),
        (Broken, RuntimeError, "shapes do not fit"),
        (OneOfTwo, TrainingError, "--train.accumulation_steps N, with a larger number"),
    ],
)
def test_a_step_that_cannot_be_repeated_is_an_error(rows, mode_class, error, message):
    """Where one row does not fit, after an update, for another reason, and where the other ranks cannot be
    told."""
    training = Training(rows, SETTINGS, mode_class)
    with pytest.raises(error, match=message):
        training.run()
    assert mode_class is not SmallForAdamW or training.state.micro_batch_size is None
