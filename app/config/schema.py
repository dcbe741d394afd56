"""The settings of a run: frozen dataclasses with their types, defaults and help texts.

`app.config.command_line` fills them from YAML files and the command line; `app.config.checks` checks the
values. Every default is written once, here. Nothing here imports torch, so that `--help` stays fast. Paths
are relative to the working directory.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from .mode_settings import DDPConfig, DeepSpeedConfig, HorovodConfig

# Not Any: given a mapping with a `class_path`, jsonargparse would import that class and create an object.
PlainValue = bool | int | float | str | list | dict | None
Metric = Literal[
    "auto", "macro_f1", "weighted_f1", "micro_f1", "samples_f1", "subset_accuracy", "accuracy", "loss"
]


@dataclass(frozen=True)
class DataConfig:
    """Where the rows come from and how they are split."""

    task: Literal["single_label", "multi_label", "masked_words"] = "single_label"
    """What is learnt. single_label: one label a row. multi_label: any number of labels a row. masked_words:
    hidden words of plain texts, one text a line, without labels, to continue the pretraining of an encoder.
    """
    train: str | None = None
    """File with the training rows, or public:NAME/FILE, a file that python -m app fetch NAME fetches; none:
    the sample set in data/sample, with its own dev and test files.
    """
    dev: str | None = None
    """File with the dev rows; none: dev_size of the training rows."""
    test: str | None = None
    """File with the test rows; none: test_size of the training rows."""
    format: Literal["auto", "csv", "tsv", "json", "jsonl", "parquet", "xlsx", "text"] = "auto"
    """Format of the data files; text: one text a line, without labels, for masked_words; auto: JSON, JSON
    Lines, Parquet and Excel (xlsx) by the content, others by the ending of the file name (.txt is tsv, for
    masked_words text).
    """
    text_column: int | str | None = None
    """Column of the text, by name or number (0 is the first); none: the column with a usual name such as text
    or sentence; without column names, the first one left.
    """
    text_pair_column: int | str | None = None
    """Column of the second text of a sentence pair, by name or number; none: single texts."""
    label_column: int | str | None = None
    """Column of the label, by name or number; none: the column with a usual name such as label or category,
    else the only one left.
    """
    label_separator: str | None = None
    """For multi_label: what is between the labels of a row, for instance , or | or ;. none: lists, or one
    label."""
    label_columns: list[str] | None = None
    """For multi_label: columns of 0 and 1, one for each label, by name, in the order of the labels' ids;
    none: the labels are in label_column.
    """
    min_labels: int = 0
    """For multi_label: a prediction has at least this many labels; those nearest to their thresholds are
    added."""
    max_labels: int | None = None
    """For multi_label: a prediction has at most this many labels, those furthest above their thresholds;
    none: any number."""
    header: bool | None = None
    """Whether the first line of a CSV, TSV or Excel file has the column names; none: yes if a column is
    chosen by name, or if the line has usual names for both text and label.
    """
    encoding: str = "utf-8"
    """Encoding of text files: utf-8 (with or without a byte order mark), gb18030, ..."""
    quoting: Literal["auto", "none", "double"] = "auto"
    """Whether double quotes enclose fields: double (yes) or none (they are part of the text); auto: double in
    CSV, none in TSV.
    """
    labels: list[str] | None = None
    """Label names in the order of their ids; integers in the files are then ids, unless a name is an integer;
    none: the labels of the train file, sorted.
    """
    remove_spaces: bool = False
    """Remove all white space inside texts, for texts with spaces between the words."""
    limit: int | None = None
    """Use only the first rows of the train file, before any split."""
    split: Literal["stratified", "random"] = "stratified"
    """How dev and test rows are taken from the train file. stratified: each class keeps its proportion, and
    rows with the same text stay in the same split. random: all rows are shuffled with Python's
    random.Random(split_seed); test is the end of them, dev the part before it.
    """
    dev_size: float = 0.1
    """Size of dev without a dev file: below 1 a fraction of the train file, from 1 a number of rows; 0: no
    dev split."""
    test_size: float = 0.1
    """Size of test without a test file: below 1 a fraction of the train file, from 1 a number of rows; 0: no
    test split."""
    split_seed: int = 42
    """Random seed of the split."""
    folds: int | None = None
    """Divide the train file into this many parts, stratified, with all rows of one text in one part, to test
    on one of them (`fold`); python -m app cross-validate trains all of them. A test file is then not read.
    """
    fold: int | None = None
    """With `folds`: the part to test on, from 0; the other parts are train, and dev where there is no dev
    file."""
    relabel: str | None = None
    """File of corrected labels (CSV with text_hash or text, and label): they replace the labels of these
    texts in all data files, which stay as they are.
    """
    on_bad_row: Literal["error", "skip"] = "error"
    """How invalid rows are handled: stop with an error, or skip them (the data report counts them,
    skipped_rows.csv in the run folder lists them).
    """
    max_length: int = 128
    """Most tokens of a row, with special tokens; `long` says what is read of longer texts, and the data
    report counts them."""
    long: Literal["cut", "head_tail", "windows"] = "cut"
    """What is read of a text of more tokens. cut: the first max_length. head_tail: a quarter of them from its
    beginning, the others from its end. windows: all, in windows of max_length; the logits of a row are the
    mean of those of its windows.
    """
    stride: int | None = None
    """Tokens from the start of a window to that of the next; none: three quarters of the tokens of a text in
    a window."""
    max_windows: int = 8
    """Most windows of a row; the text after the last one is not read, and the data report counts such rows.
    """
    whole_words: bool = False
    """For masked_words: hide all tokens of a Chinese word together (needs rjieba)."""
    cache_dir: str = ".cache"
    """Folder of the cache: tables, splits, vocabularies and tokens made from the data files."""


@dataclass(frozen=True)
class ModelConfig:
    """Which encoder is trained, and what is changed in it."""

    name: str | None = None
    """Pretrained model: e5-small-zh (needs no hub), a name on the hub (hfl/chinese-macbert-base), a folder
    (./my-bert), or a finished run; none: random weights, with the architecture below.
    """
    revision: str | None = None
    """Branch, tag or commit of a model on the hub."""
    trust_remote_code: bool = False
    """Run Python code that comes with the pretrained model."""
    architecture: str = "bert"
    """Model type in transformers of a model with random weights: bert, roberta, electra, ..."""
    vocab_file: str | None = None
    """WordPiece vocabulary of a model with random weights, one token a line; none: the characters of GB 2312,
    ASCII and the training rows.
    """
    lowercase: bool = True
    """Convert Latin letters to lower case, without accents; for random weights (a pretrained model has its
    own rule)."""
    dropout: float | None = None
    """All dropout probabilities of the model; none: as in the model's configuration."""
    config: dict[str, PlainValue] = field(default_factory=dict)
    """Keys to set in the transformers configuration of the model: num_hidden_layers, hidden_size, ..."""


@dataclass(frozen=True)
class TrainConfig:
    """How the model is trained."""

    epochs: int = 3
    """Passes over the training rows."""
    max_steps: int | None = None
    """Stop after this many optimizer steps; the learning-rate schedule is then this long."""
    batch_size: int = 32
    """Rows of a global batch (one optimizer step), for all modes and any number of processes."""
    accumulation_steps: int = 1
    """Number of micro-batches per optimizer step, in each process."""
    micro_batch_size: Literal["auto"] | int | None = None
    """Most rows of a micro-batch, in place of accumulation_steps; auto, none: as accumulation_steps says.
    When memory runs out, a single process halves its micro-batches and repeats the step; several processes do
    so only with auto, in run_ddp.py, run_mp.py and run_accelerate.py.
    """
    eval_batch_size: int = 64
    """Batch size of each process in evaluation, in rows."""
    collate: Literal["auto", "packed", "padded"] = "auto"
    """Batch layout: packed (no padding) or padded; auto: packed where the model and the mode support it."""
    attention: Literal["auto", "grouped", "varlen"] = "auto"
    """Attention in packed batches: grouped (rows of similar length are padded together) or varlen (one kernel
    for any lengths); auto: varlen where the device has a fast kernel for it (CUDA, compute capability 8.0 or
    higher).
    """
    cuda_graphs: Literal["passes"] | bool | None = None
    """Replay training as CUDA graphs, with varlen attention, in run_single.py (and DDP with ddp.wrapper
    false); none: where possible; true: or stop with an error; passes: where possible, without the optimizer's
    update.
    """
    joint_casts: bool | None = None
    """Cast weights to bf16 or fp16 by one call, and their gradients back by one; none: on CUDA, in the modes
    named above."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    learning_rate: float | None = None
    """Peak learning rate; none: 3e-5; for a pretrained model by its width: to 384: 2e-4 (more than 150 steps
    in an epoch: 1e-4; pairs of texts: 5e-5), 512: 5e-5, 768: 3e-5, else 2e-5.
    """
    head_learning_rate: float | None = None
    """Peak learning rate of the head; none: learning_rate, ten times that for a pretrained model up to 384
    wide."""
    weight_decay: float = 0.01
    """Weight decay; not applied to biases and norms."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after the warm-up: linear or cosine decay to 0, or constant."""
    warmup: float | None = None
    """Linear warm-up: below 1 a fraction of all steps, from 1 a number; none: 0.3 where the usual
    learning_rate is 2e-4, else 0.1."""
    layer_lr_decay: float = 1.0
    """The learning rate of each layer is that of the layer above times this factor; 1: the same for all
    layers."""
    max_grad_norm: float = 1.0
    """Clip gradients to this L2 norm; 0: no clipping."""
    loss: Literal["cross_entropy", "focal", "logit_adjusted"] = "cross_entropy"
    """Loss of a row.

    focal: rows that are right already count less. logit_adjusted: classes count by their share of the rows.
    """
    focal_gamma: float = 2.0
    """For the focal loss: its power of 1 - the probability of the label; 0 is cross entropy."""
    sampling: Literal["all", "balanced"] = "all"
    """Rows of an epoch.

    all: each once. balanced: as many rows, of each class equally many (for multi_label: by rarest label).
    """
    label_smoothing: float = 0.0
    """Fraction of the target probability that is spread evenly over all classes, below 1."""
    positive_weights: Literal["none", "balanced"] | list[float] = "none"
    """For multi_label: weight of each label in the loss of the rows that have it; balanced: rows without it /
    rows with it."""
    class_weights: Literal["none", "balanced"] | list[float] = "none"
    """Weight of each class in the loss; balanced: number of rows / (number of classes * rows of the class).
    """
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    """Precision of the model: fp32, or autocast to bf16 or fp16 (fp16 with loss scaling); auto: bf16 on a
    device that is faster in it (on the CPU that is measured), else fp32.
    """
    eval_every: int | None = None
    """Steps between evaluations on dev; none: one after each epoch. There is always one after the last step.
    """
    save_every: int | None = None
    """Steps between training states, from which an interrupted run can be resumed; none: one at each
    evaluation."""
    best_metric: Metric = "auto"
    """Metric on dev by which the best model is chosen; that model is kept. auto: macro_f1, for multi_label
    micro_f1, for masked_words loss (which has no F1).
    """
    early_stopping: int | None = None
    """Stop after this many evaluations in a row without a better best_metric; none: never."""
    log_every: int = 10
    """Steps between log lines."""
    seed: int = 42
    """Random seed of the weights, the order of the rows and dropout."""
    deterministic: bool = False
    """Use only deterministic kernels (slower on CUDA)."""
    device: str = "auto"
    """cpu, cuda, cuda:1 or mps; auto: CUDA if available, else MPS, else the CPU."""
    on_nonfinite: Literal["stop", "skip"] = "stop"
    """On a non-finite loss or gradient: stop at the next log line, or skip the step (synchronises the device
    every step)."""
    timeout: int = 120
    """Seconds without a response from a process (stopped, or its machine unreachable) after which the other
    processes end; at least 10.
    """
    threads: int | None = None
    """CPU threads of each process; none: the cores of the machine divided by its number of processes."""
    nprocs: int | None = None
    """Number of processes that run_mp.py starts (short: --nprocs); none: one for each CUDA device, or 2 on
    the CPU."""


@dataclass(frozen=True)
class OutputConfig:
    """Where a run is saved, and what it shows."""

    dir: str | None = None
    """Run folder; none: the next free one of checkpoints/<name>-001, checkpoints/<name>-002, ..."""
    name: str | None = None
    """Name of the run; none: the name of the configuration file (with the default file, of the data)."""
    overwrite: bool = False
    """Allow a run in `dir`, finished or not, to be replaced; files that are not of the run stay."""
    resume: Literal["never", "auto"] = "never"
    """auto: resume the interrupted run in `dir` (without `dir`: the newest one with this name), or start a
    new run if there is none; a finished run in `dir` continues if epochs or max_steps give it more steps
    (short: --resume).
    """
    keep_states: int = 2
    """Number of training states to keep until the run is finished, the newest ones; each includes the best
    model so far."""
    keep_final_state: bool = True
    """Keep the last training state of a finished run (three times the model's size): --resume auto can train
    it for longer."""
    tensorboard: bool = True
    """Write TensorBoard event files to the run folder."""
    trackers: list[str] = field(default_factory=list)
    """Services that follow the run as well: mlflow, wandb, swanlab."""
    project: str = "chinese-text-classification"
    """Name under which the trackers group runs (MLflow: experiment)."""
    language: Literal["en", "zh"] = "en"
    """Language of report.html: English or Chinese."""
    progress: bool | None = None
    """Show a progress bar; none: if standard error is a terminal."""


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
