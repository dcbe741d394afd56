"""What a run says and keeps while it trains: log lines, a progress bar, train.log, metrics.jsonl, curves."""

import json
import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import torch
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..checkpoints.run_folder import cannot_write
from ..config.schema import OutputConfig
from ..modes.mode import Mode
from ..runtime.devices import DTYPES, product_speed
from ..runtime.disk import write_bytes
from .build import Components
from .step import StepResult
from .trackers import Trackers

logger = logging.getLogger(__name__)
METRICS_FILE = "metrics.jsonl"
MAX_SECONDS = 1e12  # 30,000 years; what is written as a time must be some number of days


def token_limit(mode: Mode, components: Components) -> float | None:
    """Return the tokens a second that the matrix products of all devices allow, measured here in 0.1 s: of 6
    operations for each token and weight of the encoder's linear layers (forward 2, backward 4). None where
    not all of these are trained, or some are used several times in a pass."""
    settings, encoder = components.config.train, components.model.model.base_model
    linear = {name: layer for name, layer in encoder.named_modules() if isinstance(layer, nn.Linear)}
    # The pooler reads one token of a row
    layers = [layer for name, layer in linear.items() if not name.startswith("pooler")]
    is_shared = hasattr(encoder.config, "num_hidden_groups")
    if not layers or is_shared or not all(layer.weight.requires_grad for layer in layers):
        return None
    operations = 6 * sum(layer.in_features * layer.out_features for layer in layers)
    passes = 2 if settings.r_drop else 1
    devices = mode.group.world_size * len(getattr(mode.module, "device_ids", None) or [mode.device])
    speed = product_speed(mode.device, DTYPES.get(settings.precision, torch.float32))
    return devices * speed / (operations * passes)


def start_logging(is_main: bool) -> None:
    """Send log lines to standard error; rank 0 keeps them for the run folder's log too, other ranks only
    warn."""
    level = logging.INFO if is_main else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s", force=True)
    # A full disk must not fill the terminal with tracebacks of the log file
    logging.raiseExceptions = False
    if is_main:
        # It keeps more until it has a target
        logging.getLogger().addHandler(MemoryHandler(capacity=1000))
    for noisy in ("transformers", "httpx", "httpx2", "tensorboard", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


@contextmanager
def log_file(path: Path) -> Iterator[None]:
    """Return a context in which log lines are also written to `path`, those since `start_logging` first."""
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    root = logging.getLogger()
    for early in [one for one in root.handlers if isinstance(one, MemoryHandler)]:
        early.setTarget(handler)
        root.removeHandler(early)
        # Writes what it has kept
        early.close()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


class ProgressBar:
    """The bar of a training, where it is `wanted` and standard error is a terminal."""

    def __init__(self, wanted: bool, total_steps: int, first_step: int) -> None:
        # tqdm's own lock also takes a semaphore of the system. A process that mp.spawn started would leave it
        # behind, with a warning, because it ends without Python's shutdown.
        tqdm.set_lock(threading.RLock())
        self.options = {"dynamic_ncols": True, "disable": not (wanted and sys.stderr.isatty())}
        self.bar = tqdm(total=total_steps, initial=first_step, unit="step", desc="train", **self.options)
        self.close = self.bar.close
        self.update = self.bar.update
        self.say = logger.info

    def evaluation(self, split: str, num_rows: int) -> tqdm:
        """Return the bar of an evaluation, which is shown only if that takes longer than a few seconds."""
        return tqdm(total=num_rows, unit="row", desc=split, delay=3, leave=False, **self.options)


class Speed:
    """What is trained a second, and the time left, since this process started; evaluations and saves do not
    count. `limit` are the tokens a second that the machine's matrix products allow, where it is known."""

    def __init__(self) -> None:
        self.limit: float | None = None
        self.rows = self.tokens = self.steps = 0
        self.seconds_before = 0.0
        self.start()

    def start(self) -> None:
        """Start the clock."""
        self.started: float | None = time.perf_counter()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context whose time does not count."""
        self.seconds_before, self.started = self.seconds, None
        yield
        self.start()

    @property
    def seconds(self) -> float:
        """The seconds spent in training so far."""
        return self.seconds_before + (time.perf_counter() - self.started if self.started else 0.0)

    def rates(self) -> dict[str, float]:
        """Return rows and tokens a second, and the fraction of `limit`; {} before the first step."""
        if not self.steps:
            return {}
        rates = {"rows_per_second": self.rows / self.seconds, "tokens_per_second": self.tokens / self.seconds}
        return rates | ({"product_speed": rates["tokens_per_second"] / self.limit} if self.limit else {})


@dataclass
class Losses:
    """The losses of the last steps, which stay `on_device` until they are needed; then ranks add up. `window`
    is the run's list of (sum of losses, targets) of the steps since the last log line."""

    mode: Mode
    window: list[tuple[float, int]]
    on_device: list[StepResult] = field(default_factory=list)

    def collect(self) -> tuple[list[StepResult], list[float]]:
        """Return the steps since the last call and the sums of their losses over all ranks; extend the
        window. Every rank calls it. Waits for the device."""
        steps, self.on_device = self.on_device, []
        if not steps:
            return [], []
        sums = self.mode.group.reduce_sum(torch.stack([step.loss_sum for step in steps])).tolist()
        self.window += [(loss_sum, step.divisor) for loss_sum, step in zip(sums, steps, strict=True)]
        return steps, sums

    def take_mean(self) -> float:
        """Return the mean loss of the targets in the window, not a mean of means, and empty the window."""
        loss_sums, targets = zip(*self.window, strict=True)
        self.window.clear()
        return sum(loss_sums) / sum(targets)


class RunLog:
    """Shows and keeps the numbers of a run. Each rank has one; only that with a `folder` speaks."""

    def __init__(
        self,
        folder: Path | None,
        config: OutputConfig,
        metrics: tuple[str, ...],
        total_steps: int,
        log_every: int,
        first_step: int = 0,
        settings: dict | None = None,
        with_bar: bool = False,
    ) -> None:
        """`metrics` are shown after an evaluation; trackers get the `settings`, nested in groups. `with_bar`:
        a progress bar is shown where standard error is a terminal."""
        self.folder, self.metrics = folder, metrics
        self.total_steps, self.log_every = total_steps, log_every
        self.skipped = 0
        self.speed = Speed()
        self.bar = ProgressBar(with_bar and folder is not None, total_steps, first_step)
        self.closing = ExitStack()
        self.closing.callback(self.bar.close)
        if folder is None:
            return
        self.closing.enter_context(log_file(folder / "train.log"))
        if not self.bar.bar.disable:
            self.closing.enter_context(logging_redirect_tqdm())
        self.trackers = Trackers(config, folder, settings or {}, first_step)
        self.closing.callback(self.trackers.close)
        drop_later_lines(folder / METRICS_FILE, first_step)

    def count(self, step: StepResult) -> None:
        """Count a step."""
        self.speed.rows += step.rows
        self.speed.tokens += step.tokens
        self.speed.steps += 1
        self.skipped += step.skipped
        self.bar.update()

    def is_due(self, step: int) -> bool:
        """Return whether a step gets a line: every `log_every` steps, the first and the last."""
        return step % self.log_every == 0 or step in (1, self.total_steps)

    def step(self, step: StepResult, loss: float) -> None:
        """Show a step, and the mean `loss` of rows since the last line. Waits for the device."""
        if self.folder is None:
            return
        speed, rates = self.speed, self.speed.rates()
        share = f" ({rates['product_speed']:.0%} of matrix products)" if "product_speed" in rates else ""
        left = min((self.total_steps - step.step) * speed.seconds / speed.steps, MAX_SECONDS)
        logger.info(
            f"step {step.step}/{self.total_steps}  loss {loss:.4f}  lr {step.learning_rate:.2e}  "
            f"{rates['rows_per_second']:.1f} rows/s  {rates['tokens_per_second']:.0f} tokens/s{share}  "
            f"{speed.steps / speed.seconds:.2f} steps/s  left {timedelta(seconds=round(left))}"
            f"{f'  {self.skipped} skipped' if self.skipped else ''}"
        )
        values = {"loss": loss, "learning_rate": step.learning_rate} | rates
        values.pop("product_speed", None)
        if step.grad_norm is not None:
            values["grad_norm"] = float(step.grad_norm)
        self.trackers.add("train", values, step.step)

    def evaluation(self, step: int, split: str, metrics: dict, is_best: bool, seconds: float) -> None:
        """Show the metrics of one evaluation and append them to metrics.jsonl."""
        if self.folder is None:
            return
        shown = {name: metrics[name] for name in self.metrics}
        more = {name: metrics[name] for name in ("train_loss", "classes") if name in metrics}
        about = {"best": is_best, "rows": metrics["rows"], "seconds": round(seconds, 3)}
        line = {"step": step, "split": split} | shown | more | about | self.speed.rates()
        try:
            with (self.folder / METRICS_FILE).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        except OSError as error:
            raise cannot_write(METRICS_FILE, error, self.folder) from error
        values = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        logger.info(f"step {step}  {split}: {values}{'  (best so far)' if is_best else ''}")
        self.trackers.add(split, shown, step)

    def track_report(self, split: str, metrics: dict, step: int) -> None:
        """Give services the metrics of the report, after the last step."""
        values = {name: metrics[name] for name in self.metrics}
        self.trackers.add(f"report_{split}", values, step, to_services=True)

    def close(self) -> None:
        """Close the bar, the trackers and the log file."""
        self.closing.close()


def whole_lines(path: Path, names: tuple[str, ...] = ()) -> list[tuple[bytes, dict[str, Any]]]:
    """Return the lines of metrics.jsonl, if it is there, and the evaluations in them, each with `step` and
    the metrics in `names`. `kill -9` leaves half a line, a power cut zero bytes: one warning names those."""
    whole, damaged = [], []
    for number, line in enumerate(path.read_bytes().splitlines() if path.exists() else [], 1):
        try:
            evaluation = json.loads(line)
            is_whole = all(isinstance(evaluation[name], int | float) for name in ("step", *names))
        except (ValueError, TypeError, KeyError):
            is_whole = False
        if is_whole:
            whole.append((line + b"\n", evaluation))
        else:
            damaged.append(str(number))
    if damaged:
        lines = f"line{'s' if len(damaged) > 1 else ''} {', '.join(damaged)}"
        logger.warning("%s, %s: no evaluation in JSON; skipped", path, lines)
    return whole


def read_evaluations(path: Path, names: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """Return the evaluations in metrics.jsonl; see `whole_lines`."""
    return [evaluation for _, evaluation in whole_lines(path, names)]


def drop_later_lines(path: Path, first_step: int) -> None:
    """Remove damaged lines, and those after `first_step`, which a resumed run does again."""
    if path.exists():
        kept = b"".join(line for line, evaluation in whole_lines(path) if evaluation["step"] <= first_step)
        if kept != path.read_bytes():
            write_bytes(path, kept)
