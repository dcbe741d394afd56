"""What every program is given: the same rows, the same checkpoint to start from, the same settings of the
job."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

import numpy as np


@dataclass(frozen=True)
class Job:
    """One training job.

    `checkpoint` is a folder that transformers loads; `rows_file` JSON lines of text and label id. A stretch
    is the steps that are asked for at once (a warm-up, a round); `stretches` has the rows of each, as indices
    into `rows`. `device` is cpu or cuda. `bf16` says whether the machine is faster with it: programs that
    would choose their precision choose by it. `shuffle` is off, and `model_settings` turn dropout off, where
    losses are compared. `steps` is more than will be asked for. `our_arguments` is the command line of
    run_single.py for the same job.
    """

    checkpoint: str
    rows_file: str
    stretches: list[list[int]]
    max_length: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    seed: int
    device: str
    bf16: bool
    shuffle: bool
    steps: int
    our_arguments: list[str]
    model_settings: dict[str, float] = field(default_factory=dict)

    @property
    def rows(self) -> list[tuple[str, int]]:
        """The training rows: text and label id."""
        with Path(self.rows_file).open(encoding="utf-8") as file:
            return [tuple(json.loads(line)) for line in file]

    def order(self, arrange: Callable[[np.ndarray], np.ndarray] | None = None) -> list[int]:
        """Return the rows in the order in which one program trains them, as indices into `rows`.

        Stretch follows stretch. Within one, `arrange` puts the rows into the order that the program likes
        (none: at random); without `shuffle` they stay as they are.
        """
        arrange = arrange or np.random.default_rng(self.seed).permutation
        stretches = [np.array(stretch) for stretch in self.stretches]
        return np.concatenate([arrange(rows) for rows in stretches] if self.shuffle else stretches).tolist()

    def with_steps(self, steps: list[int]) -> Self:
        """Return the job with so many steps in each stretch, at most as many as now: rows at even distances
        in it."""
        stretches = []
        for stretch, count in zip(self.stretches, steps, strict=True):
            num_rows = count * self.batch_size
            places = ((2 * index + 1) * len(stretch) // (2 * num_rows) for index in range(num_rows))
            stretches.append([stretch[place] for place in places])
        return replace(self, stretches=stretches)


def choose_rows(lengths: np.ndarray, batch_size: int, steps: list[int], seed: int) -> list[list[int]]:
    """Return the rows of each stretch, each drawn by another seed, the shortest first.

    `lengths` (num_rows,) are the tokens of each row. A stretch has a row twice only where it has more rows
    than there are.
    """
    stretches = []
    for number, count in enumerate(steps):
        rng, num_rows = np.random.default_rng([seed, number]), count * batch_size
        drawn = [rng.permutation(len(lengths)) for _ in range(-(-num_rows // len(lengths)))]
        rows = np.concatenate(drawn)[:num_rows]
        stretches.append(rows[np.argsort(lengths[rows], kind="stable")].tolist())
    return stretches


def tokenised(job: Job, tokenizer) -> list[dict]:
    """Return the rows as a data set of token ids, as a script would make it once before training."""
    texts, labels = zip(*job.rows, strict=True)
    columns = {**tokenizer(list(texts), truncation=True, max_length=job.max_length), "labels": labels}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
