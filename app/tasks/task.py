"""What the program asks of a task, the object for a kind of answer. Each subclass is one kind.

Only NumPy is imported with the tasks: an exported model predicts without torch, and only paths need SciPy.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.schema import TASKS
from ..data.labels import label_form
from ..errors import InputError, listed
from .scores import Scores
from .tree import HIERARCHY, Tree

if TYPE_CHECKING:
    import torch

    from ..batching.collate import Layout
    from ..batching.loader import Batch, Loader
    from ..config.schema import Config
    from ..data.dataset import Dataset, Split
    from ..data.tokens import TokenStore
    from ..model.classifier import PackedModel


class Task:
    """How a model learns, decides and shows one kind of answer.

    `labels` are the true answers of rows and `predicted` those of a model, of the same shape and meaning;
    `logits` are what the model gives, (num_rows, any) float32. `loss(outputs, targets)` is a sum over outputs
    and targets (num_targets, ...), which the loop divides by `Loader.divisor`.
    """

    name: str  # the value of data.task
    problem_type: str | None  # in transformers' config.json
    # Models are compared in short by the main metric. The others are shown after each evaluation, and beside
    # the baselines.
    main_metric: str
    log_metrics: tuple[str, ...]
    baseline_metrics: tuple[str, ...]
    # Masked language modelling has none; its report compares with the rows before the training
    has_labels = True
    # A number says nothing of how sure it is; other answers may be left out where they are not sure enough
    predicts_number = False
    # The column of answers in files; the tables of report/ choose by it what people see
    answer_column = "label"
    right_rows_name = "rows"  # in words, which rows are right
    # Keys of `state` that config.json has too, for a model without the file of its decision
    config_keys: tuple[str, ...] = ()
    recall_at = 0.9  # the precision at which a report has the recall of the rarer of two classes
    # The next two are for `Loader`: losses of a row, and a function from labels to what the model learns
    losses_per_row = 1
    targets = None
    head_bias: np.ndarray | None = None  # with which a new head starts, (num_labels,) float32
    has_temperature = False  # fitted on dev, by which logits are divided
    # Of two classes the rarer one may be measured, and decided, on its own
    has_rare_class = False
    rare_class: int | None = None

    def __init__(self, label_names: list[str]) -> None:
        self.label_names = label_names
        self.form = label_form(self.name)  # how files and datasets have the labels
        self.tree: Tree | None = None  # of labels that are paths
        self.best_metric = "auto"
        # The temperature, and why there is none, as report.json has them
        self.calibration: dict = {}
        self.no_calibration: dict = {}

    # The training

    def prepare(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        """Choose loss and best metric; raises InputError for settings that do not fit the data."""
        self.config = config
        self.dataset = dataset
        self.tokenizer = tokenizer
        self.device = device
        self.best_metric = config.train.best_metric
        if self.best_metric == "auto":
            self.best_metric = TASKS[self.name].metrics[0]
        separator = config.data.label_hierarchy
        if separator:
            self.tree = Tree(self.label_names, separator)
        self.loss = self.build_loss(np.asarray(dataset.splits["train"].learnt))

    def build_loss(self, labels: np.ndarray) -> Any:
        """Return the loss for a training on rows with these labels, or with these distributions of labels,
        (num_rows, num_labels) float32."""
        raise NotImplementedError

    def label_weights(self, balanced: np.ndarray) -> torch.Tensor | None:
        """Return the factors of `train.class_weights` on the losses of labels, (num_labels,), or None for 1;
        `balanced` are those of the setting of this name."""
        import torch

        setting = self.config.train.class_weights
        if setting is None:
            return None
        values = setting
        if setting == "balanced":
            values = balanced
        weights = torch.tensor(values, dtype=torch.get_default_dtype(), device=self.device)
        is_usable = weights.isfinite() & (weights > 0)
        if len(weights) != len(self.label_names) or not is_usable.all():
            raise InputError(
                f"train.class_weights must be {len(self.label_names)} numbers above 0, in single precision "
                f"too, one for each of {listed(self.label_names)}; found {setting}"
            )
        return weights

    def build_model(self) -> PackedModel:
        """Return the model that the settings name, on the CPU."""
        from ..model.build_model import build_model

        model = build_model(
            self.config.model,
            self.tokenizer,
            self.label_names,
            self.config.data.max_length,
            problem_type=self.problem_type,
            head_bias=self.head_bias,
        )
        state = self.state()
        model.model.config.update({key: state[key] for key in self.config_keys})
        return model

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        from ..batching.loader import Loader

        return Loader(split, store, layout, self.losses_per_row, self.targets)

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what an evaluation keeps of outputs (num_targets, ...): (num_rows, any) float32."""
        return outputs

    # The decision

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        """Return the probabilities of the labels, (num_rows, num_labels) float64. Where `calibrated`, the
        logits are divided by a fitted temperature first."""
        raise NotImplementedError

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the answers that follow from the probabilities that people see."""
        raise NotImplementedError

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return self.decide_by_probabilities(self.probabilities(logits, calibrated=False))

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure a decision is, (num_rows,) from 0 to 1, to abstain below a threshold."""
        raise NotImplementedError

    def log_odds(self, outputs: torch.Tensor, label: int) -> torch.Tensor:
        """Return log(p / (1 - p)) of a label, or a number's value, (num_rows,), of the model's outputs."""
        raise NotImplementedError

    def differ(self, logits: np.ndarray, new_logits: np.ndarray) -> np.ndarray:
        """Return where two models, with these logits of the same rows, differ in answer, (num_rows,) bool."""
        is_different = self.decide(logits) != self.decide(new_logits)
        return is_different.reshape(len(logits), -1).any(axis=1)

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        """Fit the decision on rows of dev: the thresholds that are best for them, where the task has any;
        with `hashes` (num_rows,) of their texts, which divide the rows, also the temperature."""

    def together_with(self, others: Sequence[Task]) -> Task:
        """Return a task that decides by the mean probabilities of this one and of others with the same
        labels, each in any order; the mean is in the order of this one. Where they have thresholds, these are
        the means of theirs."""
        together = copy(self)
        together.calibration = {}
        return together

    def sharpened_loss(self, labels: np.ndarray, logits: np.ndarray, sharpness: float) -> np.ndarray:
        """Return the loss of each row, (num_rows,), for logits (num_rows, num_labels), where a task has a
        temperature with one of 1 / sharpness."""
        raise NotImplementedError

    def logits_of_linear_model(self, outputs: np.ndarray) -> np.ndarray:
        """Return the outputs of a linear model of texts, which are logits of the labels or one number, as the
        logits of this task; both (any number, num_labels). It is linear, with a constant."""
        return outputs

    def scaled_outputs(self) -> np.ndarray:
        """Return which logits of the encoder may be scaled beside a linear model, (num_labels,) bool."""
        return np.zeros(len(self.label_names), bool)

    def shift_direction(self, class_shares: np.ndarray | None) -> np.ndarray:
        """Return in which direction two readers together may shift all logits, (num_labels,), zeros for none.
        `class_shares` (num_labels,) are those of the train rows, None where classes count as they are."""
        return np.zeros(len(self.label_names))

    def state(self) -> dict:
        """Return the decision as values for JSON; empty where nothing was fitted."""
        if self.tree is None:
            return {}
        return {HIERARCHY: self.tree.separator}

    def load(self, values: dict) -> None:
        """Decide by an earlier `state`; raises ValueError, LookupError or TypeError for a damaged one."""

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        """Return the scores of rows; `predicted` where other models decided than this one."""
        raise NotImplementedError

    # What people see

    def answer(self, label: np.ndarray) -> Any:
        """Return one element of `labels` or `predicted` as people see it: a string, a list, a number."""
        return self.label_names[int(label)]

    def cell_text(self, label: np.ndarray) -> str:
        """Return one element of `labels` or `predicted` as a cell of a CSV file: a list as JSON."""
        answer = self.answer(label)
        if isinstance(answer, str):
            return answer
        return json.dumps(answer, ensure_ascii=False)
