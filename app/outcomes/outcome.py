"""The contract of an outcome: what training, log and report ask about one kind of answer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..config.data_settings import TASKS
from ..errors import InputError
from .metrics import Metric, metrics_of

if TYPE_CHECKING:
    import torch

    from ..batching.collate import Layout
    from ..batching.loader import Batch, Loader
    from ..config.schema import Config
    from ..data.dataset import Dataset, Split
    from ..data.tokens import TokenStore
    from ..model.packed_model import PackedModel
    from .label_metrics import MixedPair

# The split on which decisions are fitted; never test, which is there to measure
FITTED_ON = "dev"


class Outcome:
    """One kind of answer that a model learns to give.

    A *target* is what one output of the model is compared with in training. Only NumPy is imported with this
    module: torch and scikit-learn are imported by the methods that need them, so that an exported model
    predicts without torch.

    `task` is the value of data.task, `problem_type` that of transformers' config.json. `log_metrics` are
    shown after each evaluation, `beside_baselines` with the baselines, and the first of these where there is
    room for one.
    `has_labels`: the outcome is a `LabelledOutcome`. `measures_start`: the rows of the report are also
    evaluated before the training. `unfitted` is what a report says where nothing that can be fitted on dev
    helps.
    """

    task: str
    problem_type: str | None = None
    log_metrics: tuple[str, ...]
    beside_baselines: tuple[str, ...] = ("accuracy",)
    has_labels = False
    measures_start = False
    unfitted: dict = {}

    def __init__(self, label_names: list[str]) -> None:
        self.label_names = label_names

    def without_fit(self) -> Outcome:
        """Return an outcome of the same kind and labels, with no fitted decision."""
        return type(self)(self.label_names)

    @property
    def metrics(self) -> list[Metric]:
        """The metrics of the table that the outcome has."""
        return metrics_of(self.task)

    @property
    def best_metrics(self) -> tuple[str, ...]:
        """The metrics that may choose the best checkpoint, the first by default."""
        return TASKS[self.task].metrics

    @property
    def main_metric(self) -> str:
        """The metric by which models are compared in short."""
        return self.best_metrics[0]

    def prepare(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        """Get ready to train: choose loss and best metric; every rank calls it. Raises InputError for
        settings that do not fit the data."""
        self.config = config
        self.dataset = dataset
        self.tokenizer = tokenizer
        self.device = device
        self.best_metric = self.choose_best_metric(config.train.best_metric)

    def choose_best_metric(self, chosen: str) -> str:
        """Return the metric of `train.best_metric`; raises InputError for one that may not choose."""
        if chosen not in ("auto", *self.best_metrics):
            raise InputError(
                f"train.best_metric must be {', '.join(self.best_metrics[:-1])} or {self.best_metrics[-1]} "
                f"with data.task {self.task}, found {chosen}"
            )
        return self.best_metrics[0] if chosen == "auto" else chosen

    def build_model(self, stores: dict[str, TokenStore]) -> PackedModel:
        """Return the model with the head of the outcome, on the CPU in fp32."""
        raise NotImplementedError

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        """Return the loader of a split: inputs, targets, and by how many a loss is divided."""
        from ..batching.loader import Loader

        return Loader(split, store, layout)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses, without dimensions, of outputs (num_targets, ...) and their targets
        (num_targets, ...). The loop divides it by `Loader.divisor` of the global batch. No target gives 0."""
        raise NotImplementedError

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what an evaluation keeps of outputs (num_targets, ...): (num_rows, any) float32."""
        raise NotImplementedError

    def metrics_in_training(self, split: Split, results: np.ndarray) -> dict:
        """Return the metrics of a split whose `row_results` are `results`, in the order of its rows."""
        raise NotImplementedError

    def report_text(self, metrics: dict, start: dict, title: str) -> str:
        """Return the report as text; `start` are the metrics before the training, where they are measured."""
        raise NotImplementedError

    def mixed_up(self, metrics: dict) -> list[MixedPair]:
        """Return the pairs of classes that are taken for each other in both directions."""
        return []

    def next_command(self, folder: Path) -> str:
        """Return what a user may do with the model in a run folder, with its command."""
        return f"classify text with: python predict.py --checkpoint {folder} 今天真开心"
