"""The settings of a run: frozen pydantic dataclasses with their types, ranges, defaults and help texts.

`command_line` fills them from YAML files and the command line. A default, and what is allowed for a single
value, are written once, at the field; `rules` has the rules for several settings together. Nothing here
imports torch, so that `--help` is quick. Paths are relative to the working directory.
"""

import re
from dataclasses import asdict, field, replace
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, Literal, get_type_hints

from annotated_types import Predicate
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..errors import InputError
from ..program import file_here
from .shipped import E5_SMALL

# Values must have the very type of their field; the text under a field is its help.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
# A data file may have an address such as s3://bucket/posts.parquet, which fsspec opens.
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")
CREDENTIALS = re.compile(rf"{ADDRESS.pattern}[^/]*@|https?://.*\?", re.DOTALL)
# YAML takes such numbers for strings
# In double quotes, YAML reads \\n in a path such as "C:\\new" as a line feed
CONTROL_CHARACTER = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
EXPONENT = re.compile(r"[-+]?[\d.]+e[-+]?\d+", re.IGNORECASE)


def check_address(key: str, name: str) -> None:
    """Raise InputError, without the address, where it holds credentials, which logs would keep."""
    if CREDENTIALS.match(name):
        raise InputError(
            f"{key}: an address must have no user:password@ and, of a web server, nothing after ? (a "
            f"signature), found such a {name.partition('://')[0]}:// address; give credentials in the "
            f"environment, as {file_here('docs/data.md')} says"
        )


@plain_dataclass(frozen=True)
class ValueRule(Predicate):
    """A rule for a single value that is no range, in `Annotated` of a type. `words` say all that is allowed;
    they stand after "must be"."""

    words: str


def as_number(value: Any) -> Any:
    """Return the number that a string such as 3e-4 stands for; other values are returned as they are."""
    if isinstance(value, str) and EXPONENT.fullmatch(value):
        return float(value)
    return value


@plain_dataclass(frozen=True)
class Needs:
    """Marks a setting that keeps its default unless the rows of data.task have `trait`, see `TaskSettings`.
    `also` are values that the setting may have with other tasks."""

    trait: str
    also: tuple[str, ...] = ()


@plain_dataclass(frozen=True)
class TaskSettings:
    """What the settings know of a value of data.task. `traits` of its rows: they have labels, which are
    classes, unordered, several a row, or in a hierarchy. `losses` are the values of train.loss, `metrics`
    those of train.best_metric; the first metric is that of auto."""

    traits: frozenset[str]
    losses: tuple[str, ...]
    metrics: tuple[str, ...]


UNORDERED_LABEL = TaskSettings(
    traits=frozenset({"labels", "classes", "unordered"}),
    losses=("cross_entropy", "focal", "logit_adjusted"),
    metrics=("macro_f1", "weighted_f1", "accuracy", "loss"),
)
SEVERAL_LABELS = TaskSettings(
    traits=frozenset({"labels", "classes", "unordered", "several"}),
    losses=("cross_entropy", "focal"),
    metrics=("micro_f1", "macro_f1", "weighted_f1", "samples_f1", "subset_accuracy", "loss"),
)
# The keys are the values of data.task. A new one is one entry here; its help is at `DataConfig.task`.
TASKS = {
    "single_label": replace(UNORDERED_LABEL, metrics=(*UNORDERED_LABEL.metrics, "rare_f1")),
    "multi_label": SEVERAL_LABELS,
    "ordinal": TaskSettings(
        traits=frozenset({"labels", "classes"}),
        losses=("cross_entropy", "focal", "logit_adjusted"),
        metrics=("kappa", "macro_mae", "within_one", "accuracy", "macro_f1", "weighted_f1", "loss"),
    ),
    "regression": TaskSettings(
        traits=frozenset({"labels"}),
        losses=("cross_entropy", "huber"),
        metrics=("rmse", "mae", "pearson", "spearman", "loss"),
    ),
    "single_path": replace(UNORDERED_LABEL, traits=UNORDERED_LABEL.traits | {"hierarchy"}),
    "multi_path": replace(SEVERAL_LABELS, traits=SEVERAL_LABELS.traits | {"hierarchy"}),
    "masked_language_modelling": TaskSettings(traits=frozenset(), losses=(), metrics=("loss", "accuracy")),
}


def values_of_tasks(choice: Literal["losses", "metrics"]) -> list[str]:
    """Return all losses or metrics of `TASKS`, each once."""
    values: list[str] = []
    for task in TASKS.values():
        values += getattr(task, choice)
    return list(dict.fromkeys(values))


def are_names(values: list[str]) -> bool:
    """Return whether there are two or more values, all different, none of them empty or with white space
    around it."""
    is_stripped = all(value and value == value.strip() for value in values)
    return is_stripped and len(values) >= 2 and len(set(values)) == len(values)


def as_switch(value: Any) -> Any:
    """Return on or off for the booleans that YAML makes of these words; other values are returned as they
    are."""
    if value is True:
        return "on"
    if value is False:
        return "off"
    return value


def is_one_line(text: str) -> bool:
    """Return whether a text has no line feed, tab or other control character."""
    return not CONTROL_CHARACTER.search(text)


def is_split_size(size: float) -> bool:
    """Return whether `size` is a fraction of the rows, or a whole number of rows."""
    return 0 <= size <= 10**12 and (size < 1 or size.is_integer())


def is_long_enough(seconds: int) -> bool:
    """Return whether slow ranks are not taken for dead with this timeout."""
    return seconds >= MIN_TIMEOUT


TaskName = Literal[*TASKS]
Switch = Annotated[Literal["auto", "on", "off"], BeforeValidator(as_switch)]
Metric = Literal["auto", *values_of_tasks("metrics")]
Loss = Literal[*values_of_tasks("losses")]
FormatName = Literal[
    "auto",
    "csv",
    "tsv",
    "semicolon",
    "pipe",
    "json",
    "jsonl",
    "parquet",
    "arrow",
    "xlsx",
    "fasttext",
    "text",
]
# The names that accelerate has for them
TrackerName = Literal[
    "tensorboard",
    "wandb",
    "comet_ml",
    "aim",
    "mlflow",
    "clearml",
    "dvclive",
    "swanlab",
    "trackio",
]
LongTextMode = Literal["cut", "head_tail", "windows"]
WITH_LABELS = Needs("labels")
WITH_CLASSES = Needs("classes")
Float = Annotated[float, BeforeValidator(as_number)]
# Values are plain, so that nothing in a file can name code to run.
PlainValue = Annotated[bool | int | float | str | list | dict | None, BeforeValidator(as_number)]
Count = Annotated[int, Field(ge=1)]
Number = Annotated[Float, Field(ge=0)]
LearningRate = Annotated[
    Float,
    # check_rules asks for the other rate
    ValueRule(
        lambda rate: rate >= 0,
        "a finite number greater than 0 (0 only with train.head_learning_rate: the encoder stays as it is)",
    ),
]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
RANDOM = "random"  # the model.name of random weights
STRING = "a string (numbers, yes and no in quotes)"
# Names of files and columns, and other words
Text = Annotated[str, ValueRule(is_one_line, STRING)]
ModelName = Annotated[
    str,
    ValueRule(
        lambda name: bool(name) and is_one_line(name),
        "e5-small-zh, a name on the hub, a folder with a checkpoint, or random (for random weights)",
    ),
]
Separator = Annotated[str, ValueRule(bool, "one or more characters")]
Names = Annotated[
    list[str],
    ValueRule(
        are_names,
        "a list such as [a, b] of two or more different names without white space around them, none of "
        "them empty (numbers, yes and no in quotes)",
    ),
]
SplitSize = Annotated[
    Float,
    ValueRule(is_split_size, "0, a fraction below 1 or a whole number of rows up to 1,000,000,000,000"),
]
# Ranks beat once a second, and a busy or swapping machine delays some of these beats.
MIN_TIMEOUT = 10  # seconds
Timeout = Annotated[
    int,
    ValueRule(
        is_long_enough,
        "an integer from 10 (seconds), or ranks that are only slow would be taken for dead",
    ),
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class VerbArguments:
    """What a verb asks of the data of its runs, which it hands to them as `--verb`. `folds`: the train file
    is divided into so many parts, and `fold` of them, from 0, is test. `train_share`: the part of the
    training rows, of each class alike. `use_test` false: no row of test is read."""

    folds: Annotated[int, Field(ge=2)] | None = None
    fold: Annotated[int, Field(ge=0)] | None = None
    train_share: Annotated[float, Field(gt=0, le=1)] = 1.0
    use_test: bool = True


@dataclass(frozen=True, config=STRICT)
class DataConfig:
    """Where the rows come from and how they are split."""

    task: TaskName = "single_label"
    """What is learnt (in brackets the train.best_metric of auto). single_label: one label a row (macro_f1).
    multi_label: several labels a row (micro_f1). ordinal: one of ordered labels, such as stars (kappa).
    regression: a number, such as a score (rmse). single_path, multi_path: labels in a hierarchy.
    masked_language_modelling: hidden words of texts, one a line, to continue a pretraining (loss)."""
    train: Text | list[Text] | None = None
    """File with the training rows; a folder, a pattern in quotes ('posts/*.parquet') or a list of these: all
    their files; also at addresses such as s3://bucket/posts/. none: the sample set in data/sample."""
    dev: Text | list[Text] | None = None
    """File or files of dev rows; none: dev_size of the training rows."""
    test: Text | list[Text] | None = None
    """File or files of test rows; none: test_size of the training rows."""
    format: FormatName = "auto"
    """Format of the data files; text: one text a line, without labels; auto: by content, or by file name."""
    text_column: int | Text | list[int | Text] | None = None
    """Column of the text, by name or number (0 is the first), or columns ('[标题, 正文]') whose texts are
    read as one; none: the column with a usual name such as text or 评论, else the one that has texts."""
    text_pair_column: Annotated[int | Text | None, WITH_LABELS] = None
    """Column of the second text of a pair, by name or number; none: with text_column single texts, without it
    pairs where the names (sentence1, sentence2) or the values show them."""
    label_column: Annotated[int | Text | None, WITH_LABELS] = None
    """Column of the label, by name or number; none: by a usual name such as 类别, else by its labels."""
    label_separator: Annotated[Separator | None, WITH_CLASSES] = None
    """What is between the labels of a row of multi_label, or between its votes (such as , or |); none: lists,
    or one label."""
    label_columns: Annotated[Names | None, Needs("several")] = None
    """For multi_label: columns of 0 and 1 by name, one for each label; none: label_column has the labels."""
    votes: Annotated[int | Text | None, WITH_CLASSES] = None
    """Column with the votes of several models or people for a row, by name or number: 好评|好评|差评 with
    label_separator, or a JSON list. The row is trained on their shares, unless it has a label; none: no
    votes."""
    label_hierarchy: Annotated[Separator | None, Needs("hierarchy")] = None
    """For single_path and multi_path: what is between the levels of a label, such as - or /; none: labels are
    in no hierarchy."""
    header: bool | None = None
    """Whether the first line of a table has the column names; none: as its words show, or a chosen column."""
    sheet: Annotated[int, Field(ge=0)] | Text | None = None
    """Sheet of Excel workbooks, by name or number (0 is the first); none: the first one with values."""
    encoding: Text = "utf-8"
    """Encoding of text files, such as big5; utf-8 is also GB18030 (GBK) where all of a file shows it."""
    quoting: Literal["auto", "double", "never"] = "auto"
    """Whether double quotes enclose fields: double, or never (they are part of the text); auto: in CSV, not
    in TSV."""
    labels: Annotated[Names | None, WITH_CLASSES] = None
    """Label names in the order of their ids; integers in the files are then ids, unless a name is an integer;
    none: the labels of the train file, sorted."""
    remove_spaces: bool = False
    """Remove all white space inside texts, for texts with spaces between the words."""
    limit: Count | None = None
    """Use only so many first rows of each train file, before any split; none: all."""
    split: Literal["stratified", "random"] = "stratified"
    """How dev and test rows are taken. stratified: each class keeps its share, equal texts stay together.
    random: shuffled by Python's random.Random(split_seed); test is the end, dev the part before it."""
    dev_size: SplitSize = 0.1
    """Dev rows without a dev file: below 1 a fraction of the train file, from 1 a number; 0: no rows."""
    test_size: SplitSize = 0.1
    """Test rows without a test file: below 1 a fraction of the train file, from 1 a number; 0: no rows."""
    split_seed: Seed = 42
    """Random seed of the split."""
    relabel: Annotated[Text | None, WITH_LABELS] = None
    """File of corrected labels (CSV with text_hash or text, and label), which replace those of all files;
    none: the labels of the files."""
    on_bad_row: Literal["error", "skip"] = "error"
    """How invalid rows are handled. error: stop (1 % of empty texts are skipped); skip: leave them out."""
    max_length: Annotated[int, Field(ge=4, le=1_000_000)] = 128
    """Most tokens of a row, with special tokens; `long` says what is read of longer texts."""
    long: Annotated[LongTextMode, WITH_LABELS] = "cut"
    """What is read of a longer text. cut: its first max_length tokens. head_tail: a quarter of these from its
    beginning, the others from its end. windows: all, in windows whose logits are averaged."""
    max_windows: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Most windows of a row; the text after the last one is not read, and the data report says so."""
    cache_dir: Text = ".cache"
    """Folder of the cache: tables, splits, vocabularies and tokens made from the data files."""
    verb: VerbArguments = VerbArguments()


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """Which encoder is trained, and what is changed in it."""

    name: ModelName = E5_SMALL
    """Model to train: e5-small-zh (needs no hub), a name on the hub (hfl/chinese-macbert-base), a folder
    (./my-bert), or a finished run; random: random weights, with the architecture below."""
    architecture: Text = "bert"
    """Model type in transformers, with model.name random only: bert, roberta, electra, ..."""
    vocab_file: Text | None = None
    """WordPiece vocabulary, with model.name random only, one token a line; none: characters of GB 2312 and
    train."""
    prefix: str | None = None
    """Words before each text, such as "query: ", with which e5 was pretrained; they stay in the checkpoint's
    tokenizer. Of a pair, the first text has them. "": no words; none: as in the checkpoint, or "query: "
    where model.head auto chooses a linear start."""
    dropout: Annotated[Float, Field(ge=0, lt=1)] | None = None
    """All dropout probabilities of the model; none: as in the model's configuration."""
    head: Annotated[Literal["auto", "random", "linear"], Needs("unordered", also=("random",))] = "auto"
    """How a new head starts: random, or linear: as a logistic regression on what its last layer reads (of a
    BERT the mean of the tokens); auto: linear for up to 12,000 rows of the default model (few:
    configs/few_labels.yaml), else random."""
    ngrams: Annotated[Switch, Needs("labels", also=("auto", "off"))] = "auto"
    """A linear model of character n-grams that answers beside the encoder, for single texts. auto: where that
    improves train.best_metric on parts of dev that its weight was not fitted on; on: always; off: never."""
    freeze: Literal["embeddings", "encoder"] | None = None
    """Do not train the embeddings (embeddings), or these and all layers (encoder); none: train all."""
    config: dict[str, PlainValue] = field(default_factory=dict)
    """Keys to set in the transformers configuration of the model: hidden_dropout_prob, ...; those that change
    the shape of weights (num_hidden_layers, hidden_size, ...) with model.name random only."""
    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of LoRA's matrices (peft), such as 16, trained in place of the encoder's own; 0: no LoRA; none: no
    LoRA."""

    @property
    def has_random_weights(self) -> bool:
        return self.name == RANDOM


@dataclass(frozen=True, config=STRICT)
class TrainConfig:
    """How the model is trained."""

    epochs: Literal["auto"] | Annotated[int, Field(ge=1, le=10**9)] = "auto"
    """Passes over the training rows; auto: by the number of rows and the size of the smallest class."""
    max_steps: Count | None = None
    """Stop after this many optimizer steps; the learning-rate schedule is then this long; none: epochs."""
    batch_size: Count = 32
    """Rows of a global batch (one optimizer step), for all modes and any number of processes."""
    accumulation_steps: Count = 1
    """Number of micro-batches per optimizer step, in each process."""
    micro_batch_tokens: Count | None = None
    """Most tokens of a micro-batch, also in evaluation; a longer row is one alone; none: no limit. In bf16 on
    the CPU padding up to a multiple of 32 comes on top."""
    gradient_checkpointing: bool = False
    """Compute each layer again for the backward pass: less memory, more time, the same weights."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimizer."""
    learning_rate: LearningRate | None = None
    """Peak learning rate; none: by the width of a pretrained model: to 384: 2e-4 (more than 150 steps in an
    epoch: 1e-4; pairs of texts, or a linear head: 5e-5), 512: 5e-5, 768: 3e-5, else 2e-5; of random weights
    3e-5."""
    head_learning_rate: Number | None = None
    """Peak learning rate of the head; none: learning_rate, for pretrained models to 384 wide ten times it,
    unless model.head is linear."""
    weight_decay: Number = 0.01
    """Weight decay; not applied to biases and norms."""
    schedule: Literal["linear", "cosine", "constant"] = "linear"
    """Learning rate after the warm-up: linear or cosine decay to 0, or constant."""
    warmup: Number | None = None
    """Linear warm-up: below 1 a fraction of steps, from 1 a number; none: 0.1, or 0.3 (docs/models.md)."""
    max_grad_norm: Number = 1.0
    """Clip gradients to this L2 norm; 0: no clipping."""
    loss: Annotated[Loss, WITH_LABELS] = "cross_entropy"
    """Loss of a row. focal: rows that are right already count less. logit_adjusted: classes count by their
    share of the rows. huber: for numbers, it counts large errors less."""
    class_weights: Annotated[Literal["balanced"] | list[Float] | None, WITH_CLASSES] = None
    """Class weights in the loss, balanced or a list; none: all 1. balanced: rows / (classes * rows of the
    class). For multi_label: of each label in the loss of the rows that have it; balanced: rows without it /
    rows with it."""
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Precision of the model: fp32, or autocast to bf16 or fp16 (fp16 with loss scaling); auto: bf16 on GPUs
    and processors that are faster in it (docs/lab/decisions.md lists them), else fp32."""
    eval_every: Count | None = None
    """Steps between evaluations on dev, and one after the last; none: one an epoch, or about 10 in all."""
    save_every: Count | None = None
    """Steps between training states, from which a run resumes; none: one at each evaluation."""
    best_metric: Metric = "auto"
    """Metric on dev that chooses the best model; auto: see data.task. rare_f1: of two classes, the F1 of the
    rarer one; dev then also chooses the probability from which it is the answer."""
    early_stopping: Count | None = None
    """Stop after this many evaluations in a row without a better best_metric; none: never."""
    log_every: Count = 10
    """Steps between log lines."""
    seed: Seed = 42
    """Random seed of weights, dropout and the order of rows."""
    device: Text = "auto"
    """cpu, cuda, npu, xpu or mps, :N for one of several (ROCm is cuda); auto: the accelerator or CPU."""
    timeout: Timeout = 120
    """Seconds without a response from a process, at least 10, after which the others end."""
    threads: Annotated[int, Field(ge=1, le=4096)] | None = None
    """CPU threads of each process; none: OMP_NUM_THREADS of a single process, else its part of the cores."""


@dataclass(frozen=True, config=STRICT)
class DeepSpeedConfig:
    """ZeRO, for run_deepspeed.py only; the rest of DeepSpeed's configuration follows from `train`."""

    stage: Literal[1, 2, 3] = 2
    """What is partitioned across processes: 1 optimizer states, 2 also gradients, 3 also parameters."""
    config: Text | None = None
    """DeepSpeed JSON file to merge in; values for what follows from these settings are refused; none: no
    file."""


@dataclass(frozen=True, config=STRICT)
class OutputConfig:
    """Where a run is saved, and what it shows."""

    dir: Text | None = None
    """Folder of the run, empty or to resume; none: checkpoints/<name>-001, or the next that is free."""
    name: Text | None = None
    """Name of the run; none: the name of the configuration file (without one, of the data)."""
    resume: Literal["never", "auto"] = "never"
    """Whether the run resumes, --resume alone is auto. auto: the interrupted run in `dir`, without `dir` the
    newest of this name, else a new run; a finished run in `dir` trains on if epochs or max_steps give more
    steps."""
    trackers: list[TrackerName] = field(default_factory=lambda: ["tensorboard"])
    """What follows the run: TensorBoard, and services by their names (docs/evaluation.md); []: nothing."""
    language: Literal["auto", "en", "zh"] = "auto"
    """Language of the report, its page and the advice: English or Chinese; auto: by LANG."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """The whole configuration of a run; `notes` are lines for its log about settings that are not used, and
    `given` the dotted names of the settings that are not left to their defaults. `is_of_program`: the rows
    are those of a Python program, in a temporary file that no command can name."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    deepspeed: DeepSpeedConfig = field(default_factory=DeepSpeedConfig)
    output: OutputConfig = field(default_factory=OutputConfig)
    notes: tuple[str, ...] = ()
    given: frozenset[str] = field(default=frozenset(), compare=False)
    is_of_program: bool = field(default=False, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the settings by group and name."""
        return {group: asdict(getattr(self, group)) for group in GROUPS}


NO_GROUPS = ("notes", "given", "is_of_program")
GROUPS = {group: schema for group, schema in get_type_hints(Config).items() if group not in NO_GROUPS}


def types_of_settings() -> dict[str, Any]:
    """Return the type of each setting, with what is said of it, by its dotted name."""
    types = {}
    for group, schema in GROUPS.items():
        for key, hint in get_type_hints(schema, include_extras=True).items():
            types[f"{group}.{key}"] = hint
    return types


HINTS = types_of_settings()
VERB = "data.verb"  # no setting of people: verbs set it for the runs that they start
SETTINGS = {name: hint for name, hint in HINTS.items() if name != VERB}
