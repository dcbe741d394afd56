"""The workers of `verify`: each is one rank of a mode, trains a few steps, and evaluates a few rows."""

from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from ..checkpoints.progress import RunProgress
from ..config.schema import Config
from ..modes import check_world_size, load_mode
from ..modes.launch import launch
from ..modes.mode import Mode, Single, Tensors
from ..report.logits_file import split_of_report
from ..training.build import Components, build
from ..training.evaluation import evaluate_rows
from ..training.head_start import start_head
from ..training.step import planned_steps, train_steps
from ..training.step_results import StepResult
from .verify_result import CONTROL, OTHER_MASKS, TrainingResult, precision_of, result_file, write_result

# An odd number of rows in several batches, so that ranks evaluate different numbers of rows
MAX_EVALUATED_ROWS = 33
EVALUATION_BATCH = 8  # rows


class OtherMasks(Single):
    """One process with the masks of dropout that a second rank would have, if each rank drew its own."""

    def forward(self, inputs: dict) -> torch.Tensor:
        inputs = dict(inputs)
        if "dropout_keys" in inputs:
            inputs["dropout_keys"] = inputs["dropout_keys"] + 1
        return super().forward(inputs)


def start_worker(config: Config, steps: int, words: list[str], nprocs: int | None) -> int:
    """Be a worker of `verify`, or start the processes of a mode that spawns them, and return the exit status.
    `words` are the mode, the folder for the results, and the trainings."""
    launcher = load_mode(words[0]).launcher
    return launch(launcher, run_trainings, (config, steps, *words), nprocs)


def run_trainings(config: Config, steps: int, mode: str, folder: str, *trainings: str) -> int:
    """Do each training in this process, one rank of `mode`; rank 0 writes the results into `folder`."""
    for training in trainings:
        is_float64 = precision_of(training) == "float64"
        torch.set_default_dtype(torch.float64 if is_float64 else torch.float32)
        mode_class = OtherMasks if training.endswith(OTHER_MASKS) else load_mode(mode)
        with mode_class(comparable_config(config, steps, training)) as opened:
            check_world_size(mode, opened.group.world_size)
            train_and_write(opened, result_file(Path(folder), training))
    return 0


def comparable_config(config: Config, steps: int, training: str) -> Config:
    """Return the configuration of a training of so many steps that all modes can do alike."""
    train = replace(config.train, max_steps=steps, log_every=1, early_stopping=None)
    precision = precision_of(training)
    # Without autocast, fp32 computes in the dtype of the weights
    train = replace(train, precision="fp32" if precision == "float64" else precision)
    if training.endswith(CONTROL):
        train = replace(train, accumulation_steps=2 * train.accumulation_steps)
    return replace(config, train=train)


def train_and_write(mode: Mode, file: Path) -> None:
    """Train a model with weights of the default dtype, and evaluate some rows; every rank calls it, and rank
    0 writes the result."""
    components = build(mode.config, mode)
    start_head(mode, components)
    components.model.to(torch.get_default_dtype())
    mode.setup(components.model, components.config)
    seen_dtypes = SeenDtypes()
    seen_dtypes.watch(mode.unwrapped_module())
    losses, gradients = train(mode, components)
    logits, num_rows = evaluate_some_rows(mode, components)
    weights = mode.weights()
    if mode.group.rank != 0:
        return
    tensors = {"losses": torch.tensor(losses, dtype=torch.float64), "logits": torch.from_numpy(logits)}
    for name, gradient in gradients.items():
        tensors[f"gradients/{name}"] = gradient
    for name, weight in weights.items():
        tensors[f"weights/{name}"] = weight
    states = {place: sorted(dtypes) for place, dtypes in seen_dtypes.states.items()}
    rows = f"{len(logits)} of {num_rows}"
    write_result(file, TrainingResult(tensors, rows, sorted(seen_dtypes.computed), states))


def train(mode: Mode, components: Components) -> tuple[list[float], Tensors]:
    """Train all steps of the configuration; return the loss of each step, and the gradients of the last one.
    Every rank calls it."""
    progress = RunProgress()
    last_step = planned_steps(components.plan, components.config.train) - 1
    losses: list[float] = []
    gradients: Tensors = {}

    def before_update() -> None:
        # Gathering the gradients of every step would take longer than the steps
        if progress.step == last_step:
            gradients.update(mode.gradients())

    def after_step(progress: RunProgress, step: StepResult) -> None:
        loss_sum = mode.group.reduce_sum(step.passes.loss_sum)
        losses.append(float(loss_sum) / step.passes.divisor)

    train_steps(
        mode,
        components.loaders["train"],
        components.plan,
        components.task.loss,
        progress,
        after_step,
        before_update,
    )
    return losses, gradients


def evaluate_some_rows(mode: Mode, components: Components) -> tuple[np.ndarray, int]:
    """Return the logits of the first rows of test, of dev where there is no test, or of train, (num_rows,
    any) float32, and how many rows it should be. Every rank calls it."""
    loaders = components.loaders
    name = split_of_report(loaders)
    loader = loaders[name]
    rows = loader.split.rows[:MAX_EVALUATED_ROWS]
    labels = loader.split.labels[:MAX_EVALUATED_ROWS]
    first_rows = replace(loader.split, rows=rows, labels=labels)
    task = components.task
    logits = evaluate_rows(
        mode,
        task.loader(first_rows, loader.store, loader.layout),
        EVALUATION_BATCH,
        row_results=task.row_results,
    )
    return logits, len(rows)


class SeenDtypes:
    """The dtypes that hooks see in the passes of a model: `computed`, of the outputs of its first linear
    layer; `states`, of the states that each layer takes and returns, and of the outputs of the model, by
    place. Layers have numbers for names."""

    def __init__(self) -> None:
        self.computed: set[str] = set()
        self.states: dict[str, set[str]] = defaultdict(set)

    def watch(self, model: nn.Module) -> None:
        """Note the dtypes of all later passes of a model."""
        linear = next(module for module in model.modules() if isinstance(module, nn.Linear))
        linear.register_forward_hook(self._note_computed)
        for name, module in model.named_modules():
            if name.rpartition(".")[2].isdigit():
                module.register_forward_hook(partial(self._note_layer, name))
        model.register_forward_hook(self._note_model)

    def _note_computed(self, module: nn.Module, inputs: tuple, output: torch.Tensor) -> None:
        self.computed.add(str(output.dtype))

    def _note_layer(self, name: str, layer: nn.Module, inputs: tuple, output: Any) -> None:
        self._note_states(f"into {name}", inputs)
        self._note_states(f"out of {name}", output)

    def _note_model(self, model: nn.Module, inputs: tuple, output: Any) -> None:
        self._note_states("out of the model", output)

    def _note_states(self, place: str, values: Any) -> None:
        for value in tree_leaves(values):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                # The states come first; masks and positions may follow
                self.states[place].add(str(value.dtype))
                return
