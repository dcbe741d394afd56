"""What a run says and keeps while it trains: log lines, a progress bar, train.log, metrics.jsonl, and curves
by accelerate's trackers (TensorBoard and services), which cannot end the run."""

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import torch
from accelerate import tracking
from torch import nn
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..checkpoints.run_files import HISTORY
from ..checkpoints.run_history import flat_settings
from ..config.schema import Config, OutputConfig
from ..errors import InputError, first_line
from ..model.read_tokens import ReadTokens
from ..modes.mode import Mode
from ..runtime.devices import DTYPES, measure_product_speed, product_speed
from ..runtime.disk import checked_value, parse_json, write_text
from .build import Components
from .step import StepResult

logger = logging.getLogger(__name__)
METRICS_FILE = "metrics.jsonl"
PROJECT, TENSORBOARD = "chinese-text-classification", "tensorboard"
# accelerate's own logger raises an error where accelerate does not train.
tracking.logger = logging.getLogger(tracking.__name__)


def start_logging(is_main: bool) -> None:
    """Send log lines to standard error; rank 0 keeps them for the run folder's log, other ranks only warn."""
    level = logging.INFO if is_main else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s", force=True)
    # A full disk must not fill the terminal with tracebacks of the log file
    logging.raiseExceptions = False
    if is_main:
        # It keeps all lines, also more than this, until it has a target
        logging.getLogger().addHandler(MemoryHandler(capacity=1000))
    for noisy in ("transformers", "httpx", "httpx2", "tensorboard", "filelock"):
        logging.getLogger(noisy).setLevel(logging.WARNING)


def check_trackers(config: OutputConfig) -> None:
    for name in config.trackers:
        if name not in tracking.LOGGER_TYPE_TO_CLASS or find_spec(name) is None:
            raise InputError(
                f"output.trackers must be names of {', '.join(tracking.LOGGER_TYPE_TO_CLASS)}, each with its "
                f"library, found '{name}': correct it, or pip install {name}"
            )


@dataclass(frozen=True)
class TokenLimit:
    """The tokens a second that the matrix products of a run allow. A token needs so many `operations` on each
    of the run's devices, `device` and others like it, in `dtype`."""

    device: torch.device
    dtype: torch.dtype
    operations: float

    def tokens_per_second(self, again: bool = False) -> float:
        """Return the limit, of the speed that was measured first in this process, or is measured `again`."""
        if again:
            speed = measure_product_speed(self.device, self.dtype)
        else:
            speed = product_speed(self.device, self.dtype, torch.get_num_threads())
        return speed / self.operations


def token_limit(mode: Mode, components: Components) -> TokenLimit | None:
    """Return the limit of 6 operations for each token and weight of the linear layers that compute for all
    tokens (forward 2, backward 4). None where not all layers of the encoder are trained, or some are used
    several times in a pass."""
    encoder = components.model.model.base_model
    # The pooler reads one token of a row
    layers = [
        layer
        for name, layer in encoder.named_modules()
        if isinstance(layer, nn.Linear) and not name.startswith("pooler")
    ]
    is_shared = hasattr(encoder.config, "num_hidden_groups")
    if is_shared or not all(layer.weight.requires_grad for layer in layers):
        return None
    if components.loaders["train"].layout.packed:
        skipped = layers_of_read_tokens(encoder)
        layers = [layer for layer in layers if layer not in skipped]
    if not layers:
        return None
    # The sizes are those of the layers: of sharded weights a process has only a part
    weights = sum(layer.in_features * layer.out_features for layer in layers)
    devices = mode.group.world_size * len(getattr(mode.module, "device_ids", None) or [mode.device])
    dtype = DTYPES.get(components.config.train.precision, torch.float32)
    return TokenLimit(mode.device, dtype, operations=6 * weights / devices)


def layers_of_read_tokens(encoder: nn.Module) -> set[nn.Module]:
    """Return the modules that in packed batches compute only for the one token of a row that the head
    reads."""
    skipped: set[nn.Module] = set()
    for module in encoder.modules():
        if isinstance(module, ReadTokens):
            skipped.update(module.modules())
            for part in module.parts_for_all_tokens():
                skipped.difference_update(part.modules())
    return skipped


class RunLog:
    """Shows and keeps the numbers of a run. Each rank has one; only that with a `folder` speaks. `metrics`
    are shown after an evaluation. Rates are of the steps since this process began to train, without
    evaluations and saves; `limit` are the tokens a second that matrix products allow, where that is known.
    `with_bar`: a progress bar is shown where standard error is a terminal."""

    def __init__(
        self,
        folder: Path | None,
        config: Config,
        metrics: tuple[str, ...],
        total_steps: int,
        first_step: int = 0,
        limit: TokenLimit | None = None,
        with_bar: bool = False,
    ) -> None:
        self.folder, self.config, self.metrics = folder, config, metrics
        self.total_steps, self.first_step = total_steps, first_step
        self.limit = limit
        self.limit_tokens = limit.tokens_per_second() if limit else None
        self.rows = self.tokens = self.steps = self.skipped = 0
        self.started = time.perf_counter()
        self.trackers: dict[str, tracking.GeneralTracker] = {}
        # tqdm's own lock takes a semaphore of the system too, which a process of mp.spawn would leave behind.
        tqdm.set_lock(threading.RLock())
        is_hidden = folder is None or not (with_bar and sys.stderr.isatty())
        self.bar_options = {"dynamic_ncols": True, "disable": is_hidden}
        self.bar = tqdm(total=total_steps, initial=first_step, unit="step", desc="train", **self.bar_options)
        self.closing = ExitStack()
        self.closing.callback(self.bar.close)
        if folder is None:
            return
        handler, root = logging.FileHandler(folder / "train.log", encoding="utf-8"), logging.getLogger()
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        for early in [one for one in root.handlers if isinstance(one, MemoryHandler)]:
            early.setTarget(handler)
            root.removeHandler(early)
            # This writes what it has kept
            early.close()
        root.addHandler(handler)
        self.closing.callback(handler.close)
        self.closing.callback(root.removeHandler, handler)
        if not is_hidden:
            self.closing.enter_context(logging_redirect_tqdm())
        # Damaged lines, and those of evaluations that a resumed run makes again, are removed
        if (metrics_file := folder / METRICS_FILE).exists():
            kept = [line for line in read_evaluations(metrics_file) if line["step"] <= first_step > 0]
            write_text(metrics_file, "".join(f"{json.dumps(line, ensure_ascii=False)}\n" for line in kept))
        for name in dict.fromkeys(config.output.trackers):
            self.guard(name, partial(self.start_tracker, name))

    def evaluation_bar(self, split: str, num_rows: int) -> tqdm:
        return tqdm(total=num_rows, unit="row", desc=split, delay=3, leave=False, **self.bar_options)

    @contextmanager
    def paused(self) -> Iterator[None]:
        before = time.perf_counter()
        yield
        self.started += time.perf_counter() - before

    def rates(self) -> dict[str, float]:
        """Return rows and tokens a second, and where it is known the fraction of `limit`, from 0 to 1; {}
        before the first step."""
        if not self.steps:
            return {}
        seconds = time.perf_counter() - self.started
        rates = {"rows_per_second": self.rows / seconds, "tokens_per_second": self.tokens / seconds}
        share = self.share_of_limit(rates["tokens_per_second"])
        if share is not None:
            rates["product_speed"] = share
        return rates

    def share_of_limit(self, tokens_per_second: float) -> float | None:
        """Return the fraction of `limit`, from 0 to 1, or None where it is not known."""
        if self.limit_tokens is not None and tokens_per_second > self.limit_tokens:
            # Other programs slowed the measurement down
            with self.paused():
                self.limit_tokens = self.limit.tokens_per_second(again=True)
        if self.limit_tokens is not None and tokens_per_second > self.limit_tokens:
            # They still do: what was measured is no limit
            self.limit_tokens = None
        return None if self.limit_tokens is None else tokens_per_second / self.limit_tokens

    def count(self, step: StepResult) -> None:
        self.rows += step.rows
        self.tokens += step.tokens
        self.steps += 1
        self.skipped += step.skipped
        self.bar.update()

    def step(self, step: StepResult, loss: float) -> None:
        """Show a step, and the mean `loss` since the last line. Waits for the device."""
        if self.folder is None:
            return
        rates, seconds = self.rates(), time.perf_counter() - self.started
        share = rates.pop("product_speed", None)
        left = tqdm.format_interval((self.total_steps - step.step) * seconds / self.steps)
        logger.info(
            f"step {step.step}/{self.total_steps}  loss {loss:.4f}  lr {step.learning_rate:.2e}  "
            f"{rates['rows_per_second']:.1f} rows/s  {rates['tokens_per_second']:.0f} tokens/s"
            f"{f' ({share:.0%} of matrix products)' if share is not None else ''}  "
            f"{self.steps / seconds:.2f} steps/s  left {left}"
            f"{f'  {self.skipped} skipped' if self.skipped else ''}"
        )
        rates |= {"learning_rate": step.learning_rate, "grad_norm": float(step.grad_norm)}
        self.track("train", {"loss": loss} | rates, step.step)

    def evaluation(self, step: int, split: str, metrics: dict, is_best: bool) -> None:
        """Show the metrics of one evaluation and append them to metrics.jsonl."""
        if self.folder is None:
            return
        shown = {name: metrics[name] for name in self.metrics}
        more = {name: metrics[name] for name in ("train_loss", "classes") if name in metrics}
        line = {"step": step, "split": split} | shown | more | {"best": is_best, "rows": metrics["rows"]}
        with (self.folder / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line | self.rates(), ensure_ascii=False) + "\n")
        values = "  ".join(f"{name} {value:.4f}" for name, value in shown.items())
        logger.info(f"step {step}  {split}: {values}{'  (best so far)' if is_best else ''}")
        self.track(split, shown, step)

    def track(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value. Raises OSError where the run folder
        was renamed or removed: TensorBoard would fail in its own thread."""
        (self.folder / HISTORY).stat()
        points = {f"{group}/{name}": float(value) for name, value in values.items()}
        for name, tracker in [*self.trackers.items()]:
            self.guard(name, partial(tracker.log, points, step))

    def start_tracker(self, name: str) -> None:
        """Start a tracker, which gets the settings by their dotted names. What TensorBoard's files have after
        the first step, of a resumed run, is replaced."""
        # The keys of other services are those of their libraries; each shows the run under its folder's name.
        run_name = self.folder.resolve().name
        keys = {"mlflow": "run_name", "wandb": "name", "swanlab": "experiment_name"}
        options = {keys[name]: run_name} if name in keys else {}
        if name == "mlflow":
            # A folder is enough for one machine; MLflow keeps reading it, and asks for the second variable.
            os.environ.setdefault("MLFLOW_TRACKING_URI", "mlruns")
            os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        if name == TENSORBOARD:
            options = {"logging_dir": self.folder, "purge_step": self.first_step + 1}
            # It reads files in the order of their names, which begin with the time; a clock may be set back.
            for number, path in enumerate(sorted((self.folder / TENSORBOARD).glob("events.out.tfevents.*"))):
                ending = path.name.split(".", 4)[4]
                path.rename(path.with_name(f"events.out.tfevents.{number:010d}.{ending}"))
        # accelerate asks its own state which process is the main one: this one is.
        kind = tracking.LOGGER_TYPE_TO_CLASS[name]
        kind = type(kind.__name__, (kind,), {"main_process_only": False})
        tracker = kind(TENSORBOARD if name == TENSORBOARD else PROJECT, **options)
        tracker.start()
        self.trackers[name] = tracker
        self.closing.callback(lambda: name in self.trackers and self.guard(name, tracker.finish))
        if name != TENSORBOARD:
            settings = flat_settings(self.config.to_dict())
            tracker.store_init_configuration({key: one for key, one in settings.items() if one is not None})

    def guard(self, name: str, call: Callable[[], Any]) -> None:
        try:
            call()
        except (Exception, SystemExit) as error:  # noqa: BLE001 - of any library
            self.trackers.pop(name, None)
            text = f"The tracker {name} is left out from here on: {type(error).__name__}: {first_line(error)}"
            logger.warning("%s. The training is not affected.", text)

    def close(self) -> None:
        self.closing.close()


def read_evaluations(path: Path, metrics: Iterable[str] = ()) -> list[dict[str, Any]]:
    """Return the evaluations in metrics.jsonl, if it is there: objects with a step and, where `metrics` are
    asked for, with a split and these numbers. A warning names each damaged line."""
    if not path.exists():
        return []
    wanted: dict[str, Any] = {"step": int}
    if metrics:
        wanted |= {"split": str} | dict.fromkeys(metrics, float)
    evaluations = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            evaluation = parse_json(line.decode(), path, wanted, "")
            checked_value(evaluation.get("train_loss", 0.0), float, path, "train_loss", "")
        except ValueError:
            logger.warning("%s, line %d: no evaluation in JSON; skipped", path, number)
            continue
        evaluations.append(evaluation)
    return evaluations
