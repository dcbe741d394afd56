"""A configuration of this project -> the texts and the checkpoint that all programs are given."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np

from benchmarks.harness.matrix_products import Shapes
from benchmarks.prediction.job import PredictionJob
from benchmarks.reference_job.prepare import prepare as prepare_training


def prepare(args: Namespace, folder: Path) -> tuple[PredictionJob, Shapes, dict]:
    """Make checkpoint and texts in `folder`; return the job, the encoder's shapes and a description.

    Raises InputError for bad input.
    """
    prepared = prepare_training(
        ["--config", args.config, *args.settings], args.model, args.precision, [1], 1, folder
    )
    job = prepared.job
    with Path(job.rows_file).open(encoding="utf-8") as file:
        lines = list(file)
    positions = np.random.default_rng(0).permutation(len(lines))[: args.rows].tolist()
    texts = folder / "texts.jsonl"
    texts.write_text("".join(lines[position] for position in positions), encoding="utf-8")
    tokens = float(prepared.lengths[positions].mean())
    description = prepared.description | {"rows": len(positions), "tokens_per_row": tokens}
    prediction = PredictionJob(
        checkpoint=job.checkpoint,
        rows_file=str(texts),
        positions=positions,
        max_length=job.max_length,
        device=job.device,
        bf16=job.bf16,
        fixed=False,
        probe_rows=args.probe_rows,
        our_arguments=job.our_arguments,
    )
    return prediction, prepared.shapes, description
