"""What a run trains for, and one label a row, of which the other tasks override what differs. Only NumPy is
imported with this module: an exported model predicts without torch, and only paths need SciPy."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from ..config.schema import TASKS
from ..data.labels import label_form
from ..errors import InputError, listed
from ..runtime.disk import read_json, write_json
from .tree import HIERARCHY, Tree

if TYPE_CHECKING:
    import torch

    from ..batching.collate import Layout
    from ..batching.loader import Batch, Loader
    from ..config.schema import Config
    from ..data.dataset import Dataset, Split
    from ..data.tokens import TokenStore
    from ..model.classifier import PackedModel

# The decision is fitted on dev, never on test, which measures; a run folder keeps it in this file
DECISION, FITTED_ON = "decision.json", "dev"
DEFAULT_THRESHOLD = 0.5  # of the probability of a label
CERTAIN = 1e-12  # probabilities are not nearer to 0 or 1 than this
CLOSE = 1e-3  # logits nearer than this may be swapped by another runtime or precision
RARE_F1 = "rare_f1"  # the train.best_metric that also chooses from where on the rarer of two classes is said
MAX_COLUMNS, MOST_PROBABLE = 50, 10  # labels with a column each in files, and how many files have of more
SMALLEST, LARGEST = 0.05, 20.0  # temperatures
# Rows, and logits, to fit a temperature on; with more it moves by less than a hundredth
MIN_FITTED, MAX_FITTED = 1000, 1 << 20
ENOUGH_ROWS = 100  # of dev; with fewer a temperature is mostly chance
PARTS = 5  # of dev, each measured with the temperature of the others


@dataclass(frozen=True)
class Scores:
    """What models say of labelled rows; all arrays are (num_rows, ...), None where there is no such thing.

    `labels` and `predicted` are as the task has them, `confidence` is how sure the prediction is, `brier` the
    sum over classes of (probability - truth) squared, `num_wrong` how many labels are missing or too many,
    `error` how far a number is off; of two classes, `rare_chance` is the probability of the rarer one.
    `thresholds` (num_labels,) have decided; `figures` are for report.json.
    """

    labels: np.ndarray
    predicted: np.ndarray
    correct: np.ndarray
    loss: np.ndarray
    confidence: np.ndarray | None = None
    brier: np.ndarray | None = None
    num_wrong: np.ndarray | None = None
    error: np.ndarray | None = None
    rare_chance: np.ndarray | None = None
    thresholds: np.ndarray | None = None
    figures: dict = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)


class Task:
    """One label a row, (num_rows,) int64 ids; probabilities are softmax(logits / `temperature`).

    `name` is the value of data.task, `problem_type` that of transformers' config.json. Models are compared in
    short by `main_metric`; `log_metrics` are shown after each evaluation, `baseline_metrics` with the
    baselines. `loss(outputs, targets)` is a sum over outputs and targets (num_targets, ...), which the loop
    divides by `Loader.divisor`.

    `labels` are the true answers of rows and `predicted` those of a model, of the same shape and meaning;
    `logits` are what the model gives, (num_rows, any) float32. `tree` is the hierarchy of labels that are
    paths. `answer_column` is the column of answers in files; what people see follows from it in the tables of
    report/. `right_rows_name` says in words which rows are right. `config_keys` are keys of `state` that
    config.json has too, for a model without the file of its decision.
    """

    name = "single_label"
    problem_type: str | None = "single_label_classification"
    main_metric = "macro_f1"
    log_metrics: tuple[str, ...] = ("loss", "accuracy", "macro_f1", "weighted_f1")
    baseline_metrics: tuple[str, ...] = ("accuracy", "macro_f1")
    # Masked language modelling has none, and its report compares with the rows before the training
    has_labels = True
    # A number says nothing about how sure it is; other answers may be left out where they are not sure enough
    predicts_number = False
    answer_column, right_rows_name = "label", "rows"
    config_keys: tuple[str, ...] = ()
    recall_at = 0.9  # the precision at which a report has the recall of the rarer of two classes
    # For `Loader`
    losses_per_row, targets = 1, None
    head_bias: np.ndarray | None = None  # with which a new head starts, (num_labels,) float32

    def __init__(self, label_names: list[str]) -> None:
        self.label_names = label_names
        self.form = label_form(self.name)  # how files and datasets have the labels
        self.tree: Tree | None = None
        self.has_rare_class = len(label_names) == 2 and RARE_F1 in TASKS[self.name].metrics
        # The rarer of two classes, and from which log odds on it is the answer; None where argmax decides
        self.rare_class: int | None = None
        self.rare_log_odds: float | None = None
        self.best_metric = "auto"
        # The temperature, and why there is none, as JSON has them
        self.calibration: dict = {}
        self.no_calibration: dict = {}

    @property
    def temperature(self) -> float:
        return self.calibration.get("temperature", 1.0)

    def prepare(self, config: Config, dataset: Dataset, tokenizer, device: torch.device) -> None:
        """Choose loss and best metric; raises InputError for settings that do not fit the data."""
        self.config, self.dataset, self.tokenizer, self.device = config, dataset, tokenizer, device
        chosen = config.train.best_metric
        self.best_metric = TASKS[self.name].metrics[0] if chosen == "auto" else chosen
        if self.best_metric == RARE_F1 and not self.has_rare_class:
            found = f"found {len(self.label_names):,}; choose another one"
            raise InputError(f"train.best_metric {RARE_F1} needs two labels, {found}")
        separator = config.data.label_hierarchy
        self.tree = Tree(self.label_names, separator) if separator else None
        self.loss = self.build_loss(np.asarray(dataset.splits["train"].labels))

    def build_loss(self, labels: np.ndarray) -> Any:
        import torch

        from .losses import ClassLoss

        train, counts = self.config.train, np.bincount(labels, minlength=len(self.label_names))
        if self.has_rare_class:
            self.rare_class = int(counts.argmin())
        shares = torch.tensor(counts / counts.sum(), dtype=torch.get_default_dtype(), device=self.device)
        balanced = counts.sum() / len(counts) / counts
        weights = self.label_weights(balanced)
        return ClassLoss(train.loss, weights, shares, lambda outputs: self.class_logits(outputs, torch))

    def label_weights(self, balanced: np.ndarray) -> torch.Tensor | None:
        """Return the factors of `train.class_weights` on the losses of labels, (num_labels,), or None for 1;
        `balanced` are those of the setting of this name."""
        import torch

        setting = self.config.train.class_weights
        if setting == "none":
            return None
        values = balanced if setting == "balanced" else setting
        weights = torch.tensor(values, dtype=torch.get_default_dtype(), device=self.device)
        if len(weights) != len(self.label_names) or not (weights.isfinite() & (weights > 0)).all():
            raise InputError(
                f"train.class_weights must be {len(self.label_names)} numbers above 0, in single precision "
                f"too, one for each of {listed(self.label_names)}; found {setting}"
            )
        return weights

    def build_model(self, stores: dict[str, TokenStore]) -> PackedModel:
        from ..model.pretrained import build_model
        from ..model.trained_weights import start_linear

        settings, length, names = self.config.model, self.config.data.max_length, self.label_names
        model = build_model(settings, self.tokenizer, names, length, self.problem_type, self.head_bias)
        if settings.head == "linear":
            loader = self.loader(self.dataset.splits["train"], stores["train"], model.layout(model.can_pack))
            start_linear(model, loader, self.form.has_several)
        model.model.config.update({key: self.state()[key] for key in self.config_keys})
        return model

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        from ..batching.loader import Loader

        return Loader(split, store, layout, self.losses_per_row, self.targets)

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return what an evaluation keeps of outputs (num_targets, ...): (num_rows, any) float32."""
        return outputs

    def class_logits(self, outputs: Any, library: ModuleType = np) -> Any:
        """Return logits whose softmax are the probabilities of the labels, of the model's outputs, an array
        of `library`, numpy or torch."""
        return outputs

    def probabilities(self, logits: np.ndarray, calibrated: bool = True) -> np.ndarray:
        """Return (num_rows, num_labels) float64, fitted or as the model gives them."""
        return softmax(self.class_logits(np.asarray(logits)), self.temperature if calibrated else 1.0)

    def decide_by_probabilities(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the answers that follow from the probabilities that people see."""
        if self.rare_log_odds is None:
            return probabilities.argmax(axis=1)
        # A temperature divides the log odds and so what they are compared with
        is_rare = logit(probabilities[:, self.rare_class]) >= self.rare_log_odds / self.temperature
        return np.where(is_rare, self.rare_class, 1 - self.rare_class)

    def decide(self, logits: np.ndarray) -> np.ndarray:
        return self.decide_by_probabilities(
            self.probabilities(logits, calibrated=self.rare_log_odds is not None)
        )

    def confidence(self, probabilities: np.ndarray) -> np.ndarray:
        """Return how sure a decision is, (num_rows,) from 0 to 1, to abstain below a threshold."""
        return probabilities[np.arange(len(probabilities)), self.decide_by_probabilities(probabilities)]

    def differ(self, one: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return where two models, with these logits of the same rows, differ in answer, (num_rows,) bool."""
        return (self.decide(one) != self.decide(other)).reshape(len(one), -1).any(axis=1)

    def fit(self, labels: np.ndarray, logits: np.ndarray, hashes: np.ndarray | None = None) -> None:
        """Fit the decision on rows of dev: the thresholds that are best for them, where the task has any;
        with `hashes` (num_rows,) of their texts, which divide the rows, also the temperature."""
        if self.best_metric == RARE_F1:
            chances = self.probabilities(logits, calibrated=False)[:, self.rare_class]
            self.rare_log_odds = float(logit(best_threshold(np.asarray(labels) == self.rare_class, chances)))
        if hashes is None or self.answer_column != "label":
            return
        labels, logits, rows = np.asarray(labels), self.class_logits(logits), len(labels)
        parts, change = np.asarray(hashes) % PARTS, 0.0
        # It must lower the loss of rows that took no part in its fit
        for part in range(PARTS if rows >= ENOUGH_ROWS else 0):
            of_part = labels[parts == part], logits[parts == part]
            temperature = fit_temperature(labels[parts != part], logits[parts != part])
            change += float((class_loss(*of_part, temperature) - class_loss(*of_part, 1.0)).sum())
        if change < 0:
            temperature = fit_temperature(labels, logits)
            self.calibration = {"temperature": temperature, "fitted_on": FITTED_ON, "rows": rows}
        else:
            self.no_calibration = {"why": "no_better" if rows >= ENOUGH_ROWS else "few_rows", "rows": rows}

    def state(self) -> dict:
        """Return the decision as values for JSON; empty where nothing was fitted."""
        state = {HIERARCHY: self.tree.separator} if self.tree else {}
        if self.rare_class is not None:
            state["rare_class"] = self.label_names[self.rare_class]
        if self.rare_log_odds is not None:
            state["rare_threshold"] = float(sigmoid(self.rare_log_odds))
        return state | self.calibration

    def load(self, values: dict) -> None:
        """Decide by an earlier `state`; raises ValueError, LookupError or TypeError for a damaged one."""
        if "rare_class" in values:
            self.rare_class = self.label_names.index(values["rare_class"])
            if "rare_threshold" in values:
                self.rare_log_odds = float(logit(checked("rare_threshold", values["rare_threshold"])))
        if "temperature" in values or not (self.config_keys or "rare_class" in values):
            temperature = checked("temperature", values["temperature"], SMALLEST, LARGEST)
            rows = int(values.get("rows", 0))
            self.calibration = {"temperature": temperature, "fitted_on": FITTED_ON, "rows": rows}

    def write(self, folder: Path, step: int, effect: dict) -> None:
        """Write the decision for the model of `step` into its run folder, with its effect on some rows. Where
        nothing was fitted there is no file."""
        values = self.state()
        if values:
            write_json(folder / DECISION, values | effect | {"step": step})
        else:
            # One that was fitted for these weights before says something else
            (folder / DECISION).unlink(missing_ok=True)

    def read(self, folder: Path, calibrate: bool = True) -> None:
        """Decide as the run in `folder` does; without its file by the defaults and by config.json. Without
        `calibrate`, probabilities are as the model gives them. Raises InputError for a damaged file."""
        path, of_model = folder / DECISION, folder / "config.json"
        config = read_json(of_model, dict) if of_model.exists() else {}
        values = {key: config[key] for key in self.config_keys if config.get(key) is not None}
        try:
            values |= read_json(path, dict) if path.exists() else {}
            if HIERARCHY in self.config_keys:
                self.tree = Tree(self.label_names, values.pop(HIERARCHY))
            if values or path.exists():
                self.load(values)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"{path}: what was fitted for the decision is needed, there or in config.json, and cannot be "
                f"read: {error!r}; restore it, or remove the file to decide without"
            ) from error
        if not calibrate:
            self.calibration = {}

    def score(
        self,
        labels: np.ndarray,
        logits: np.ndarray,
        predicted: np.ndarray | None = None,
        calibrated: bool = False,
    ) -> Scores:
        """Return the scores of rows; `predicted` where other models decided than this one."""
        labels, at = np.asarray(labels, np.int64), np.arange(len(labels))
        predicted = self.decide(logits) if predicted is None else predicted
        logs = log_softmax(self.class_logits(logits), self.temperature if calibrated else 1.0)
        of_label = logs[at, labels]
        brier = np.exp(2 * logs).sum(axis=1) - 2 * np.exp(of_label) + 1
        confidence = np.exp(logs[at, predicted])
        scores = Scores(labels, predicted, predicted == labels, -of_label, confidence, brier)
        if not self.has_rare_class:
            return scores
        rare = np.bincount(labels, minlength=2).argmin() if self.rare_class is None else self.rare_class
        figures = {key: value for key, value in self.state().items() if key.startswith("rare_")}
        return replace(scores, rare_chance=np.exp(logs[:, rare]), figures=figures)

    def answer(self, label: np.ndarray) -> Any:
        """Return one element of `labels` or `predicted` as people see it: a string, a list, a number."""
        return self.label_names[int(label)]

    def cell_text(self, label: np.ndarray) -> str:
        """Return one element of `labels` or `predicted` as a cell of a CSV file: a list as JSON."""
        answer = self.answer(label)
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)

    def arrow_array(self, labels: np.ndarray) -> Any:
        """Return labels or predictions as a column of a Parquet file."""
        import pyarrow as pa

        types = {"label": pa.string(), "labels": pa.list_(pa.string()), "score": pa.float64()}
        is_number = self.answer_column == "score"
        values = np.asarray(labels, np.float64) if is_number else list(map(self.answer, labels))
        return pa.array(values, types[self.answer_column])

    def columns(self, probabilities: np.ndarray, threshold: float | None = None) -> dict[str, Any]:
        """Return what a file of predictions has of one row beside its answer, by column; `probabilities`
        (num_labels,). With a threshold of confidence also whether to accept it, its margin, and of labels in
        a hierarchy the deepest part that is sure enough."""
        shown, several = self.probability_columns(probabilities), self.form.has_several
        if self.predicts_number or (several and threshold is None):
            return shown
        if several:
            sure = float(self.confidence(probabilities[None])[0])
            decision = "accept" if sure >= threshold else "abstain"
            return {"decision": decision, "confidence": round(sure, 6)} | shown
        label = int(self.decide_by_probabilities(probabilities[None])[0])
        sure = float(probabilities[label])
        record: dict[str, Any] = {"probability": round(sure, 6)}
        if threshold is not None:
            record["decision"] = "accept" if sure >= threshold else "abstain"
            if self.tree:
                node, chance = self.label_names[label], sure
                if sure < threshold:
                    node, chance = self.tree.deepest(probabilities, threshold)
                    record["decision"] = "partial" if node else "abstain"
                record |= {"sure_label": node, "sure_probability": round(chance, 6)}
            record["margin"] = round(sure - float(np.delete(probabilities, label).max()), 6)
        return record | shown

    def probability_columns(self, probabilities: np.ndarray) -> dict[str, Any]:
        """Return the probability of each label, and of each parent of a path, by the name of its column; of
        many labels, the most probable ones in one."""
        if self.predicts_number:
            return {}
        if len(self.label_names) > MAX_COLUMNS:
            first = np.argsort(-probabilities, kind="stable")[:MOST_PROBABLE].tolist()
            pairs = [(self.label_names[label], round(float(probabilities[label]), 6)) for label in first]
            return {"most_probable": [{"label": name, "probability": share} for name, share in pairs]}
        by_name = list(zip(self.label_names, probabilities, strict=True))
        if (tree := self.tree) and not self.form.has_several:
            of_nodes = probabilities @ tree.members
            by_name += [(f"{tree.name(node)}{tree.separator}*", of_nodes[node]) for node in tree.parents]
        return {f"p_{name}": round(float(probability), 6) for name, probability in by_name}

    def ranked_labels(self, probabilities: np.ndarray) -> np.ndarray:
        """Return the ids of all labels, a single answer first, then the most probable."""
        ranked = np.argsort(-probabilities, kind="stable")
        if self.answer_column != "label":
            return ranked
        answer = self.decide_by_probabilities(probabilities[None])
        return np.concatenate([answer, ranked[ranked != answer]])

    def log_odds(self, outputs: torch.Tensor, label: int) -> torch.Tensor:
        """Return log(p / (1 - p)) of a label, or a number's value, (num_rows,), of the model's outputs."""
        import torch

        logits = self.class_logits(outputs, torch) / self.temperature
        others = torch.cat([logits[:, :label], logits[:, label + 1 :]], dim=1)
        return logits[:, label] - others.logsumexp(dim=1)


class SinglePath(Task):
    """One path a row, of labels in a hierarchy: class ids. A parent has the sum of the chances below it."""

    name = "single_path"
    problem_type = "single_path_classification"
    log_metrics = ("loss", "accuracy", "hierarchical_f1", "macro_f1")
    baseline_metrics = ("accuracy", "hierarchical_f1")
    config_keys = (HIERARCHY,)


def sigmoid(logits: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0, -np.asarray(logits, dtype=np.float64)))


def logit(probabilities: np.ndarray) -> np.ndarray:
    chances = np.clip(probabilities, CERTAIN, 1 - CERTAIN)
    return np.log(chances) - np.log1p(-chances)


def log_softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    """Return log(softmax) of logits (num_rows, num_labels) / temperature, float64."""
    scaled = np.asarray(logits, np.float64) / temperature
    shifted = scaled - scaled.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def softmax(logits: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    return np.exp(log_softmax(logits, temperature))


def checked(name: str, value: Any, least: float = 0, most: float = 1) -> float:
    """Return a number that was read from a file; raises ValueError for another one."""
    if not (type(value) in (int, float) and least <= value <= most):
        raise ValueError(f"{name} must be from {least:g} to {most:g}, found {value!r}")
    return float(value)


def best_threshold(has_label: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the threshold of the best F1 of one label; both arrays are (num_rows,).

    It is halfway between two different probabilities that are neighbours, so that small differences of
    another batch or precision change no decision. Of equally good ones those between logits that differ by
    more than `CLOSE` come first, then the nearest to 0.5. A label that no row has gets 0.5.
    """
    num_positive = int(has_label.sum(dtype=np.int64))
    if not num_positive:
        return DEFAULT_THRESHOLD
    order = np.argsort(-probabilities, kind="stable")
    falling = np.asarray(probabilities, np.float64)[order]
    below = np.append(falling[1:], 0.0)
    right = np.cumsum(has_label[order], dtype=np.int64)
    f1 = 2 * right / (np.arange(1, len(order) + 1) + num_positive)
    # Rows of the same probability are decided together
    f1[falling == below] = -1
    is_best = f1 == f1.max()
    # CLOSE as a difference of probabilities
    is_wide = falling - below > CLOSE * falling * (1 - falling)
    if (is_best & is_wide).any():
        is_best &= is_wide
    halfway = (falling + below) / 2
    # Between neighbouring numbers there is no other one, and rounding may give the lower one
    halfway = np.where(halfway > below, halfway, falling)
    candidates = halfway[is_best]
    return float(candidates[np.abs(candidates - DEFAULT_THRESHOLD).argmin()])


def choose_thresholds(labels: np.ndarray, probabilities: np.ndarray) -> np.ndarray:
    """Return the `best_threshold` of each label, (num_labels,), for arrays (num_rows, num_labels)."""
    return np.array([best_threshold(*columns) for columns in zip(labels.T, probabilities.T, strict=True)])


def class_loss(labels: np.ndarray, logits: np.ndarray, temperature: float) -> np.ndarray:
    return -log_softmax(logits, temperature)[np.arange(len(labels)), labels]


def fit_temperature(labels: np.ndarray, logits: np.ndarray) -> float:
    """Return the temperature with the smallest loss on `labels`, (num_rows,), and `logits`, (num_rows,
    num_labels). It is 1 where every prediction is right: the best one would be 0."""
    from scipy.optimize import minimize_scalar

    step = -(-len(labels) // max(MIN_FITTED, MAX_FITTED // logits.shape[1]))
    labels, logits = labels[::step], logits[::step]
    if (logits.argmax(axis=1) == labels).all():
        return 1.0

    def loss(log_temperature: float) -> float:
        return float(class_loss(labels, logits, math.exp(log_temperature)).mean())

    bounds = math.log(SMALLEST), math.log(LARGEST)
    optimum = minimize_scalar(loss, bounds=bounds, method="bounded", options={"xatol": 1e-4})
    return math.exp(float(optimum.x))
