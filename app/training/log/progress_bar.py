"""The progress bars of a training and of its evaluations."""

import logging
import sys
import threading

from tqdm import tqdm

logger = logging.getLogger(__name__)


class ProgressBar:
    """The bar of a training, where it is `wanted` and standard error is a terminal."""

    def __init__(self, wanted: bool, total_steps: int, first_step: int) -> None:
        # tqdm's own lock also takes a semaphore of the system. A process that mp.spawn started would leave it
        # behind, with a warning, because it ends without Python's shutdown.
        tqdm.set_lock(threading.RLock())
        self.is_shown = wanted and sys.stderr.isatty()
        self.bar = tqdm(
            total=total_steps,
            initial=first_step,
            unit="step",
            dynamic_ncols=True,
            desc="train",
            disable=not self.is_shown,
        )

    def show(self, loss: float, learning_rate: float, rows_per_second: float) -> None:
        """Show these numbers after the bar."""
        self.bar.set_postfix(
            loss=f"{loss:.4f}", lr=f"{learning_rate:.2e}", rows_per_s=f"{rows_per_second:.1f}"
        )

    def say(self, line: str) -> None:
        """Log a line without breaking the bar."""
        self.bar.clear()
        logger.info(line)
        self.bar.refresh()

    def evaluation(self, split: str, num_rows: int) -> tqdm:
        """Return the bar of an evaluation, which is shown only if that takes longer than a few seconds."""
        return tqdm(
            total=num_rows,
            unit="row",
            dynamic_ncols=True,
            desc=split,
            delay=3,
            leave=False,
            disable=not self.is_shown,
        )

    def close(self) -> None:
        """Close the bar of the training."""
        self.bar.close()
