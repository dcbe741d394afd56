"""What a run says and keeps while it trains: log lines, a progress bar, train.log, metrics.jsonl, and curves
for trackers."""

import logging
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any, Self

from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ..checkpoints.run_files import HISTORY
from ..config.schema import Config
from .metrics_file import METRICS_FILE, add_evaluation, remove_later_evaluations
from .step_results import StepResult
from .token_limit import TokenLimit
from .trackers import Trackers

logger = logging.getLogger(__name__)
LOG_FILE = "train.log"
NOISY_LOGGERS = ("transformers", "httpx", "httpx2", "tensorboard", "filelock")


def start_logging(is_main: bool) -> None:
    """Send log lines to standard error; rank 0 keeps them for the run folder's log, other ranks only warn."""
    level = logging.INFO if is_main else logging.WARNING
    logging.basicConfig(stream=sys.stderr, level=level, format="%(message)s", force=True)
    # A full disk must not fill the terminal with tracebacks of the log file
    logging.raiseExceptions = False
    if is_main:
        # It keeps all lines, also more than this, until it has a target
        logging.getLogger().addHandler(MemoryHandler(capacity=1000))
    for name in NOISY_LOGGERS:
        logging.getLogger(name).setLevel(logging.WARNING)


class RunLog:
    """A context that shows and keeps the numbers of a run. Each rank has one; only that with a `folder`
    speaks. `metrics` are shown after an evaluation. Rates are of the steps since this process began to train,
    without evaluations and saves; `limit` are the tokens a second that matrix products allow, where that is
    known: the peak of the machine. `with_bar`: a progress bar is shown where standard error is a terminal."""

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
        self.folder = folder
        self.metrics = metrics
        self.total_steps = total_steps
        self.first_step = first_step
        self.limit = limit
        self.trackers = Trackers(folder, config, first_step) if folder else None
        self.has_bar = folder is not None and with_bar and sys.stderr.isatty()
        # These count the steps since this process began to train
        self.rows = 0
        self.tokens = 0
        self.steps = 0
        self.skipped = 0
        self.closing = ExitStack()

    def __enter__(self) -> Self:
        # None where the limit is not known
        self.allowed_tokens_per_second = self.limit.tokens_per_second() if self.limit else None
        self.started = time.perf_counter()
        # tqdm's own lock takes a semaphore of the system too, which a process of mp.spawn would leave behind.
        tqdm.set_lock(threading.RLock())
        self.bar = self.new_bar(total=self.total_steps, initial=self.first_step, unit="step", desc="train")
        self.closing.callback(self.bar.close)
        if self.folder is not None:
            self.open_log_file(self.folder / LOG_FILE)
            if self.has_bar:
                self.closing.enter_context(logging_redirect_tqdm())
            remove_later_evaluations(self.folder / METRICS_FILE, self.first_step)
            self.closing.callback(self.trackers.finish)
            self.trackers.start()
        return self

    def __exit__(self, *failure: Any) -> None:
        self.close()

    def close(self) -> None:
        self.closing.close()

    def open_log_file(self, path: Path) -> None:
        """Write log lines to a file until the log is closed, the lines that were kept so far first."""
        handler = logging.FileHandler(path, encoding="utf-8")
        handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
        root = logging.getLogger()
        for early_handler in list(root.handlers):
            if isinstance(early_handler, MemoryHandler):
                early_handler.setTarget(handler)
                root.removeHandler(early_handler)
                # This writes what it has kept
                early_handler.close()
        root.addHandler(handler)
        self.closing.callback(handler.close)
        self.closing.callback(root.removeHandler, handler)

    def new_bar(self, **options: Any) -> tqdm:
        return tqdm(dynamic_ncols=True, disable=not self.has_bar, **options)

    def evaluation_bar(self, split: str, num_rows: int) -> tqdm:
        return self.new_bar(total=num_rows, unit="row", desc=split, delay=3, leave=False)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Return a context whose time does not count in the rates."""
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
        fraction = self.fraction_of_limit(rates["tokens_per_second"])
        if fraction is not None:
            rates["product_speed"] = fraction
        return rates

    def fraction_of_limit(self, tokens_per_second: float) -> float | None:
        """Return the fraction of `limit`, from 0 to 1, or None where it is not known."""
        if self.exceeds_limit(tokens_per_second):
            # Other programs slowed the measurement down
            with self.paused():
                self.allowed_tokens_per_second = self.limit.tokens_per_second(again=True)
        if self.exceeds_limit(tokens_per_second):
            # They still do: what was measured is no limit
            self.allowed_tokens_per_second = None
        if self.allowed_tokens_per_second is None:
            return None
        return tokens_per_second / self.allowed_tokens_per_second

    def exceeds_limit(self, tokens_per_second: float) -> bool:
        allowed = self.allowed_tokens_per_second
        return allowed is not None and tokens_per_second > allowed

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
        rates = self.rates()
        seconds = time.perf_counter() - self.started
        fraction = rates.pop("product_speed", None)
        seconds_left = (self.total_steps - step.step) * seconds / self.steps
        token_rate = f"{rates['tokens_per_second']:.0f} tokens/s"
        if fraction is not None:
            token_rate += f" ({fraction:.0%} of this machine's peak)"
        parts = [
            f"step {step.step}/{self.total_steps}",
            f"loss {loss:.4f}",
            f"lr {step.learning_rate:.2e}",
            f"{rates['rows_per_second']:.1f} rows/s",
            token_rate,
            f"{self.steps / seconds:.2f} steps/s",
            f"left {tqdm.format_interval(seconds_left)}",
        ]
        if self.skipped:
            parts.append(f"{self.skipped} skipped")
        logger.info("  ".join(parts))
        values = {"loss": loss} | rates
        values["learning_rate"] = step.learning_rate
        values["grad_norm"] = float(step.grad_norm)
        self.track("train", values, step.step)

    def evaluation(self, step: int, split: str, metrics: dict, is_best: bool) -> None:
        """Show the metrics of one evaluation and append them to metrics.jsonl."""
        if self.folder is None:
            return
        values = {name: metrics[name] for name in self.metrics}
        evaluation = {"step": step, "split": split} | values
        for name in ("train_loss", "classes"):
            if name in metrics:
                evaluation[name] = metrics[name]
        evaluation |= {"best": is_best, "rows": metrics["rows"]}
        add_evaluation(self.folder / METRICS_FILE, evaluation | self.rates())
        message = "  ".join(f"{name} {value:.4f}" for name, value in values.items())
        if is_best:
            message += "  (best so far)"
        logger.info(f"step {step}  {split}: {message}")
        self.track(split, values, step)

    def track(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value. Raises OSError where the run folder
        was renamed or removed: TensorBoard would fail in its own thread."""
        (self.folder / HISTORY).stat()
        points = {f"{group}/{name}": float(value) for name, value in values.items()}
        self.trackers.log(points, step)
