"""A tiny training through the loop, for the tests of what is around its steps."""

from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import pytest
import torch

from app.batching.loader import BatchPlan
from app.checkpoints.training_state import RunProgress
from app.config.schema import Config, TrainConfig
from app.model.trained_weights import freeze
from app.modes.torch_modes import Single
from app.tasks.losses import ClassLoss
from app.training.step import StepResult, build_optimizer, evaluate, train_steps
from tests.tiny import loaders_of, tiny_model

SETTINGS = TrainConfig(
    epochs=4,
    batch_size=10,
    learning_rate=1e-3,
    precision="fp32",
    device="cpu",
    threads=1,
)
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
SMOOTHING = 0.1
# The largest difference to the same job in another order of additions
TOLERANCE = 1e-5


class SmoothedCrossEntropy(ClassLoss):
    """With label smoothing no gradient is near 0, where AdamW turns rounding into whole steps."""

    def __call__(self, logits, labels):
        options = {"reduction": "sum", "label_smoothing": SMOOTHING}
        return torch.nn.functional.cross_entropy(logits, labels, self.weights, **options)


def step_result(
    step: int,
    finite: list[bool],
    loss_sum: float = 0.0,
    positions: np.ndarray | None = None,
    grad_norm: float = 1.0,
    skipped: bool = False,
) -> StepResult:
    """Return the result of a step on one row for each of `finite`."""
    return StepResult(
        step=step,
        rows=len(finite),
        tokens=9 * len(finite),
        learning_rate=0.001,
        loss_sum=torch.tensor(loss_sum),
        divisor=len(finite),
        positions=np.arange(len(finite)) if positions is None else positions,
        finite=torch.tensor(finite),
        grad_norm=torch.tensor(grad_norm),
        skipped=skipped,
    )


@dataclass
class Training:
    """A model with its loader and plan; `rows` is what `open_tiny` returns."""

    rows: tuple
    config: TrainConfig = SETTINGS
    mode_class: type = Single
    shape: dict = field(default_factory=dict)
    packed: bool = True
    varlen: bool = False
    dropout: float = 0.0
    frozen: str | None = None
    state: RunProgress = field(default_factory=RunProgress)

    def __post_init__(self) -> None:
        dataset, tokenizer, stores = self.rows
        self.mode = self.mode_class(Config(train=self.config)).__enter__()
        model = tiny_model(vocab_size=len(tokenizer), dropout=self.dropout, **self.shape).train()
        freeze(model, self.frozen)
        if self.config.gradient_checkpointing:
            model.checkpoint_layers()
        self.loader = loaders_of(dataset, stores, model, self.packed)["train"]
        self.loader.layout = replace(self.loader.layout, varlen=self.varlen)
        self.mode.setup(model, partial(build_optimizer, config=self.config))
        self.loss = SmoothedCrossEntropy("cross_entropy", WEIGHTS.to(self.mode.device))
        self.plan = BatchPlan(len(self.loader), self.config.batch_size, self.config.seed)
        self.steps: list[StepResult] = []

    def run(self, until: int | None = None, after_step=lambda state, step: None) -> "Training":
        """Train until a step, or to the end."""

        def keep(state: RunProgress, step: StepResult) -> None:
            self.steps.append(step)
            after_step(state, step)
            state.stop = state.step == until

        train_steps(self.mode, self.loader, self.plan, self.loss, self.config, self.state, keep)
        self.state.stop = False
        return self

    def resume(self, stopped: "Training") -> "Training":
        """Train to the end from where a training has stopped, as a new process does it."""
        self.mode.load_weights(stopped.weights)
        self.mode.load_optimizer_state(stopped.mode.optimizer_state())
        self.state, self.steps = stopped.state, stopped.steps
        return self.run()

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.mode.weights()

    @property
    def losses(self) -> list[float]:
        return [float(step.loss_sum) for step in self.steps]

    def assert_same_job(self, expected: "Training") -> None:
        """Compare losses, weights and the logits of train."""
        assert self.losses == pytest.approx(expected.losses, rel=TOLERANCE)
        weights = self.weights
        for name, value in expected.weights.items():
            # Its exact gradient is 0, which AdamW blows up
            if "key.bias" not in name:
                torch.testing.assert_close(weights[name], value, atol=TOLERANCE, rtol=0, msg=name)
        logits = [evaluate(of.mode, of.loader, 16) for of in (self, expected)]
        np.testing.assert_allclose(*logits, atol=100 * TOLERANCE)

    def assert_same_bits(self, expected: "Training") -> None:
        assert self.losses == expected.losses
        weights = self.weights
        assert all(torch.equal(weights[name], value) for name, value in expected.weights.items())
