"""What the contract of the modes is tested with: settings, tasks, layouts and data."""

from dataclasses import dataclass, field
from importlib.util import find_spec

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
# What depends on the code of a mode more than on its processes
OF_THE_MODE = [
    *("adamw", "accumulation_3", "varlen", "clipped", "fp16", "fp16_overflow", "windows_padded", "r_drop"),
    *("r_drop_adamw", "frozen_embeddings_padded", "frozen_encoder_adamw", "gradient_checkpointing"),
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
