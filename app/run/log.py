"""What a run says while it goes on: log lines, progress bar, TensorBoard, and a line of JSON for each evaluation."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from logging.handlers import MemoryHandler
from pathlib import Path

import torch
from tqdm import tqdm

from app.config.schema import OutputConfig
from app.errors import InputError
from app.strategies.strategy import Strategy
from app.training.loop import StepLog
from app.training.state import RunState

logger = logging.getLogger(__name__)


def start_logging(is_main: bool) -> None:
    """Send log lines to standard error, and on rank 0 keep them for the run folder's log; other ranks only warn."""
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO if is_main else logging.WARNING, format="%(message)s", force=True
    )
    logging.raiseExceptions = False  # a full disk must not fill the terminal with tracebacks of the log file
    if is_main:
        logging.getLogger().addHandler(MemoryHandler(capacity=1000))  # it keeps more until it has a target
    for noisy in ("transformers", "httpx", "tensorboard", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


class RunLog:
    """Shows and keeps the figures of a run. Every rank has one and calls it; only rank 0's says anything."""

    def __init__(
        self,
        folder: Path | None,
        config: OutputConfig,
        strategy: Strategy,
        total_steps: int,
        log_every: int,
        first_step: int = 0,
        window: list[tuple[float, int]] | None = None,
        on_losses: Callable[[list[StepLog], list[float]], None] = lambda steps, losses: None,
    ) -> None:
        self.strategy = strategy
        self.total_steps = total_steps
        self.log_every = log_every
        self.folder = folder
        self.steps: list[StepLog] = []  # whose losses are still on the devices
        self.window = list(window or [])  # (sum of the losses, rows) of each step since the last line
        self.on_losses = on_losses
        self.rows = 0
        self.skipped = 0
        self.bar = self.writer = self.handler = None
        wanted = sys.stderr.isatty() if config.progress is None else config.progress
        self.shows_bars = wanted and folder is not None
        if folder is None:
            return
        self.handler = open_log(folder / "train.log")
        if config.tensorboard:
            self.writer = open_tensorboard(folder / "tensorboard", first_step)
        drop_later_lines(folder / "metrics.jsonl", first_step)
        if self.shows_bars:
            self.bar = tqdm(total=total_steps, initial=first_step, unit="step", dynamic_ncols=True, desc="train")

    def start(self, state: RunState) -> None:
        """Start the clock; time spent in evaluations is not counted."""
        self.first_step = state.step
        self.training_seconds = 0.0
        self.resume_clock()

    def pause_clock(self) -> None:
        self.training_seconds += time.perf_counter() - self.clock

    def resume_clock(self) -> None:
        self.clock = time.perf_counter()

    def after_step(self, state: RunState, step: StepLog) -> None:
        """Keep a step's figures; every `log_every` steps, and at the last, reduce them over all ranks and show them."""
        self.steps.append(step)
        self.rows += step.rows
        self.skipped += step.skipped
        if self.bar:
            self.bar.update()
        if state.step % self.log_every == 0 or state.step == self.total_steps or state.step == 1:
            self._show(state, step)

    def collect(self) -> list[tuple[float, int]]:
        """Add up the losses of the last steps over all ranks; return those, with their rows, that were not shown yet.

        Every rank calls it. Waits for the device.
        """
        steps, self.steps = self.steps, []
        if steps:
            losses = self.strategy.group.reduce_sum(torch.stack([entry.loss_sum for entry in steps])).tolist()
            self.window += [(loss, entry.rows) for loss, entry in zip(losses, steps, strict=True)]
            self.on_losses(steps, losses)
        return self.window

    def _show(self, state: RunState, step: StepLog) -> None:
        losses, rows = zip(*self.collect(), strict=True)
        loss = sum(losses) / sum(rows)  # a mean over rows, not a mean of means
        self.window.clear()
        if self.folder is None:
            return
        seconds = self.training_seconds + time.perf_counter() - self.clock
        rows_per_second = self.rows / seconds
        left = (self.total_steps - state.step) * seconds / max(1, state.step - self.first_step)
        values = {"loss": loss, "learning_rate": step.learning_rate, "rows_per_second": rows_per_second}
        if step.grad_norm is not None:
            values["grad_norm"] = float(step.grad_norm)
        skipped = f"  {self.skipped} skipped" if self.skipped else ""
        line = (
            f"step {state.step}/{self.total_steps}  loss {loss:.4f}  lr {step.learning_rate:.2e}  {rows_per_second:.1f} rows/s  "
            f"left {timedelta(seconds=round(left))}{skipped}"
        )
        if self.bar:
            self.bar.set_postfix(
                loss=f"{loss:.4f}", lr=f"{step.learning_rate:.2e}", rows_per_s=f"{rows_per_second:.1f}"
            )
            self.handler.emit(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))
        else:
            logger.info(line)
        if self.writer:
            for name, value in values.items():
                self.writer.add_scalar(f"train/{name}", value, state.step)

    def evaluation(self, state: RunState, split: str, metrics: dict, is_best: bool, seconds: float) -> None:
        """Show the figures of one evaluation and append them to metrics.jsonl."""
        if self.folder is None:
            return
        names = ("loss", "accuracy", "macro_f1", "weighted_f1")
        figures = {
            "step": state.step,
            "split": split,
            **{name: metrics[name] for name in names},
            "classes": metrics["classes"],
            "best": is_best,
            "rows": metrics["rows"],
            "seconds": round(seconds, 3),
        }
        with (self.folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(figures, ensure_ascii=False) + "\n")
        shown = "  ".join(f"{name} {metrics[name]:.4f}" for name in names)
        self.say(f"step {state.step}  {split}: {shown}{'  (best so far)' if is_best else ''}")
        if self.writer:
            for name in names:
                self.writer.add_scalar(f"{split}/{name}", metrics[name], state.step)

    def say(self, line: str) -> None:
        """Log a line without breaking the progress bar."""
        if self.bar:
            self.bar.clear()
        logger.info(line)
        if self.bar:
            self.bar.refresh()

    def evaluation_bar(self, split: str, num_rows: int) -> tqdm:
        """Return the progress bar of an evaluation, which shows up only if that takes longer than a few seconds."""
        return tqdm(
            total=num_rows,
            unit="row",
            dynamic_ncols=True,
            desc=split,
            delay=3,
            leave=False,
            disable=not self.shows_bars,
        )

    def close_bar(self) -> None:
        """Close the bar of the training."""
        if self.bar:
            self.bar.close()
            self.bar = None

    def close(self) -> None:
        """Close the bar, the event file and the log file."""
        self.close_bar()
        if self.writer:
            self.writer.close()
        if self.handler:
            logging.getLogger().removeHandler(self.handler)
            self.handler.close()


def open_log(path: Path) -> logging.FileHandler:
    """Return a handler that writes to `path` what is logged, and what has been since `start_logging`."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    for early in [found for found in root.handlers if isinstance(found, MemoryHandler)]:
        early.setTarget(handler)
        root.removeHandler(early)
        early.close()  # writes what it has kept
    root.addHandler(handler)
    return handler


def open_tensorboard(folder: Path, first_step: int = 0):
    """Return a writer of TensorBoard event files that replaces what is there behind `first_step`.

    Raises InputError where TensorBoard is not installed.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(
            "output.tensorboard needs a library: pip install tensorboard, or --output.tensorboard false"
        ) from error
    # TensorBoard reads the files in the order of their names, which begin with the time; the clock may have been set back.
    for number, path in enumerate(sorted(folder.glob("events.out.tfevents.*"))):
        path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{path.name.split('.', 4)[4]}"))
    return SummaryWriter(str(folder), purge_step=first_step + 1)


def drop_later_lines(path: Path, first_step: int) -> None:
    """Remove the lines of evaluations behind `first_step`, which the run that goes on will make again."""
    if not path.exists():
        return
    whole = [line for line in path.read_bytes().splitlines(True) if line.endswith(b"\n")]  # the last may be cut off
    path.write_bytes(b"".join(line for line in whole if json.loads(line)["step"] <= first_step))
