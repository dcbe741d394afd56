"""Passes as CUDA graphs."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from app.modes.mode import Single
from app.training.recorded_passes import fill
from app.training.step import Passes
from tests.training.tiny_training import SETTINGS, Training

pytestmark = pytest.mark.parametrize("pairs", [False, True], ids=["texts", "pairs"])
# The last batch of each epoch is smaller
ON_GPU = replace(SETTINGS, device="cuda", batch_size=16, epochs=3)


class NotRecorded(Single):
    """One process that launches each kernel."""

    records_passes = False


def test_rows_of_padding_change_no_output_and_no_gradient(pairs):
    training = Training(pairs=pairs, varlen=True)
    module = training.mode.module
    loader = training.loader
    inputs = loader.load(np.arange(7), torch.device("cpu")).inputs
    end = inputs["input_ids"].shape[1]
    filled = fill(inputs, 10, end + 70, 40, loader.layout)
    assert filled["input_ids"].shape == (1, end + 70)
    assert filled["row_offsets"].diff().tolist()[7:] == [23, 23, 24]
    outputs, gradients = outputs_and_gradients(module, inputs)
    filled_outputs, filled_gradients = outputs_and_gradients(module, filled)
    torch.testing.assert_close(filled_outputs, outputs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(filled_gradients, gradients, atol=1e-5, rtol=1e-5)


def outputs_and_gradients(module: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, list]:
    """Return the outputs of the first seven rows, and the gradients of their squares."""
    module.zero_grad()
    outputs = module(**inputs)[:7]
    outputs.square().sum().backward()
    return outputs, [parameter.grad for parameter in module.parameters()]


def test_a_step_of_two_micro_batches_is_not_replayed(pairs):
    """The second replay would write over the gradients of the first."""
    training = Training(pairs=pairs)
    batch = np.arange(8)
    replayed = []
    passes = Passes(training.mode, training.loader, training.loss)
    passes.forward = lambda inputs: replayed.append(inputs) or training.mode.forward(inputs)
    for micro_batches in ([batch], [batch[:4], batch[4:]]):
        passes.run(0, batch, micro_batches)
    assert len(replayed) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_recorded_passes_train_the_same_weights(pairs, precision, caplog):
    caplog.set_level("INFO")
    config = replace(ON_GPU, precision=precision)
    recorded = Training(config, pairs=pairs, varlen=True).run()
    assert "recorded as CUDA graphs" in caplog.text
    caplog.clear()
    launched = Training(config, NotRecorded, pairs=pairs, varlen=True).run()
    assert "recorded" not in caplog.text
    limit = 1e-4 if precision == "fp32" else 0.03
    assert len(recorded.losses) == 3 * recorded.plan.steps_per_epoch
    assert recorded.losses == pytest.approx(launched.losses, rel=limit)
    weights = recorded.weights
    for name, value in launched.weights.items():
        # Its exact gradient is 0, which AdamW blows up
        if "key.bias" not in name:
            assert (weights[name] - value).norm() <= limit * value.norm() + 1e-3, name


@pytest.mark.gpu
def test_dropout_of_recorded_passes_depends_on_step_and_seed(pairs):
    still = replace(ON_GPU, learning_rate=0.0, weight_decay=0.0)

    def losses(seed: int) -> list[float]:
        return Training(replace(still, seed=seed), pairs=pairs, varlen=True, dropout=0.5).run().losses

    first = losses(1)
    assert losses(1) == pytest.approx(first, rel=1e-5)
    assert losses(2) != pytest.approx(first, rel=1e-3)
    training = Training(still, pairs=pairs, varlen=True, dropout=0.5)
    # The same rows in each step, whose dropout differs
    training.plan = type("SamePlan", (), {"steps_per_epoch": 4, "batch": lambda self, step: np.arange(16)})()
    assert len({round(loss, 4) for loss in training.run().losses}) == 12


@pytest.mark.gpu
@pytest.mark.parametrize("changes", [{"accumulation_steps": 2}, {"gradient_checkpointing": True}])
def test_other_steps_are_not_recorded(pairs, changes, caplog):
    caplog.set_level("INFO")
    config = replace(ON_GPU, **changes)
    Training(config, pairs=pairs, varlen=True).run()
    assert "recorded" not in caplog.text


@pytest.mark.gpu
def test_a_model_that_cannot_be_recorded_is_trained(pairs, caplog, monkeypatch):
    training = Training(ON_GPU, pairs=pairs, varlen=True)
    forward = training.mode.module.forward

    def waiting(**inputs):
        outputs = forward(**inputs)
        # A recording must not wait for the device
        float(outputs.sum())
        return outputs

    monkeypatch.setattr(training.mode.module, "forward", waiting)
    losses = training.run().losses
    assert "not recorded as CUDA graphs" in caplog.text
    launched = Training(ON_GPU, NotRecorded, pairs=pairs, varlen=True).run()
    assert losses == pytest.approx(launched.losses, rel=1e-4)
