"""What the contract of the modes is tested with: settings, tasks, layouts and data."""

from dataclasses import dataclass, field
from importlib.util import find_spec

BASE = {
    "batch_size": 16,
    "epochs": 10,
    # An epoch has 5
    "max_steps": 8,
    "optimizer": "sgd",
    "learning_rate": 0.1,
    "precision": "fp32",
    "device": "cpu",
    "warmup": 0,
    # The processes of other tests may need the other cores
    "threads": 1,
}


@dataclass(frozen=True)
class Case:
    """Settings of `TrainConfig`, the batch layout (packed, padded or varlen), the task and the data; `limit`
    rows of the data are trained on."""

    train: dict = field(default_factory=dict)
    layout: str = "packed"
    # With batches of 16 the last has 5 rows
    limit: int = 69
    task: str = "single_label"
    data: dict = field(default_factory=dict)
    # As model.architecture and model.config
    architecture: str = "bert"
    config: dict = field(default_factory=dict)
    # As model.freeze and model.lora_rank
    freeze: str | int | None = None
    lora_rank: int | None = None


# A row has one, two or three
WINDOWS = {"long": "windows", "max_length": 10, "max_windows": 3}

CASES = {
    "sgd": Case(),
    "adamw": Case(
        {
            "optimizer": "adamw",
            "learning_rate": 1e-3,
            "schedule": "cosine",
            "warmup": 3,
        }
    ),
    "accumulation_2": Case({"accumulation_steps": 2}),
    # Does not divide the batch
    "accumulation_3": Case({"accumulation_steps": 3}),
    "accumulation_adamw": Case({"accumulation_steps": 3, "optimizer": "adamw", "learning_rate": 1e-3}),
    # One row in the last global batch
    "tiny_last_batch": Case({"accumulation_steps": 2}, limit=65),
    "padded": Case({"accumulation_steps": 2}, layout="padded"),
    "varlen": Case({"accumulation_steps": 2}, layout="varlen"),
    "weighted": Case({"class_weights": [0.5, 2.0, 1.0], "accumulation_steps": 2}),
    "clipped": Case({"max_grad_norm": 0.05, "accumulation_steps": 2}),
    "fp16": Case({"precision": "fp16", "max_grad_norm": 0.05, "max_steps": 4}),
    "fp16_overflow": Case({"precision": "fp16", "max_grad_norm": 0.05, "max_steps": 6, "schedule": "linear"}),
    "windows": Case({"accumulation_steps": 3, "max_steps": 8}, data=WINDOWS),
    "windows_padded": Case({"max_steps": 8}, data=WINDOWS, layout="padded"),
    "multi_label": Case(
        {"accumulation_steps": 3, "max_steps": 6, "class_weights": [2.0, 0.5, 1.0]}, task="multi_label"
    ),
    "regression": Case({"accumulation_steps": 3, "max_steps": 6}, limit=65, task="regression"),
    "huber_padded": Case({"loss": "huber", "max_steps": 6}, task="regression", layout="padded"),
    "ordinal": Case(
        {"class_weights": [0.5, 2.0, 1.0], "accumulation_steps": 3, "max_steps": 6}, limit=65, task="ordinal"
    ),
    "focal": Case(
        {"loss": "focal", "class_weights": [0.5, 2.0, 1.0], "accumulation_steps": 2, "max_steps": 6}
    ),
    "logit_adjusted": Case({"loss": "logit_adjusted", "accumulation_steps": 3, "max_steps": 6}, limit=65),
    "r_drop": Case({"r_drop": 2.0, "accumulation_steps": 3}),
    "r_drop_tiny_last_batch": Case({"r_drop": 2.0, "max_steps": 6}, limit=65, layout="padded"),
    "r_drop_multi_label": Case({"r_drop": 1.0, "max_steps": 6}, task="multi_label"),
    "r_drop_adamw": Case({"r_drop": 1.0, "optimizer": "adamw", "learning_rate": 1e-3, "max_steps": 8}),
    "frozen_embeddings_padded": Case(
        {"accumulation_steps": 2, "max_steps": 8}, limit=65, layout="padded", freeze="embeddings"
    ),
    "frozen_layer_adamw": Case({"optimizer": "adamw", "learning_rate": 1e-3, "max_steps": 8}, freeze=1),
    "decoder": Case(
        {"accumulation_steps": 3, "max_steps": 8},
        limit=65,
        architecture="qwen3",
        config={"num_key_value_heads": 1, "head_dim": 16},
    ),
    "gradient_checkpointing": Case({"gradient_checkpointing": True, "accumulation_steps": 3}, limit=65),
    "masked_language_modelling": Case(
        {"accumulation_steps": 3, "max_steps": 6}, task="masked_language_modelling"
    ),
    "masked_language_modelling_padded": Case(
        {"max_steps": 6}, task="masked_language_modelling", layout="padded"
    ),
}
if find_spec("peft"):
    CASES |= {
        "lora": Case({"accumulation_steps": 3, "max_steps": 8}, lora_rank=4, limit=65),
        "lora_decoder": Case(
            {"accumulation_steps": 3, "max_steps": 8},
            lora_rank=4,
            architecture="qwen3",
            config={"num_key_value_heads": 1, "head_dim": 16},
        ),
        "lora_padded_adamw": Case(
            {"optimizer": "adamw", "learning_rate": 1e-3, "max_steps": 8} | {"gradient_checkpointing": True},
            lora_rank=2,
            layout="padded",
        ),
    }
# What depends on the code of a mode more than on its processes
OF_THE_MODE = [
    *("adamw", "accumulation_3", "varlen", "clipped", "fp16", "fp16_overflow", "windows_padded", "r_drop"),
    *("r_drop_adamw", "frozen_embeddings_padded", "frozen_layer_adamw", "gradient_checkpointing"),
    *("multi_label", "masked_language_modelling", "lora_padded_adamw"),
]
# What depends on how many rows and tokens each process gets
OF_THE_ROWS = [
    *("accumulation_3", "accumulation_adamw", "tiny_last_batch", "weighted", "clipped", "fp16_overflow"),
    *("windows", "regression", "ordinal", "logit_adjusted", "r_drop_tiny_last_batch"),
    *("masked_language_modelling", "lora"),
]
# So large that the first gradients are infinite, for some steps
OVERFLOW_SCALE = 2.0**40
