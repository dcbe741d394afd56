"""What every program is given: the same checkpoint and the same texts; and how each finds its fastest
settings."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from benchmarks.harness.matrix_products import Shapes
from benchmarks.harness.meter import Sizes
from benchmarks.reference_job.prepare import prepare as prepare_training

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class PredictionJob:
    """Texts to classify with a checkpoint.

    A program chooses among `precisions`, trying its settings on `probe_rows` texts; where there are none it
    searches nothing, because results are compared. `num_tokens` are those of all texts.
    """

    checkpoint: str
    texts: list[str]
    num_tokens: int
    max_length: int
    device: str
    precisions: list[str]
    probe_rows: int

    def sizes(self, steps: int) -> Sizes:
        """Return what goes through a model that classifies all texts in each step."""
        return Sizes(*(steps * size for size in (len(self.texts), self.num_tokens, self.num_tokens)))

    def fastest(
        self, settings: Iterable[Setting], classify: Callable[[Setting, Sequence[str]], object]
    ) -> Setting:
        """Return the setting with which `classify(setting, texts)` takes the least time, after a few texts of
        warm-up; the first of them where nothing is to be searched."""
        seconds = {}
        for setting in settings:
            if not self.probe_rows:
                return setting
            classify(setting, self.texts[: self.probe_rows][:32])
            started = time.perf_counter()
            classify(setting, self.texts[: self.probe_rows])
            seconds[setting] = time.perf_counter() - started
        return min(seconds, key=seconds.get)


def prepare(options: Namespace, folder: Path) -> tuple[PredictionJob, Shapes, dict]:
    """Make the checkpoint in `folder`; return the job, the encoder's shapes and a description.

    Raises InputError for bad input.
    """
    arguments = ["--config", options.config, *options.settings]
    prepared = prepare_training(arguments, options.model, options.precision, [1], 1, folder)
    job, rows = prepared.job, prepared.job.rows
    positions = np.random.default_rng(0).permutation(len(rows))[: options.rows].tolist()
    prediction = PredictionJob(
        checkpoint=job.checkpoint,
        texts=[rows[position][0] for position in positions],
        num_tokens=int(prepared.lengths[positions].sum()),
        max_length=job.max_length,
        device=job.device,
        precisions=["fp32", "bf16"] if job.bf16 else ["fp32"],
        probe_rows=options.probe_rows,
    )
    sizes = {"rows": len(positions), "tokens_per_row": prediction.num_tokens / len(positions)}
    return prediction, prepared.shapes, prepared.description | sizes
