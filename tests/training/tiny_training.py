"""A tiny training through the loop, for the tests of what is around its steps."""

from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import torch

from app.batching.loader import Loader
from app.batching.plan import BatchPlan
from app.checkpoints.progress import RunProgress
from app.config.schema import Config, TrainConfig
from app.model.freeze import freeze
from app.modes.mode import Single
from app.tasks.losses import ClassLoss
from app.training.step import train_steps
from app.training.step_results import PassesResult, StepResult
from tests.tiny import open_tiny, tiny_model

# 48 rows of train in batches of 10: in each epoch the fifth step has 8 rows.
SETTINGS = TrainConfig(epochs=4, batch_size=10, learning_rate=1e-3, warmup=0.1, precision="fp32")
SETTINGS = replace(SETTINGS, device="cpu", threads=1)
FOLDER = TemporaryDirectory()  # until the process ends
WEIGHTS = torch.tensor([0.5, 1.0, 3.0])
SMOOTHING = 0.1


class SmoothedCrossEntropy(ClassLoss):
    """With label smoothing no gradient is near 0, where AdamW turns rounding into whole steps."""

    def __call__(self, logits, labels):
        options = {"reduction": "sum", "label_smoothing": SMOOTHING}
        return torch.nn.functional.cross_entropy(logits, labels, self.weights, **options)


def step_result(
    step: int,
    finite: list[bool],
    loss_sum: float = 0.0,
    grad_norm: float = 1.0,
    skipped: bool = False,
    first_position: int = 0,
) -> StepResult:
    """Return the result of a step on one row for each of `finite`, from `first_position` on."""
    rows = len(finite)
    return StepResult(
        step=step,
        rows=rows,
        tokens=9 * rows,
        learning_rate=0.001,
        passes=PassesResult(
            loss_sum=torch.tensor(loss_sum),
            divisor=rows,
            positions=np.arange(rows) + first_position,
            finite=torch.tensor(finite),
        ),
        grad_norm=torch.tensor(grad_norm),
        skipped=skipped,
    )


@cache
def tiny_data(pairs: bool) -> tuple:
    """Return what `open_tiny` does; all tests of a process share its files."""
    folder = Path(FOLDER.name, str(pairs))
    folder.mkdir()
    return open_tiny(folder, pairs=pairs)


@dataclass
class Training:
    """A model with its loader and plan, on single texts or on pairs of them."""

    config: TrainConfig = SETTINGS
    mode_class: type = Single
    pairs: bool = False
    shape: dict = field(default_factory=dict)
    packed: bool = True
    varlen: bool = False
    dropout: float = 0.0
    frozen: str | None = None

    def __post_init__(self) -> None:
        dataset, tokenizer, stores = tiny_data(self.pairs)
        self.mode = self.mode_class(Config(train=self.config)).__enter__()
        model = tiny_model(vocab_size=len(tokenizer), dropout=self.dropout, **self.shape).train()
        if self.frozen:
            freeze(model, self.frozen)
        if self.config.gradient_checkpointing:
            model.checkpoint_layers()
        layout = model.layout(self.packed, self.varlen)
        self.loader = Loader(dataset.splits["train"], stores["train"], layout)
        self.mode.setup(model, self.mode.config)
        self.loss = SmoothedCrossEntropy("cross_entropy", WEIGHTS.to(self.mode.device))
        self.plan = BatchPlan(len(self.loader), self.config.batch_size, self.config.seed)
        self.state = RunProgress()
        self.steps = []

    def run(self, until: int | None = None, after_step=lambda state, step: None) -> "Training":
        """Train until a step, or to the end."""

        def keep(state: RunProgress, step: StepResult) -> None:
            self.steps.append(step)
            after_step(state, step)
            state.stop = state.step == until

        train_steps(self.mode, self.loader, self.plan, self.loss, self.state, keep)
        self.state.stop = False
        return self

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return self.mode.weights()

    @property
    def losses(self) -> list[float]:
        return [float(step.passes.loss_sum) for step in self.steps]

    @property
    def norms(self) -> list[float]:
        return [float(step.grad_norm) for step in self.steps]

    def assert_same_bits(self, expected: "Training") -> None:
        assert self.losses == expected.losses
        weights = self.weights
        assert all(torch.equal(weights[name], value) for name, value in expected.weights.items())
