"""A configuration of this project -> what all programs start from: one checkpoint, one file of rows, one
`Job`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from app.config.command_line import load_config
from app.config.schema import Config
from app.data.dataset import Split
from app.errors import InputError
from app.model.pretrained import save_model
from app.modes import open_mode
from app.runtime.devices import bf16_speedup
from app.training.build import Components, build
from benchmarks.harness.matrix_products import Shapes
from benchmarks.reference_job.job import Job, choose_rows
from benchmarks.reference_job.ours import fastest_settings

QWEN3 = ["hidden_size=1024", "intermediate_size=3072", "num_attention_heads=16", "num_key_value_heads=8"]


def few_layers(architecture: str, *settings: str) -> list[str]:
    """Return the arguments of a model of another type."""
    pairs = (setting.split("=") for setting in settings)
    config = [word for key, value in pairs for word in (f"--model.config.{key}", value)]
    return ["--model.architecture", architecture, *config]


MODELS = {
    # As the configuration says; a BERT of its default size, where it says nothing
    "base": [],
    "small": [
        *("--model.config.hidden_size", "128", "--model.config.num_hidden_layers", "2"),
        *("--model.config.num_attention_heads", "2", "--model.config.intermediate_size", "512"),
    ],
    # The shapes of ERNIE 3.0 base, of ModernBERT base, and of Qwen3-0.6B, with fewer layers
    "ernie": few_layers("ernie", "num_hidden_layers=4", "use_task_id=true"),
    "modernbert": few_layers("modernbert", "num_hidden_layers=6"),
    "qwen3": few_layers("qwen3", "num_hidden_layers=4", "head_dim=128", *QWEN3),
}
# A constant learning rate and no clipping: what every program can do without special code.
SAME_JOB = ["--train.schedule", "constant", "--train.warmup", "0", "--train.max_grad_norm", "0"]
DEVICES = ("cpu", "cuda")
NO_DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass(frozen=True)
class Prepared:
    """`job` is to be timed, `check_job` trains a few fixed batches without dropout in fp32; `description` is
    for the report.

    `lengths` (num_rows,) are the tokens of each of the job's rows.
    """

    job: Job
    check_job: Job
    shapes: Shapes
    description: dict
    lengths: np.ndarray


def prepare(
    arguments: list[str], model: str, precision: str, stretches: list[int], check_steps: int, folder: Path
) -> Prepared:
    """Make the checkpoint and the file of rows in `folder`.

    `arguments` are run_single.py's, `model` a key of `MODELS`, `precision` auto, bf16 or fp32; `stretches`
    are the steps that every program will be asked for, one number each time. Raises InputError for bad input,
    such as data that is not there.
    """
    steps = sum(stretches) + 1
    arguments = [*arguments, *MODELS[model], *SAME_JOB]
    config = load_config([*arguments, "--train.max_steps", str(steps), "--train.epochs", str(steps)])
    with open_mode("single", config) as mode:
        parts = build(mode.config, mode)
        config = parts.config
        device = mode.device.type
        if device not in DEVICES:
            raise InputError(
                f"the benchmark runs on {' or '.join(DEVICES)}, found {device}; add --train.device cpu"
            )
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    save_model(checkpoint, parts.model.model, parts.model.model.state_dict(), parts.tokenizer)
    lengths = parts.loaders["train"].lengths()
    bf16 = precision == "bf16" or (precision == "auto" and _gains_by_bf16(device))
    job = Job(
        checkpoint=str(checkpoint),
        rows_file=_write_rows(folder / "rows.jsonl", parts.loaders["train"].split),
        stretches=choose_rows(lengths, config.train.batch_size, stretches, config.train.seed),
        max_length=config.data.max_length,
        batch_size=config.train.batch_size,
        learning_rate=config.train.learning_rate,
        weight_decay=config.train.weight_decay,
        seed=config.train.seed,
        device=device,
        bf16=bf16,
        shuffle=True,
        steps=steps,
        our_arguments=_our_arguments(arguments, config.train.learning_rate, checkpoint, steps, folder / "run")
        + ["--train.device", device, *fastest_settings(bf16)],
    )
    fixed = [int(position) for step in range(check_steps) for position in parts.plan.batch(step)]
    check_job = replace(
        job,
        stretches=[fixed],
        bf16=False,
        shuffle=False,
        model_settings={key: 0.0 for key in NO_DROPOUT if hasattr(parts.model.model.config, key)},
        our_arguments=_our_arguments(
            arguments, config.train.learning_rate, checkpoint, steps, folder / "check_run"
        )
        + ["--train.device", device, *fastest_settings(bf16=False), "--model.dropout", "0"],
    )
    return Prepared(job, check_job, *_describe(config, parts, device, bf16), lengths)


def _gains_by_bf16(device: str) -> bool:
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bf16_speedup() > 1


def _our_arguments(
    arguments: list[str], learning_rate: float, checkpoint: Path, steps: int, run_folder: Path
) -> list[str]:
    """Return the settings of the same job in our program; one learning rate for all weights, as in the
    others."""
    rates = ["--train.learning_rate", str(learning_rate), "--train.head_learning_rate", str(learning_rate)]
    limits = ["--train.max_steps", str(steps), "--train.epochs", str(steps)]
    return [*arguments, *rates, *limits, "--model.name", str(checkpoint), "--output.dir", str(run_folder)]


def _write_rows(path: Path, split: Split) -> str:
    with path.open("w", encoding="utf-8") as file:
        for position in range(len(split)):
            row = [split.table.text(split.rows[position]), int(split.labels[position])]
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    return str(path)


def layer_weights(model: torch.nn.Module) -> list[tuple[int, int]]:
    """Return the output and input size of each linear layer of the encoder's layers."""
    return [
        (module.out_features, module.in_features)
        for name, module in model.named_modules()
        if isinstance(module, torch.nn.Linear) and re.search(r"\blayers?\.", name)
    ]


def _describe(config: Config, parts: Components, device: str, bf16: bool) -> tuple[Shapes, dict]:
    model, loader = parts.model.model.config, parts.loaders["train"]
    tokens_per_row = float(loader.lengths().mean())
    shapes = Shapes(
        layer_weights(parts.model.model),
        round(tokens_per_row * config.train.batch_size),
        ["fp32", "bf16"] if bf16 else ["fp32"],
        device,
    )
    description = {
        "model_type": model.model_type,
        "layers": model.num_hidden_layers,
        "hidden_size": model.hidden_size,
        "parameters": sum(parameter.numel() for parameter in parts.model.parameters()),
        "encoder_weights": shapes.operations_per_token // 6,
        "train_rows": len(loader),
        "tokens_per_row": tokens_per_row,
        "batch_size": config.train.batch_size,
        "steps_per_epoch": parts.plan.steps_per_epoch,
        "max_length": config.data.max_length,
        "learning_rate": config.train.learning_rate,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
        "bf16": bf16,
    }
    return shapes, description
