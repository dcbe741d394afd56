"""What one process does in the benchmark: python -m benchmarks.data_path.stages start|read OPTIONS

`start` opens the data as a run does (building what the cache does not hold), `read` makes batches of it
without a model. Each prints its measurements as one line of JSON.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import import_module
from pathlib import Path

import psutil
import torch

from app.batching.collate import Layout
from app.batching.loader import Loader
from app.batching.plan import BatchPlan, micro_batches
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import Dataset, open_dataset
from app.data.tokenizer import load_tokenizer
from app.data.tokens import TokenStore, open_store
from benchmarks.harness.machine import peak_memory

BATCH_SIZE = 32
# Batches
WARMUP = 50


def start(config: DataConfig, model: ModelConfig) -> dict:
    """Return the seconds and CPU seconds of each stage of a start, and the most memory of the process that
    prepared."""
    measured = {}
    with Stage(measured, "imports"):
        # Else it would count as making the vocabulary
        import_module("transformers.models.bert.tokenization_bert")
    with Stage(measured, "read"):
        dataset = open_dataset(config)
    with Stage(measured, "vocabulary"):
        tokenizer = load_tokenizer(model, dataset, config.max_length, config.cache_dir)
    with Stage(measured, "tokenise"):
        store = _open_store(dataset, tokenizer, config)
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return measured | {
        "tokens": int(store.offsets[-1]),
        "preparation_memory": children,
        "memory": peak_memory(),
    }


class Stage:
    """Puts the seconds of a stage, and the CPU seconds that it and its child processes took, into `measured`."""

    def __init__(self, measured: dict, name: str) -> None:
        self.measured = measured
        self.name = name

    def __enter__(self) -> None:
        self.started, self.cpu_started = time.perf_counter(), _cpu_seconds()

    def __exit__(self, *failure) -> None:
        seconds, cpu = time.perf_counter() - self.started, _cpu_seconds() - self.cpu_started
        self.measured[self.name] = {"seconds": seconds, "cpu_seconds": cpu}


def _cpu_seconds() -> float:
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def read(config: DataConfig, model: ModelConfig, shard: int, num_shards: int, batches: int) -> dict:
    """Return batches per second of this process, which takes shard `shard` of each global batch, and its
    memory in bytes.

    `memory` is all that is resident; `own_memory` is what the data added to it without the pages mapped from
    files, which the system takes back when it needs them.
    """
    torch.set_num_threads(1)
    before = _unmapped_memory()
    dataset = open_dataset(config)
    tokenizer = load_tokenizer(model, dataset, config.max_length, config.cache_dir)
    loader = Loader(dataset.splits["train"], _open_store(dataset, tokenizer, config), Layout(packed=True))
    plan = BatchPlan(len(loader), BATCH_SIZE * num_shards, seed=1)
    seconds = tokens = 0.0
    for step in range(-min(WARMUP, batches), batches):
        started = time.perf_counter()
        batch = plan.batch(max(step, 0))
        (positions,) = micro_batches(batch, loader.lengths(batch), num_shards, shard, 1)
        loaded = loader.load(positions, torch.device("cpu"))
        if step >= 0:
            seconds += time.perf_counter() - started
            tokens += loaded.inputs["input_ids"].numel()
    return {
        "batches": batches,
        "batches_per_second": batches / seconds,
        "tokens_per_second": tokens / seconds,
        "memory": psutil.Process().memory_info().rss,
        "own_memory": _unmapped_memory() - before,
        "peak_memory": peak_memory(),
    }


def _unmapped_memory() -> int:
    used = psutil.Process().memory_info()
    # On Linux, "shared" is all that is mapped from files
    return used.rss - getattr(used, "shared", 0)


def _open_store(dataset: Dataset, tokenizer, config: DataConfig) -> TokenStore:
    return open_store(dataset.splits["train"].table, tokenizer, config.max_length, config.cache_dir)


def main() -> None:
    """Run the stage that the command line names."""
    stage, options = sys.argv[1], json.loads(sys.argv[2])
    folder = Path(options["folder"])
    config = DataConfig(
        train=str(folder / "rows.tsv"), cache_dir=str(folder / "cache"), dev_size=0, test_size=0.01
    )
    model = ModelConfig(vocab_file=options["vocab_file"])
    if stage == "start":
        measured = start(config, model)
    else:
        measured = read(config, model, options["shard"], options["num_shards"], options["batches"])
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
