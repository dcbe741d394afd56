"""Lightning Fabric: a plain loop around `Fabric.setup`, which takes the precision; batches padded to their
longest text."""

import torch
from lightning_fabric import Fabric
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job, tokenised


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    fabric = Fabric(accelerator=job.device, devices=1, precision="bf16-mixed" if job.bf16 else "32-true")
    fabric.launch()
    fabric.seed_everything(job.seed)
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
    rows, collate = tokenised(job, tokenizer), DataCollatorWithPadding(tokenizer)
    loader = DataLoader(rows, job.batch_size, sampler=job.order(), collate_fn=collate)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    optimizer = torch.optim.AdamW(model.parameters(), lr=job.learning_rate, weight_decay=job.weight_decay)
    take_sizes = count_inputs(model)
    model, optimizer = fabric.setup(model, optimizer)
    loader = fabric.setup_dataloaders(loader)
    model.train()
    meter.start(take_sizes, precision="bf16" if job.bf16 else "fp32")
    # Over epochs
    while True:
        for batch in loader:
            loss = model(**batch).loss
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            meter.step_done(loss.detach())
