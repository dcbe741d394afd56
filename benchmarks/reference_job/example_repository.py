"""The field's much copied example script: every text padded to 128 tokens, fp32, AdamW, a plain loop.

Its loop, in our words: texts are tokenised one by one as batches are collated (by two loader processes), the
loss is computed by the model and once more by the script, and each step prints it, which waits for the
device.
"""

from functools import partial

import torch
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from benchmarks.harness.meter import Meter, count_inputs
from benchmarks.reference_job.job import Job


def collate(tokenizer, max_length: int, rows: list[tuple[str, int]]) -> dict[str, torch.Tensor]:
    cut = {"padding": "max_length", "truncation": True, "max_length": max_length}
    encodings = [tokenizer(text, **cut) for text, _ in rows]
    inputs = {name: torch.tensor([encoding[name] for encoding in encodings]) for name in encodings[0]}
    return inputs | {"labels": torch.tensor([label for _, label in rows])}


def main(job: Job, meter: Meter) -> None:
    """Train until the meter has seen enough."""
    torch.manual_seed(job.seed)
    device = torch.device(job.device)
    tokenizer = AutoTokenizer.from_pretrained(job.checkpoint)
    collating = partial(collate, tokenizer, job.max_length)
    loading = {"num_workers": 2, "collate_fn": collating, "drop_last": False}
    loader = DataLoader(job.rows, batch_size=job.batch_size, sampler=job.order(), **loading)
    model = AutoModelForSequenceClassification.from_pretrained(job.checkpoint, **job.model_settings)
    model.to(device)
    plain, decayed = [], []
    for name, weight in model.named_parameters():
        (plain if "bias" in name or "LayerNorm.weight" in name else decayed).append(weight)
    groups = [{"params": decayed, "weight_decay": job.weight_decay}, {"params": plain, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=job.learning_rate)
    criterion = torch.nn.CrossEntropyLoss()
    meter.start(count_inputs(model), precision="fp32")
    # Over epochs
    while True:
        for step, batch in enumerate(loader):
            model.train()
            inputs = {name: value.to(device) for name, value in batch.items()}
            logits = model(**inputs).logits
            loss = criterion(logits, inputs["labels"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"step {step} loss {loss.item():.6f}")
            meter.step_done(loss.detach())
