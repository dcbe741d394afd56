"""One run: the only place where the parts are put together."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from app import data_report
from app.batches import BatchPlan
from app.config import Config, TrainConfig
from app.dataset import Dataset, open_dataset
from app.errors import InputError
from app.loader import Loader
from app.metrics import compute_metrics, is_better, render_report
from app.model import Classifier, build_model
from app.optimizer import build_optimizer
from app.progress import RunLog, start_logging
from app.run_folder import REPORT, create_run_folder, save_model, write_json, write_predictions, write_start, write_text
from app.strategies.base import Strategy
from app.tokenizer import load_tokenizer
from app.tokens import TokenStore, open_store
from app.trainer import RowLoss, StepLog, TrainState, evaluate, planned_steps, train

logger = logging.getLogger(__name__)


class Job:
    """The state of a run: what is trained, on what, and which checkpoint is the best so far."""

    def __init__(self, config: Config, mode: str, strategy: Strategy) -> None:
        self.config = config
        self.mode = mode
        self.strategy = strategy
        self.is_main = strategy.rank == 0
        self.best_value: float | None = None
        self.best_step = 0
        self.without_gain = 0

    def run(self) -> dict:
        """Prepare, train and report; returns the metrics of the report. Every rank calls it."""
        start_logging(self.is_main)
        self.prepare()
        try:
            self.train()
            return self.report()
        finally:
            self.log.close()

    def prepare(self) -> None:
        """Open the data, print its report, build the model, make the run folder."""
        config, data, settings = self.config, self.config.data, self.config.train
        make_deterministic(settings.deterministic)
        self.dataset = open_dataset(data)
        self.tokenizer = load_tokenizer(config.model, self.dataset, data.max_length, data.cache_dir)
        self.stores = open_stores(self.dataset, self.tokenizer, data.max_length, data.cache_dir)
        if self.is_main:
            logger.info(data_report.render(self.dataset, self.stores))
        torch.manual_seed(settings.seed)
        model = build_model(config.model, self.tokenizer, self.dataset.label_names, data.max_length)
        self.transformers_model = model.model
        layout = model.layout(choose_packed(settings.collate, model, self.strategy))
        self.loaders = {name: Loader(split, self.stores[name], layout) for name, split in self.dataset.splits.items()}
        self.plan = BatchPlan(len(self.loaders["train"]), settings.batch_size, settings.seed)
        self.folder = create_run_folder(config.output) if self.is_main else None
        if self.is_main:
            write_start(
                self.folder, config, self.mode, self.strategy.world_size, str(self.strategy.device), self.dataset
            )
            logger.info(describe(model, self.strategy, layout.packed, self.plan, settings, self.folder))
        num_layers = getattr(model.model.config, "num_hidden_layers", 0)
        self.strategy.setup(model, lambda module: build_optimizer(module, settings, num_layers))

    def train(self) -> None:
        """Run the loop, with an evaluation on dev every `eval_every` steps or after each epoch, and at the end."""
        settings = self.config.train
        total_steps = planned_steps(self.plan, settings)
        self.log = RunLog(self.folder, self.config.output, self.strategy, total_steps, settings.log_every)
        weights = class_weights(settings.class_weights, self.dataset)
        row_loss = RowLoss(None if weights is None else weights.to(self.strategy.device), settings.label_smoothing)
        every = settings.eval_every or self.plan.steps_per_epoch

        def after_step(state: TrainState, step: StepLog) -> None:
            self.log.after_step(state, step)
            if state.step % every == 0 or state.step == total_steps:
                self.evaluate_dev(state)

        self.state = TrainState()
        self.log.start(self.state)
        train(self.strategy, self.loaders["train"], self.plan, row_loss, settings, self.state, after_step)
        if "dev" not in self.loaders:
            self.keep(self.state.step)

    def evaluate_dev(self, state: TrainState) -> None:
        """Evaluate on dev, keep the checkpoint if it is the best, and stop when it has not been for too long."""
        if "dev" not in self.loaders:
            return
        settings = self.config.train
        self.log.pause_clock()
        started = time.perf_counter()
        metrics = self.evaluate("dev")[0]
        value = metrics[settings.best_metric]
        is_best = is_better(value, self.best_value, settings.best_metric)
        self.log.evaluation(state, "dev", metrics, is_best, time.perf_counter() - started)
        self.without_gain = 0 if is_best else self.without_gain + 1
        if is_best:
            self.best_value = value
            self.keep(state.step)
        elif settings.early_stopping and self.without_gain >= settings.early_stopping:
            state.stop = True
            self.log.say(
                f"stopped early: {settings.best_metric} has not been better than at step {self.best_step} in "
                f"{self.without_gain} evaluations"
            )
        self.log.resume_clock()

    def evaluate(self, name: str) -> tuple[dict, np.ndarray]:
        """Return the metrics and the logits, (num_rows, num_labels), of a split; every rank gets the same."""
        loader = self.loaders[name]
        logits = evaluate(self.strategy, loader, self.config.train.eval_batch_size)
        return compute_metrics(np.asarray(loader.split.labels), logits, self.dataset.label_names), logits

    def keep(self, step: int) -> None:
        """Write the current weights as the run's model."""
        self.best_step = step
        state = self.strategy.state_dict()
        if self.is_main:
            save_model(self.folder, self.transformers_model, strip_prefix(state), self.tokenizer)

    def report(self) -> dict:
        """Evaluate the kept checkpoint on test (on dev where there is no test), print the report and write it."""
        if self.best_step != self.state.step:
            kept = load_file(self.folder / "model.safetensors") if self.is_main else {}
            self.strategy.load_state_dict({f"model.{name}": value for name, value in kept.items()})
        name = next((name for name in ("test", "dev", "train") if name in self.loaders), "train")
        metrics, logits = self.evaluate(name)
        if self.is_main:
            chosen = (
                f", chosen by {self.config.train.best_metric} on dev {self.best_value:.4f}"
                if self.best_value is not None
                else ""
            )
            note = {
                "test": "",
                "dev": "; there is no test split, so these rows also chose the checkpoint",
                "train": "; the rows it was trained on",
            }[name]
            text = render_report(metrics, f"Report on {name}: checkpoint of step {self.best_step}{chosen}{note}")
            print("\n" + text)  # noqa: T201
            write_text(self.folder / "report.txt", text + "\n")
            write_predictions(
                self.folder / "predictions.csv", self.loaders[name].split, logits, self.dataset.label_names
            )
            details = {"split": name, "step": self.best_step, "data": self.dataset.figures}
            write_json(self.folder / REPORT, details | metrics)
            logger.info(
                "\nSaved in %s; classify text with: python predict.py --checkpoint %s 今天真开心",
                self.folder,
                self.folder,
            )
        return metrics


def open_stores(dataset: Dataset, tokenizer, max_length: int, cache_dir: str) -> dict[str, TokenStore]:
    """Return the token store of each split; splits of one file share one."""
    stores = {table.folder: open_store(table, tokenizer, max_length, cache_dir) for table in dataset.tables}
    return {name: stores[split.table.folder] for name, split in dataset.splits.items()}


def choose_packed(collate: str, model: Classifier, strategy: Strategy) -> bool:
    """Return whether batches are packed: as asked for, or where the model and the mode can."""
    if collate == "packed" and not strategy.packs:
        raise InputError(
            "train.collate packed does not work in this mode, which cuts batches by rows; set it to auto or padded"
        )
    return collate == "packed" or (collate == "auto" and model.can_pack and strategy.packs)


def class_weights(wanted: str | list[float], dataset: Dataset) -> torch.Tensor | None:
    """Return the factor on the loss of each class, (num_labels,) float32, or None where all count the same."""
    names = dataset.label_names
    if wanted == "none":
        return None
    if wanted == "balanced":
        counts = np.bincount(dataset.splits["train"].labels, minlength=len(names))
        return torch.tensor(counts.sum() / (len(names) * counts), dtype=torch.float32)
    if len(wanted) != len(names) or min(wanted) < 0:
        raise InputError(
            f"train.class_weights must be {len(names)} numbers from 0, one for each of {', '.join(names)}; found {wanted}"
        )
    return torch.tensor(wanted, dtype=torch.float32)


def make_deterministic(deterministic: bool) -> None:
    """Ask torch for deterministic kernels only; an operation that has none then raises RuntimeError."""
    torch.use_deterministic_algorithms(deterministic)
    if deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False


def strip_prefix(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return weights by the names of transformers' model, as they stand in model.safetensors."""
    return {name.removeprefix("model."): value for name, value in state.items()}


def describe(
    model: Classifier, strategy: Strategy, packed: bool, plan: BatchPlan, settings: TrainConfig, folder: Path
) -> str:
    """Return the lines that say what is about to be trained, and where it goes."""
    parameters = sum(parameter.numel() for parameter in model.parameters())
    config = model.model.config
    size = f"{getattr(config, 'num_hidden_layers', '?')} layers, {getattr(config, 'hidden_size', '?')} wide"
    return (
        f"Model\n  {config.model_type}, {size}, {parameters / 1e6:.1f} million parameters, {settings.precision}, "
        f"{'packed' if packed else 'padded'} batches\n  {strategy.world_size} process(es), {strategy.device}, "
        f"{torch.get_num_threads()} threads; {planned_steps(plan, settings):,} steps of {plan.batch_size} rows\n  run folder {folder}"
    )
