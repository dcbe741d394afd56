"""What every program is given: the same rows, the same checkpoint to start from, the same settings of the job."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Job:
    """One training job.

    `checkpoint` is a folder that transformers loads; `rows_file` JSON lines of text and label id. `device` is cpu or
    cuda. `bf16` says whether the machine is faster with it: programs that would choose their precision choose by it.
    `shuffle` is off, and `model_settings` turn dropout off, where losses are compared. `steps` is more than will be asked for.
    `our_arguments` is the command line of run_single.py for the same job.
    """

    checkpoint: str
    rows_file: str
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


def tokenised(job: Job, tokenizer) -> list[dict]:
    """Return the rows as a data set of token ids, cut at `max_length`, as a script would make it once before training."""
    texts, labels = zip(*job.rows, strict=True)
    encodings = tokenizer(list(texts), truncation=True, max_length=job.max_length)
    columns = {**encodings, "labels": labels}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
