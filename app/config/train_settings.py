"""The settings of the training; see app/config/schema.py."""

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from ..words import N_
from .data_settings import STRICT, TASKS, WITH_CLASSES, WITH_LABELS, Count, Float, Rule, Seed

MAX_THREADS = 4096
MAX_EPOCHS = 10**9
# Ranks beat once a second, and a busy or swapping machine delays some of these beats.
MIN_TIMEOUT = 10  # seconds
Metric = Literal["auto", *dict.fromkeys(name for task in TASKS.values() for name in task.metrics)]
Loss = Literal[*dict.fromkeys(name for task in TASKS.values() for name in task.losses)]
Weights = Literal["none", "balanced"] | list[Float]
Threads = Annotated[int, Field(ge=1, le=MAX_THREADS)]
Number = Annotated[Float, Field(ge=0)]
Share = Annotated[Float, Field(ge=0, lt=1)]
Timeout = Annotated[
    int,
    Rule(
        lambda seconds: seconds >= MIN_TIMEOUT,
        N_("an integer from 10 (seconds), or ranks that are only slow would be taken for dead"),
    ),
]


@dataclass(frozen=True, config=STRICT)
class TrainConfig:
    """How the model is trained."""

    epochs: Literal["auto"] | Annotated[int, Field(ge=1, le=MAX_EPOCHS)] = "auto"
    """Passes over the training rows; auto: by the number of rows and the size of the smallest class, at least
    3 (pairs of texts: 4) unless these take more than 6,000 steps."""
    max_steps: Count | None = None
    """Stop after this many optimizer steps; the learning-rate schedule is then this long."""
    batch_size: Count = 32
    """Rows of a global batch (one optimizer step), for all modes and any number of processes."""
    accumulation_steps: Count = 1
    """Number of micro-batches per optimizer step, in each process."""
    micro_batch_tokens: Count | None = None
    """Most tokens of a micro-batch, and of a batch in evaluation, so that long texts fit into memory; a
    longer row is one alone; none: no limit."""
    gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass: less memory, more time, the same weights."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    learning_rate: Number | None = None
    """Peak learning rate; none: 3e-5; for a pretrained model by its width: to 384: 2e-4 (more than 150 steps
    in an epoch: 1e-4; pairs of texts: 5e-5), 512: 5e-5, 768: 3e-5, else 2e-5."""
    head_learning_rate: Number | None = None
    """Peak learning rate of the head; none: learning_rate, ten times that for a pretrained model up to 384
    wide."""
    weight_decay: Number = 0.01
    """Weight decay; not applied to biases and norms."""
    r_drop: Annotated[Annotated[Float, Field(gt=0)] | None, WITH_LABELS] = None
    """R-Drop: train each row twice in a step, with other dropout, and add so many times the divergence of the
    two predictions to its loss, such as 1; none: off."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after the warm-up: linear or cosine decay to 0, or constant."""
    warmup: Number | None = None
    """Linear warm-up: below 1 a fraction of all steps, from 1 a number; none: 0.3 where the usual
    learning_rate is 2e-4, else 0.1."""
    max_grad_norm: Number = 1.0
    """Clip gradients to this L2 norm; 0: no clipping."""
    loss: Annotated[Loss, WITH_LABELS] = "cross_entropy"
    """Loss of a row. focal: rows that are right already count less. logit_adjusted: classes count by their
    share of the rows. huber: for numbers, it counts large errors less."""
    class_weights: Annotated[Weights, WITH_CLASSES] = "none"
    """Weight of each class in the loss; balanced: number of rows / (number of classes * rows of the class).
    For multi_label: weight of each label in the loss of the rows that have it; balanced: rows without it /
    rows with it."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Precision of the model: fp32, or autocast to bf16 or fp16 (fp16 with loss scaling); auto: bf16 on a
    device that is faster in it (on the CPU that is measured), else fp32."""
    eval_every: Count | None = None
    """Steps between evaluations on dev; none: one after each epoch (train.epochs auto: at most about 10).
    There is always one after the last step."""
    save_every: Count | None = None
    """Steps between training states, from which a run resumes; none: one at each evaluation."""
    best_metric: Metric = "auto"
    """Metric on dev by which the best model is chosen and kept. auto: the main one of the data.task, see
    there. rare_f1: with two classes, the F1 of the rarer one; dev then also chooses the probability from
    which it is the answer."""
    early_stopping: Count | None = None
    """Stop after this many evaluations in a row without a better best_metric; none: never."""
    log_every: Count = 10
    """Steps between log lines."""
    seed: Seed = 42
    """Random seed of weights, dropout and the order of rows."""
    device: str = "auto"
    """cpu, or what torch finds: cuda (also for ROCm), npu, xpu or mps, with :N for one of several; auto: the
    accelerator, else the CPU."""
    timeout: Timeout = 120
    """Seconds without a response from a process (stopped, or its machine unreachable) after which the others
    end; at least 10."""
    threads: Threads | None = None
    """CPU threads of each process; none: OMP_NUM_THREADS where a single process runs, else the cores of the
    machine divided by its number of processes."""
