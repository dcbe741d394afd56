"""Accelerate's own BERT example (examples/nlp_example.py) with its defaults.

fp32; batches padded to their longest text; torch's AdamW; everything passed through `Accelerator().prepare`.
The job's batch of 32 is one batch here, which the example's own rule for small GPUs would cut in two.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    accelerator = Accelerator(cpu=job.device == "cpu")
    set_seed(job.seed)
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)

    def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
        return tokenizer.pad(rows, padding="longest", return_tensors="pt")

    rows, loading = tokenised(job, tokenizer), {"collate_fn": collate, "drop_last": True}
    loader = DataLoader(rows, job.batch_size, sampler=job.order(), **loading)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, weight_decay=job.weight_decay)
    take_sizes = count_inputs(model)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    meter.start(take_sizes, precision="fp32")
    # Over epochs
    while True:
        model.train()
        for batch in loader:
            loss = model(**batch).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            meter.step_done(loss.detach())
