"""What a task decides. The loop, the modes, resuming and the log work with this, and know no task by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from ..batching.collate import Layout
from ..batching.loader import Batch, Loader
from ..config.schema import Config
from ..data.dataset import Dataset, Split
from ..data.tokens import TokenStore
from ..errors import InputError
from ..model.packed_model import PackedModel


class Task:
    """Targets, model, loss, metrics and report of a run; every rank has one.

    `best_metrics` may choose the best checkpoint, the first by default; `log_metrics` are shown after each
    evaluation. A *target* is what one output of the model is compared with. `has_fixed_shape`: batches of as
    many rows have as many targets, which recorded passes need. `measures_start`: the rows of the report are
    also evaluated before the training. `has_card`: its metrics are those of a model card.
    """

    best_metrics: tuple[str, ...]
    log_metrics: tuple[str, ...]
    has_fixed_shape = True
    measures_start = False
    has_card = False

    def __init__(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        self.config = config
        self.dataset = dataset
        self.tokenizer = tokenizer
        self.device = device
        self.best_metric = self.choose_best_metric()

    def choose_best_metric(self) -> str:
        """Return the metric of `train.best_metric`; raises InputError for one that the task does not have."""
        chosen = self.config.train.best_metric
        if chosen not in ("auto", *self.best_metrics):
            raise InputError(
                f"train.best_metric must be {', '.join(self.best_metrics[:-1])} or {self.best_metrics[-1]} "
                "with data.task "
                f"{self.config.data.task}, found {chosen}"
            )
        return self.best_metrics[0] if chosen == "auto" else chosen

    def build_model(self, stores: dict[str, TokenStore]) -> PackedModel:
        """Return the model with the head that the task needs, on the CPU in fp32."""
        raise NotImplementedError

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        """Return the loader of a split, which makes inputs and targets, and says by how many a loss is
        divided."""
        raise NotImplementedError

    def sampling_classes(self, split: Split) -> np.ndarray:
        """Return the class of each row of a split, (num_rows,) int64, by which `train.sampling balanced`
        draws rows."""
        raise NotImplementedError

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the sum of the losses, without dimensions, of outputs (num_targets, ...) and their targets
        (num_targets, ...).

        The loop divides it by `Loader.divisor` of the global batch. No target gives 0.
        """
        raise NotImplementedError

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what an evaluation keeps of each row, (num_rows, any) float32, of outputs (num_targets,
        ...)."""
        raise NotImplementedError

    def metrics(self, split: Split, results: np.ndarray) -> dict:
        """Return the metrics of a split; `results` (num_rows, any) are the `row_results` in the order of its
        rows."""
        raise NotImplementedError

    def right_rows(self, split: Split, results: np.ndarray) -> np.ndarray | None:
        """Return which rows of a split are right, (num_rows,) bool; None where a row is not right or wrong as
        a whole."""
        return None

    def final_metrics(self, split: Split, results: np.ndarray) -> dict:
        """Return metrics that only the report of a finished run has."""
        return {}

    def report(self, metrics: dict, start: dict, title: str) -> str:
        """Return the report of a finished run as text; `start` are the metrics before the training, where
        they are measured."""
        raise NotImplementedError

    def write_results(
        self,
        folder: Path,
        splits: dict[str, Split],
        results: dict[str, np.ndarray],
        report_split: str,
        step: int,
    ) -> dict:
        """Write what the task keeps of the evaluated splits, by the model of `step`, into the run folder; a
        task may keep nothing.

        `results` by the name of the split. Returns more metrics for the report, which is about
        `report_split`.
        """
        return {}

    def write_predictions(self, path: Path, split: Split, results: np.ndarray) -> None:
        """Write the predictions of a split to a CSV file; a task may have none."""

    def write_page(
        self,
        path: Path,
        split: Split,
        results: np.ndarray,
        store: TokenStore,
        unknown_id: int | None,
        metrics: dict,
        title: str,
    ) -> None:
        """Write the report of a split as an HTML page; a task may have none. `unknown_id` is the unknown
        token of `store`."""

    def next_command(self, folder: Path) -> str:
        """Return what a user may do with the model in a run folder, with its command."""
        raise NotImplementedError
