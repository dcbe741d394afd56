"""transformers' Trainer at its best: bf16 where that is faster, rows of similar length together, fused AdamW,
no log, no saving."""

import numpy as np
import torch
from transformers.trainer_pt_utils import get_length_grouped_indices

from benchmarks.harness.meter import Meter
from benchmarks.reference_job.job import Job
from benchmarks.reference_job.metered_trainer import train

MEGA_BATCH = 50  # batches whose rows `group_by_length` sorts together, in an epoch of 200 batches or more


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    is_cuda = job.device == "cuda"

    def grouped(rows: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return rows as `group_by_length` puts them, and then the batches in a random order.

        Its own order begins with the longest texts, which are then not in the steps that follow.
        """
        order = get_length_grouped_indices(lengths[rows].tolist(), job.batch_size, mega_batch_mult=MEGA_BATCH)
        batches = rows[order].reshape(-1, job.batch_size)
        return batches[torch.randperm(len(batches)).numpy()].ravel()

    train(
        job,
        meter,
        grouped,
        multiple=8 if is_cuda else None,
        bf16=job.bf16,
        tf32=True if is_cuda and job.bf16 else None,
        optim="adamw_torch_fused",
        dataloader_num_workers=2 if is_cuda else 0,
        dataloader_persistent_workers=is_cuda,
        logging_strategy="no",
        # It would wait for the device at every step
        logging_nan_inf_filter=False,
        disable_tqdm=True,
    )
