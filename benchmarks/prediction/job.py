"""What every program is given: the same checkpoint and the same texts; and how each finds its fastest
settings."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Setting = TypeVar("Setting")


@dataclass(frozen=True)
class PredictionJob:
    """Texts to classify with a checkpoint; fields as those of `benchmarks.reference_job.job.Job`.

    `fixed` asks for fp32 and no search of settings, where results are compared. `probe_rows` are the rows
    that a program tries its settings with. `only` is the one precision to use (None: any). `our_arguments`
    open the same rows with run_single.py's configuration.
    """

    checkpoint: str
    rows_file: str
    positions: list[int]
    max_length: int
    device: str
    bf16: bool
    fixed: bool
    probe_rows: int
    our_arguments: list[str]
    only: str | None = None

    @property
    def texts(self) -> list[str]:
        """The texts to classify."""
        with Path(self.rows_file).open(encoding="utf-8") as file:
            return [json.loads(line)[0] for line in file]

    @property
    def precisions(self) -> list[str]:
        """The precisions to choose from."""
        if self.only and not self.fixed:
            return [self.only]
        return ["fp32", "bf16"] if self.bf16 and not self.fixed else ["fp32"]


def fastest(
    settings: Iterable[Setting], classify: Callable[[Setting, Sequence[str]], object], texts: list[str]
) -> Setting:
    """Return the setting with which `classify(setting, texts)` takes the least time, after a few texts of
    warm-up."""
    seconds = {}
    for setting in settings:
        classify(setting, texts[:32])
        started = time.perf_counter()
        classify(setting, texts)
        seconds[setting] = time.perf_counter() - started
    return min(seconds, key=seconds.get)
