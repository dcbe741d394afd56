"""One rank of the contract suite: trains every case in one mode and writes what came out, on rank 0.

Started by tests/modes/test_contract.py through the mode's own launcher:

    torchrun --nproc_per_node=2 tests/modes/contract_worker.py MODULE:CLASS DATA OUT CASE ...
"""

import argparse
import sys
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

# An epoch has 5 steps. The processes of other tests may need the other cores.
BASE = {"batch_size": 16, "epochs": 10, "max_steps": 8, "warmup": 0, "threads": 1, "device": "cpu"}
BASE |= {"optimizer": "sgd", "learning_rate": 0.1, "precision": "fp32"}
MODEL = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
LABELS = {"labels": ["a", "b", "c"]}
# The file of each task, and how it is read; masked language modelling does not read the labels
FILES = {
    "single_label": ("data.tsv", LABELS),
    "ordinal": ("data.tsv", LABELS),
    "multi_label": ("sets.tsv", LABELS | {"label_separator": "|"}),
    "regression": ("scores.tsv", {}),
    "masked_language_modelling": ("data.tsv", {"format": "tsv", "text_column": 0, "header": False}),
}


@dataclass(frozen=True)
class Case:
    """Settings of `TrainConfig`, the batch layout (packed, padded or varlen), the task and the data; `limit`
    rows of the data are trained on. `model` and `config` are settings of `model` and `model.config`."""

    train: dict = field(default_factory=dict)
    layout: str = "packed"
    limit: int = 69  # with batches of 16 the last has 5 rows
    task: str = "single_label"
    data: dict = field(default_factory=dict)
    model: dict = field(default_factory=dict)
    config: dict = field(default_factory=dict)


TWO, THREE = {"accumulation_steps": 2}, {"accumulation_steps": 3}  # three do not divide the batch
SIX, CLIPPED = {"max_steps": 6}, {"max_grad_norm": 0.05}
ADAMW = {"optimizer": "adamw", "learning_rate": 1e-3}
WEIGHTS = {"class_weights": [0.5, 2.0, 1.0]}
# A row has one, two or three
WINDOWS = {"long": "windows", "max_length": 10, "max_windows": 3}
DECODER = {"config": {"num_key_value_heads": 1, "head_dim": 16}}
MASKED = {"task": "masked_language_modelling"}

CASES = {
    "sgd": Case(),
    "adamw": Case(ADAMW | {"schedule": "cosine", "warmup": 3}),
    "accumulation_2": Case(TWO),
    "accumulation_3": Case(THREE),
    "accumulation_adamw": Case(THREE | ADAMW),
    # One row in the last global batch
    "tiny_last_batch": Case(TWO, limit=65),
    "padded": Case(TWO, layout="padded"),
    "varlen": Case(TWO, layout="varlen"),
    "weighted": Case(TWO | WEIGHTS),
    "clipped": Case(TWO | CLIPPED),
    "fp16": Case(CLIPPED | {"precision": "fp16", "max_steps": 4}),
    "fp16_overflow": Case(CLIPPED | SIX | {"precision": "fp16", "schedule": "linear"}),
    "windows": Case(THREE, data=WINDOWS),
    "windows_padded": Case(data=WINDOWS, layout="padded"),
    "multi_label": Case(THREE | SIX | {"class_weights": [2.0, 0.5, 1.0]}, task="multi_label"),
    "regression": Case(THREE | SIX, limit=65, task="regression"),
    "huber_padded": Case(SIX | {"loss": "huber"}, task="regression", layout="padded"),
    "ordinal": Case(THREE | SIX | WEIGHTS, limit=65, task="ordinal"),
    "focal": Case(TWO | SIX | WEIGHTS | {"loss": "focal"}),
    "logit_adjusted": Case(THREE | SIX | {"loss": "logit_adjusted"}, limit=65),
    "r_drop": Case(THREE | {"r_drop": 2.0}),
    "r_drop_tiny_last_batch": Case(SIX | {"r_drop": 2.0}, limit=65, layout="padded"),
    "r_drop_multi_label": Case(SIX | {"r_drop": 1.0}, task="multi_label"),
    "r_drop_adamw": Case(ADAMW | {"r_drop": 1.0}),
    "frozen_embeddings_padded": Case(TWO, limit=65, layout="padded", model={"freeze": "embeddings"}),
    "frozen_encoder_adamw": Case(ADAMW, model={"freeze": "encoder"}),
    "decoder": Case(THREE, limit=65, model={"architecture": "qwen3"}, **DECODER),
    "gradient_checkpointing": Case(THREE | {"gradient_checkpointing": True}, limit=65),
    "masked_language_modelling": Case(THREE | SIX, **MASKED),
    "masked_language_modelling_padded": Case(SIX, layout="padded", **MASKED),
}
if find_spec("peft"):
    CASES |= {
        "lora": Case(THREE, limit=65, model={"lora_rank": 4}),
        "lora_decoder": Case(THREE, model={"lora_rank": 4, "architecture": "qwen3"}, **DECODER),
        "lora_padded_adamw": Case(
            ADAMW | {"gradient_checkpointing": True}, layout="padded", model={"lora_rank": 2}
        ),
    }
# For another number of processes or stage of ZeRO than the usual one
FEWER = [
    *("accumulation_3", "accumulation_adamw", "tiny_last_batch", "weighted", "clipped", "fp16_overflow"),
    *(
        "varlen",
        "windows",
        "regression",
        "ordinal",
        "logit_adjusted",
        "r_drop_tiny_last_batch",
        "r_drop_adamw",
    ),
    *("r_drop_adamw", "masked_language_modelling", "lora", "lora_padded_adamw", "frozen_embeddings_padded"),
]
# So large that the first gradients are infinite, for some steps
OVERFLOW_SCALE = 2.0**40


def work(target: str, data: str, out: str, names: list[str], stage: int) -> int:
    """Run the cases in this process, which is one rank."""
    import torch

    from app.config.schema import Config, DeepSpeedConfig, TrainConfig
    from app.runtime.devices import set_up_machine

    base = Config(train=TrainConfig(**BASE), deepspeed=DeepSpeedConfig(stage=stage))
    with resolve_name(target)(base) as mode:
        set_up_machine(base.train, mode.device, mode.group.local_world_size)
        for case_name in names:
            result = run_case(mode, base, case_name, Path(data).parent)
            if mode.group.rank == 0:
                torch.save(result, Path(out) / f"{case_name}.pt")
    return 0


def run_case(mode, base, case_name: str, folder: Path) -> dict:
    """Train one case; returns losses, norms, learning rates, skips, gradients of the last step, weights,
    logits."""
    import numpy as np
    import torch

    from app.checkpoints.training_state import RunProgress
    from app.config.schema import DataConfig, ModelConfig
    from app.training.build import build, set_up
    from app.training.step import evaluate, train_steps

    case = CASES[case_name]
    name, settings = FILES[case.task]
    data = {
        "task": case.task,
        "train": str(folder / name),
        "cache_dir": str(folder / "cache"),
        "limit": case.limit,
    }
    data |= {"dev_size": 0, "test_size": 0, "max_length": 32} | settings | case.data
    # torch's norm of a large gradient without zeros has an error of 1e-5 in fp32
    vocabulary = str(folder / "vocab.txt") if case.task == "masked_language_modelling" else None
    model = ModelConfig(
        **{"vocab_file": vocabulary, "dropout": 0.0} | case.model | {"config": MODEL | case.config}
    )
    config = replace(base, data=DataConfig(**data), model=model, train=replace(base.train, **case.train))
    parts = build(config, mode)
    model, task, split = parts.model, parts.task, parts.dataset.splits["train"]
    if config.train.r_drop:
        model.model.classifier.register_forward_pre_hook(two_masks)
    packed = case.layout != "padded" and model.can_pack and mode.accepts_packed
    layout = model.layout(packed, varlen=packed and case.layout == "varlen")
    loader = task.loader(split, parts.stores["train"], layout)
    set_up(mode, parts)
    if case_name == "fp16_overflow" and mode.scaler:
        scale = {"scale": OVERFLOW_SCALE, "backoff_factor": 2.0**-10}
        mode.scaler.load_state_dict(mode.scaler.state_dict() | scale)
    result = {"losses": [], "norms": [], "learning_rates": [], "skipped": []}
    state = RunProgress()

    def before_update() -> None:
        # Gathering them all takes longer than the step
        if state.step == config.train.max_steps - 1:
            result["gradients"] = mode.gradients()

    def after_step(state: RunProgress, step) -> None:
        result["losses"].append(float(mode.group.reduce_sum(step.loss_sum)) / step.divisor)
        result["norms"].append(float(step.grad_norm))
        result["learning_rates"].append(step.learning_rate)
        result["skipped"].append(step.skipped)
        result["updates"] = state.updates

    train_steps(mode, loader, parts.plan, task.loss, parts.config.train, state, after_step, before_update)
    # Splits of every small size, also of fewer rows than processes, must come back whole.
    sizes = {}
    for size in (1, 2, 3, 5, len(split)):
        first = replace(split, rows=split.rows[:size], labels=split.labels[:size])
        small = task.loader(first, parts.stores["train"], layout)
        sizes[size] = evaluate(mode, small, 4, row_results=task.row_results).shape[0]
    logits = evaluate(mode, loader, 4, row_results=task.row_results).copy()
    result |= {"weights": mode.weights(), "logits": torch.from_numpy(logits), "sizes": sizes}
    result |= {"restored": check_optimizer_round_trip(mode), "world_size": mode.group.world_size}
    return result | {"labels": torch.from_numpy(np.array(split.labels))}


def two_masks(module, inputs):
    """Drop every second feature, other ones in the second half of the rows: dropout that is the same in all
    modes."""
    import torch

    (features,) = inputs
    if not module.training:
        return None
    kept = torch.arange(features.shape[-1]) % 2 * 2.0
    half = len(features) // 2
    return torch.cat([features[:half] * kept, features[half:] * (2 - kept)])


def check_optimizer_round_trip(mode) -> float:
    """Load the mode's own weights and optimizer state back; returns the largest difference afterwards, on
    rank 0."""
    weights, optimizer = mode.weights(), mode.optimizer_state()
    mode.load_weights(weights)
    mode.load_optimizer_state(optimizer)
    pairs = ((mode.weights(), weights), (mode.optimizer_state(), optimizer))
    assert all(set(again) == set(before) for again, before in pairs), "names have changed"
    differences = (float((again[key] - before[key]).abs().max()) for again, before in pairs for key in before)
    return max(differences, default=0.0)


if __name__ == "__main__":
    from app.modes.group import launch

    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("target", "data", "out"):
        parser.add_argument(name)
    parser.add_argument("names", nargs="+")
    parser.add_argument("--nprocs", type=int)
    parser.add_argument("--stage", type=int, default=2, help="of ZeRO, for DeepSpeed")
    options = parser.parse_args()
    arguments = (options.target, options.data, options.out, options.names, options.stage)
    sys.exit(launch(resolve_name(options.target).launcher, work, arguments, options.nprocs))
