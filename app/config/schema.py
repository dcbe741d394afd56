"""The configuration: frozen dataclasses.

Every default is written once, here; `app.config.command_line` fills it from YAML files and dotted overrides. Nothing here
imports torch, so that `--help` stays fast. Paths are relative to the working directory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from app.errors import InputError

# Not Any: of a mapping with `class_path` there, jsonargparse would import the class and make an object.
PlainValue = bool | int | float | str | list | dict | None


@dataclass(frozen=True)
class DataConfig:
    """Where the rows come from and how they are split."""

    train: str | None = None
    """File with the training rows; none: the embedded sample set in data/sample (its train, dev and test files)."""
    dev: str | None = None
    """File with the dev rows; none: dev_size of the training rows."""
    test: str | None = None
    """File with the test rows; none: test_size of the training rows."""
    format: Literal["auto", "csv", "tsv", "json", "jsonl", "parquet"] = "auto"
    """File format; auto goes by the file's name (.txt is tsv)."""
    text_column: int | str | None = None
    """Column of the text, by name or by number (0 is the first); none: found by its usual name, else 0."""
    text_pair_column: int | str | None = None
    """Column of the second text of a sentence pair; none: single texts."""
    label_column: int | str | None = None
    """Column of the label, by name or by number; none: found by its usual name, else the one after the text."""
    header: bool | None = None
    """Whether the first line of a CSV or TSV file names the columns; none: yes where the names say so."""
    encoding: str = "utf-8"
    """Encoding of text files: utf-8 (a byte order mark is allowed), gb18030, ..."""
    quoting: Literal["auto", "none", "double"] = "auto"
    """Whether double quotes enclose fields; auto: in CSV they do, in TSV they are part of the text."""
    labels: list[str] | None = None
    """Label names in the order of their ids; integer labels in the files are ids into it; none: found in train."""
    remove_spaces: bool = False
    """Remove white space inside texts, for texts whose words were separated by spaces."""
    limit: int | None = None
    """Use only the first rows of the train file, before any split."""
    split: Literal["stratified", "random"] = "stratified"
    """How rows are taken out of train: stratified keeps the shares of the classes and never puts the same text on both
    sides; random shuffles all rows with Python's random.Random(split_seed) and cuts test off the end, dev before it."""
    dev_size: float = 0.1
    """Rows for dev where no dev file is given: below 1 a share of the train file, from 1 a number of rows, 0 none."""
    test_size: float = 0.1
    """Rows for test where no test file is given: below 1 a share of the train file, from 1 a number of rows, 0 none."""
    split_seed: int = 42
    """Seed of the split."""
    on_bad_row: Literal["error", "skip"] = "error"
    """What a row that breaks a rule does: stop with an error, or be skipped, counted and listed."""
    max_length: int = 128
    """Longest row in tokens, special tokens included; longer rows are cut and counted."""
    cache_dir: str = ".cache"
    """Folder of the token store's cache."""


@dataclass(frozen=True)
class ModelConfig:
    """Which encoder is trained, and what is changed in it."""

    name: str | None = None
    """Hub name or folder of a checkpoint (hfl/chinese-macbert-base, ./my-bert); none: random weights, architecture below."""
    revision: str | None = None
    """Branch, tag or commit of a hub checkpoint."""
    trust_remote_code: bool = False
    """Allow a checkpoint to bring its own Python code, which then runs on this machine."""
    architecture: str = "bert"
    """transformers' model type of a model with random weights: bert, roberta, electra, ..."""
    vocab_file: str | None = None
    """WordPiece vocabulary (one token a line) of a model with random weights; none: characters of GB 2312 and of train."""
    lowercase: bool = True
    """Lower-case Latin letters (only with a vocabulary of our own; a checkpoint brings its own rule)."""
    dropout: float | None = None
    """Sets every dropout probability of the model; none: what its configuration says."""
    config: dict[str, PlainValue] = field(default_factory=dict)
    """Keys of the transformers configuration to set: num_hidden_layers, hidden_size, ..."""


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained."""

    epochs: int = 3
    """Passes over the training rows."""
    max_steps: int | None = None
    """Stop after this many optimizer steps; the learning-rate schedule is then this long."""
    batch_size: int = 32
    """Rows of a global batch, in every mode and at any number of processes."""
    accumulation_steps: int = 1
    """Micro-batches into which each process cuts its share of a global batch."""
    micro_batch_size: Literal["auto"] | int | None = None
    """Most rows of a micro-batch, in place of accumulation_steps; auto: by accumulation_steps until memory runs out, then
    halved on all processes together; none: by accumulation_steps, halved only where there is one process."""
    eval_batch_size: int = 64
    """Rows a process evaluates at once."""
    collate: Literal["auto", "packed", "padded"] = "auto"
    """Batch layout: packed has no padding; auto packs where the model and the mode can."""
    attention: Literal["auto", "grouped", "varlen"] = "auto"
    """Attention in packed batches: grouped pads rows to those of like length, varlen is one kernel for rows of all lengths;
    auto: varlen where the device has that kernel (CUDA from compute capability 8.0)."""
    cuda_graphs: bool | None = None
    """Record training passes as CUDA graphs, with varlen attention in run_single.py; none: where that is possible."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    learning_rate: float = 3e-5
    """Highest learning rate."""
    weight_decay: float = 0.01
    """Weight decay; biases and norms have none."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after the warm-up: falls to 0 on a line or a cosine, or stays."""
    warmup: float = 0.1
    """Linear warm-up: below 1 a share of all steps, from 1 a number of steps."""
    layer_lr_decay: float = 1.0
    """Factor on the learning rate for each layer further from the head; 1: none."""
    max_grad_norm: float = 1.0
    """Gradients are clipped to this L2 norm; 0: no clipping."""
    label_smoothing: float = 0.0
    """Share of a target spread evenly over all classes, from 0 to 1."""
    class_weights: Literal["none", "balanced"] | list[float] = "none"
    """Factor on a row's loss by its class; balanced: rows / (classes * rows of the class)."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Arithmetic of the model: bf16 and fp16 by autocast, fp16 with loss scaling."""
    eval_every: int | None = None
    """Evaluate on dev every so many steps; none: after each epoch."""
    save_every: int | None = None
    """Steps between two training states, from which an interrupted run goes on; none: at each evaluation."""
    best_metric: Literal["macro_f1", "weighted_f1", "accuracy", "loss"] = "macro_f1"
    """Figure on dev that chooses the checkpoint to keep."""
    early_stopping: int | None = None
    """Stop after this many evaluations without a better best_metric; none: never."""
    log_every: int = 10
    """Steps between two lines of the log."""
    seed: int = 42
    """Seed of the weights, the batch plan and dropout."""
    deterministic: bool = False
    """Only deterministic kernels (slower on CUDA)."""
    device: str = "auto"
    """cpu, cuda, cuda:1, mps; auto: CUDA where there is one, else MPS, else CPU."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """What a loss or gradient does that is not finite: end the run at the next line of the log, or leave its step out
    (which has the device waited for in each step)."""
    timeout: int = 120
    """Seconds without a sign of life of a process (stopped, or its machine out of reach) after which the others end."""
    threads: int | None = None
    """CPU threads of a process; none: all cores shared evenly among the processes of this machine."""
    nprocs: int | None = None
    """Processes that run_mp.py starts (--nprocs for short); none: one for each CUDA device, or 2 on the CPU."""


@dataclass(frozen=True)
class DDPConfig:
    """For run_ddp.py and run_mp.py only."""

    compression: Literal["none", "fp16", "bf16"] = "none"
    """Send gradients as they are, or in half precision (half the bytes; no longer exactly the same weights)."""


@dataclass(frozen=True)
class DeepSpeedConfig:
    """ZeRO, for run_deepspeed.py only; everything else in DeepSpeed's configuration follows from `train`."""

    stage: Literal[0, 1, 2, 3] = 2
    """What is cut over the processes: 0 nothing, 1 optimizer state, 2 gradients too, 3 parameters too."""
    offload_optimizer: bool = False
    """Keep optimizer state, and step, in host memory."""
    config: str | None = None
    """A DeepSpeed JSON file to merge in; "auto" values follow our settings, contradictions are refused."""


@dataclass(frozen=True)
class HorovodConfig:
    """For run_horovod.py only."""

    compression: Literal["none", "fp16"] = "none"
    """Send gradients as they are, or in half precision (half the bytes; no longer exactly the same weights)."""


@dataclass(frozen=True)
class OutputConfig:
    """What a run leaves behind."""

    dir: str | None = None
    """Run folder; none: a new one, checkpoints/<name>-001 and on."""
    name: str | None = None
    """Name of the run; none: the name of the configuration file."""
    overwrite: bool = False
    """Allow a finished run in `dir` to be replaced."""
    resume: Literal["never", "auto"] = "never"
    """Whether to go on with an interrupted run (--resume for short): auto takes the one in `dir`, or the newest of this
    name, if there is one."""
    keep_states: int = 2
    """Newest training states to keep while a run is not finished; each also has the best model up to then."""
    tensorboard: bool = True
    """Write TensorBoard event files into the run folder."""
    progress: bool | None = None
    """Show a progress bar; none: when a person is watching (standard error is a terminal)."""


@dataclass(frozen=True)
class Config:
    """The whole configuration of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    ddp: DDPConfig = field(default_factory=DDPConfig)
    deepspeed: DeepSpeedConfig = field(default_factory=DeepSpeedConfig)
    horovod: HorovodConfig = field(default_factory=HorovodConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as nested plain dictionaries."""
        return asdict(self)


def _require(key: str, value: Any, holds: bool, rule: str) -> None:
    if not holds:
        raise InputError(f"{key} must be {rule}, found {value!r}")


def check_values(config: Config) -> None:
    """Raise InputError for a value of the right type but out of its range, naming its key; each value by itself."""
    data, train = config.data, config.train
    for key in ("dev_size", "test_size"):
        size = getattr(data, key)
        _require(
            f"data.{key}",
            size,
            size >= 0 and (size < 1 or float(size).is_integer()),
            "0, a share below 1 or a whole number of rows",
        )
    _require("data.max_length", data.max_length, data.max_length >= 4, "at least 4 tokens")
    _require("data.limit", data.limit, data.limit is None or data.limit >= 1, "at least 1 row")
    if data.labels is not None:
        _require(
            "data.labels", data.labels, len(set(data.labels)) == len(data.labels) >= 2, "two or more different names"
        )
        is_clean = all(name == name.strip() != "" for name in data.labels)
        _require("data.labels", data.labels, is_clean, "names without white space around them, none of them empty")
    _require("data.split_seed", data.split_seed, 0 <= data.split_seed < 1 << 63, "an integer from 0 to below 2**63")
    _require("train.seed", train.seed, 0 <= train.seed < 1 << 63, "an integer from 0 to below 2**63")
    for key in ("epochs", "batch_size", "accumulation_steps", "eval_batch_size", "log_every", "timeout"):
        _require(f"train.{key}", getattr(train, key), getattr(train, key) >= 1, "at least 1")
    for key in ("max_steps", "eval_every", "save_every", "early_stopping", "threads", "nprocs"):
        value = getattr(train, key)
        _require(f"train.{key}", value, value is None or value >= 1, "at least 1, or null")
    size = train.micro_batch_size
    _require("train.micro_batch_size", size, not isinstance(size, int) or size >= 1, "at least 1, auto or null")
    for key in ("learning_rate", "weight_decay", "warmup", "max_grad_norm"):
        _require(f"train.{key}", getattr(train, key), 0 <= getattr(train, key) < float("inf"), "a finite number from 0")
    _require("train.layer_lr_decay", train.layer_lr_decay, 0 < train.layer_lr_decay <= 1, "above 0 and at most 1")
    _require("train.label_smoothing", train.label_smoothing, 0 <= train.label_smoothing < 1, "from 0 to below 1")
    _require("output.keep_states", config.output.keep_states, config.output.keep_states >= 1, "at least 1")
    if config.model.dropout is not None:
        _require("model.dropout", config.model.dropout, 0 <= config.model.dropout < 1, "from 0 to below 1")


def check_together(config: Config) -> None:
    """Raise InputError for settings that do not go together."""
    data = config.data
    if data.train is None:
        given = next((key for key in ("dev", "test") if getattr(data, key)), None)
        _require(f"data.{given}", given and getattr(data, given), given is None, "given together with data.train")
