"""A configuration of this project -> what all programs start from: one checkpoint, one file of rows, one
`Job`."""

import json
import re
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from app.config.command_line import load_config
from app.errors import InputError
from app.model.saving import save_model
from app.modes.mode import Single
from app.runtime.devices import fastest_precision
from app.training.build import build
from benchmarks.harness.matrix_products import Shapes
from benchmarks.reference_job.job import Job, choose_rows

MODELS = {
    # As the configuration says: configs/weibo_emotion6.yaml has random weights, BERT's default size
    "base": "",
    "small": "name=random config.hidden_size=128 config.num_hidden_layers=2 config.num_attention_heads=2 "
    "config.intermediate_size=512",
    # The shapes of ERNIE 3.0 base, of ModernBERT base, and of Qwen3-0.6B, with fewer layers
    "ernie": "name=random architecture=ernie config.num_hidden_layers=4 config.use_task_id=true",
    "modernbert": "name=random architecture=modernbert config.num_hidden_layers=6",
    "qwen3": "name=random architecture=qwen3 config.num_hidden_layers=4 config.head_dim=128 "
    "config.hidden_size=1024 config.intermediate_size=3072 config.num_attention_heads=16 "
    "config.num_key_value_heads=8",
}
# A constant learning rate and no clipping: what every program can do without special code.
SAME_JOB = ["--train.schedule", "constant", "--train.warmup", "0", "--train.max_grad_norm", "0"]
DEVICES = ("cpu", "cuda")
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass(frozen=True)
class Prepared:
    """`job` is to be timed, `check_job` trains a few fixed batches without dropout in fp32; `description` is
    for the report. `lengths` (num_rows,) are the tokens of each of the job's rows."""

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
    arguments = [*arguments, *SAME_JOB, "--train.max_steps", str(steps), "--train.epochs", str(steps)]
    model_arguments = [f"--model.{setting}" for setting in MODELS[model].split()]
    with Single(load_config([*arguments, *model_arguments])) as mode:
        parts, device = build(mode.config, mode), mode.device.type
        if device not in DEVICES:
            raise InputError(
                f"the benchmark runs on {' or '.join(DEVICES)}, found {device}; add --train.device cpu"
            )
        fastest = fastest_precision(mode.device) if precision == "auto" else precision
    data, train, loader = parts.config.data, parts.config.train, parts.loaders["train"]
    encoder, split, lengths = parts.model.model, loader.split, loader.lengths()
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    save_model(checkpoint, encoder, encoder.state_dict(), parts.tokenizer)
    rows_file = folder / "rows.jsonl"
    with rows_file.open("w", encoding="utf-8") as file:
        for text, label in zip(split.table.column("text", split.rows), split.labels, strict=True):
            file.write(json.dumps([text, int(label)], ensure_ascii=False) + "\n")

    def ours(run: str, precision: str, *more: str) -> list[str]:
        """Return the settings of the same job in our program; one learning rate for all weights, as in the
        others."""
        rate = str(train.learning_rate)
        rates = ["--train.learning_rate", rate, "--train.head_learning_rate", rate]
        places = ["--model.name", str(checkpoint), "--output.dir", str(folder / run)]
        return [*arguments, *rates, *places, "--train.device", device, "--train.precision", precision, *more]

    job = Job(
        checkpoint=str(checkpoint),
        rows_file=str(rows_file),
        stretches=choose_rows(lengths, train.batch_size, stretches, train.seed),
        max_length=data.max_length,
        batch_size=train.batch_size,
        learning_rate=train.learning_rate,
        weight_decay=train.weight_decay,
        seed=train.seed,
        device=device,
        bf16=fastest == "bf16",
        shuffle=True,
        steps=steps,
        our_arguments=ours("run", fastest),
    )
    check_job = replace(
        job,
        stretches=[np.concatenate([parts.plan.batch(step) for step in range(check_steps)]).tolist()],
        bf16=False,
        shuffle=False,
        model_settings={key: 0.0 for key in DROPOUT if hasattr(encoder.config, key)},
        our_arguments=ours("check_run", "fp32", "--model.dropout", "0"),
    )
    # Output and input size of each linear layer of the encoder's layers
    weights = [
        (module.out_features, module.in_features)
        for name, module in encoder.named_modules()
        if isinstance(module, torch.nn.Linear) and re.search(r"\blayers?\.", name)
    ]
    description = {
        "model_type": encoder.config.model_type,
        "layers": encoder.config.num_hidden_layers,
        "hidden_size": encoder.config.hidden_size,
        "parameters": sum(parameter.numel() for parameter in parts.model.parameters()),
        "encoder_weights": sum(rows * columns for rows, columns in weights),
        "train_rows": len(loader),
        "tokens_per_row": float(lengths.mean()),
        "batch_size": train.batch_size,
        "device": torch.cuda.get_device_name() if device == "cuda" else device,
    }
    tokens = round(description["tokens_per_row"] * train.batch_size)
    shapes = Shapes(weights, tokens, ["fp32", "bf16"] if job.bf16 else ["fp32"], device)
    return Prepared(job, check_job, shapes, description, lengths)
