"""What a run says while it trains: log lines, progress bar, TensorBoard, a line of JSON an evaluation."""

import logging
from datetime import timedelta
from pathlib import Path

from ...checkpoints.run_folder import cannot_write
from ...config.schema import OutputConfig
from ..step import StepResult
from .metrics_file import METRICS, append_metrics, drop_later_lines
from .progress_bar import ProgressBar
from .setup import close_log_file, open_log_file
from .speed import Speed
from .tensorboard import TENSORBOARD, TensorBoard
from .trackers import Trackers

logger = logging.getLogger(__name__)


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
        self.folder = folder
        self.metrics = metrics
        self.total_steps = total_steps
        self.log_every = log_every
        self.skipped = 0
        self.speed = Speed()
        self.handler = open_log_file(folder / "train.log") if folder else None
        self.tensorboard = (
            TensorBoard(folder / TENSORBOARD, first_step)
            if folder and TENSORBOARD in config.trackers
            else None
        )
        self.trackers = Trackers(config, folder, flat(settings or {})) if folder else None
        if folder:
            drop_later_lines(folder / METRICS, first_step)
        self.bar = ProgressBar(with_bar and folder is not None, total_steps, first_step)

    def count(self, step: StepResult) -> None:
        """Count a step."""
        self.speed.count(step.rows)
        self.skipped += step.skipped
        self.bar.bar.update()

    def is_due(self, step: int) -> bool:
        """Return whether a step gets a line: every `log_every` steps, the first and the last."""
        return step % self.log_every == 0 or step in (1, self.total_steps)

    def step(self, step: StepResult, loss: float) -> None:
        """Show a step, and the mean `loss` of rows since the last line. Waits for the device."""
        if self.folder is None:
            return
        rows_per_second = self.speed.rows_per_second
        left = timedelta(seconds=round(self.speed.seconds_left(self.total_steps - step.step)))
        line = (
            f"step {step.step}/{self.total_steps}  loss {loss:.4f}  lr {step.learning_rate:.2e}  "
            f"{rows_per_second:.1f} rows/s  {self.speed.steps_per_second:.2f} steps/s  left {left}"
            f"{f'  {self.skipped} skipped' if self.skipped else ''}"
        )
        if self.bar.is_shown:
            self.bar.show(loss, step.learning_rate, rows_per_second)
            self.handler.emit(logging.makeLogRecord({"msg": line, "levelno": logging.INFO}))
        else:
            logger.info(line)
        values = {"loss": loss, "learning_rate": step.learning_rate, "rows_per_second": rows_per_second}
        if step.grad_norm is not None:
            values["grad_norm"] = float(step.grad_norm)
        self.track("train", values, step.step)

    def evaluation(self, step: int, split: str, metrics: dict, is_best: bool, seconds: float) -> None:
        """Show the metrics of one evaluation and append them to metrics.jsonl."""
        if self.folder is None:
            return
        try:
            append_metrics(self.folder / METRICS, step, split, metrics, self.metrics, is_best, seconds)
        except OSError as error:
            raise cannot_write(METRICS, error, self.folder) from error
        values = "  ".join(f"{name} {metrics[name]:.4f}" for name in self.metrics)
        self.bar.say(f"step {step}  {split}: {values}{'  (best so far)' if is_best else ''}")
        self.track(split, {name: metrics[name] for name in self.metrics}, step)

    def track(self, group: str, values: dict[str, float], step: int) -> None:
        """Add a point at `step` to the curve `group/name` of each value, in TensorBoard and the trackers."""
        self.trackers.add(group, values, step)
        if self.tensorboard:
            try:
                self.tensorboard.add(group, values, step)
            except OSError as error:
                raise cannot_write("TensorBoard's file", error, self.folder) from error

    def track_report(self, split: str, metrics: dict, step: int) -> None:
        """Give the trackers the metrics of the report, after the last step."""
        self.trackers.add(f"report_{split}", {name: metrics[name] for name in self.metrics}, step)

    def close(self) -> None:
        """Close the bar, the event file, the trackers and the log file."""
        self.bar.close()
        if self.trackers:
            self.trackers.close()
        if self.tensorboard:
            self.tensorboard.close()
        if self.handler:
            close_log_file(self.handler)


def flat(settings: dict) -> dict:
    """Return settings nested in groups by their dotted names; those that are none are left out."""
    pairs = ((f"{group}.{key}", value) for group, values in settings.items() for key, value in values.items())
    return {name: value for name, value in pairs if value is not None}
