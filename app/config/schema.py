"""The settings of a run: frozen pydantic dataclasses with their types, ranges, defaults and help texts.

`command_line` fills them from YAML files and the command line. A default, and what is allowed for a single
value, are written once, at the field; `rules_together` has the rules for several settings together. Nothing
here imports torch, so that `--help` is quick. Paths are relative to the working directory.
"""

from collections.abc import Iterator
from dataclasses import asdict, field
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass
from pydantic.fields import FieldInfo

from ..words import N_, _
from .data_settings import STRICT, TASKS, DataConfig, Float, Needs, Rule, as_number, check_address
from .train_settings import Share, TrainConfig

# Values are plain, so that nothing in a file can name code to run.
PlainValue = Annotated[bool | int | float | str | list | dict | None, BeforeValidator(as_number)]
TYPES = {
    int: N_("an integer"),
    float: N_("a finite number"),
    bool: N_("true or false"),
    str: N_("a string (numbers, yes and no in quotes)"),
    list[str]: N_("a list such as [a, b] of strings (numbers, yes and no in quotes)"),
    list[Float]: N_("a list of numbers"),
    list[int | str]: N_("a list of names or numbers"),
    dict: N_("a mapping of keys to values"),
    NoneType: "null",
}
RANGES = {
    ("ge",): N_("{kind} of at least {ge:,}"),
    ("gt",): N_("{kind} above {gt:,}"),
    ("ge", "le"): N_("{kind} from {ge:,} to {le:,}"),
    ("ge", "lt"): N_("{kind} from {ge:,} to below {lt:,}"),
}


@dataclass(frozen=True, config=STRICT)
class ModelConfig:
    """Which encoder is trained, and what is changed in it."""

    name: str | None = None
    """Pretrained model: e5-small-zh (needs no hub), a name on the hub (hfl/chinese-macbert-base), a folder
    (./my-bert), or a finished run; none: random weights, with the architecture below."""
    architecture: str = "bert"
    """Model type in transformers of a model with random weights: bert, roberta, electra, ..."""
    vocab_file: str | None = None
    """WordPiece vocabulary of a model with random weights, one token a line; none: the characters of GB 2312,
    ASCII and the training rows."""
    prefix: str | None = None
    """Words before each text, such as "query: ", with which e5 was pretrained; they stay in the checkpoint's
    tokenizer. Of a pair, the first text has them. "": none; none: as in the checkpoint."""
    dropout: Share | None = None
    """All dropout probabilities of the model; none: as in the model's configuration."""
    head: Annotated[Literal["auto", "random", "linear"], Needs("unordered", also=("random",))] = "auto"
    """How a new head starts: random, or linear: as a logistic regression on the means of the states of the
    tokens (of a BERT, which gets one more layer for it); auto: linear for up to 12,000 rows of the default
    model, with configs/few_labels.yaml for few rows; else random (docs/models.md)."""
    freeze: Literal["embeddings", "encoder"] | None = None
    """Train without changing the embeddings (embeddings), or these and all layers, so only the head is
    trained (encoder); none: train all."""
    config: dict[str, PlainValue] = field(default_factory=dict)
    """Keys to set in the transformers configuration of the model: num_hidden_layers, hidden_size, ..."""
    lora_rank: Annotated[int, Field(ge=0)] | None = None
    """Rank of LoRA's small matrices, such as 16, which peft trains in place of the encoder's own; the head is
    trained in full. none, 0: train the encoder itself."""


@dataclass(frozen=True, config=STRICT)
class DeepSpeedConfig:
    """ZeRO, for run_deepspeed.py only; the rest of DeepSpeed's configuration follows from `train`."""

    stage: Literal[1, 2, 3] = 2
    """What is partitioned across processes: 1 optimizer states, 2 also gradients, 3 also parameters."""
    config: str | None = None
    """DeepSpeed JSON file to merge in; values for what follows from these settings are refused."""


@dataclass(frozen=True, config=STRICT)
class OutputConfig:
    """Where a run is saved, and what it shows."""

    dir: str | None = None
    """Run folder, empty or with the run to resume; none: the next free one of checkpoints/<name>-001,
    checkpoints/<name>-002, ..."""
    name: str | None = None
    """Name of the run; none: the name of the configuration file (with the default file, of the data)."""
    resume: Literal["never", "auto"] = "never"
    """Whether the run resumes; auto: the interrupted run in `dir` (without `dir`: the newest one with this
    name), or a new run if there is none; a finished run in `dir` continues if epochs or max_steps give it
    more steps (short: --resume)."""
    trackers: list[str] = field(default_factory=lambda: ["tensorboard"])
    """What follows the run: tensorboard writes event files to the run folder; services such as mlflow and
    wandb by accelerate's names (docs/evaluation.md); []: nothing."""
    language: Literal["auto", "en", "zh"] = "auto"
    """Language of the report, its page and the advice: English or Chinese; auto: by LANG."""


@dataclass(frozen=True, config=STRICT)
class Config:
    """The whole configuration of a run."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    train: TrainConfig = field(default_factory=TrainConfig)
    deepspeed: DeepSpeedConfig = field(default_factory=DeepSpeedConfig)
    output: OutputConfig = field(default_factory=OutputConfig)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration as nested plain dictionaries."""
        return asdict(self)


GROUPS = get_type_hints(Config)
HINTS = {
    f"{group}.{key}": hint
    for group, schema in GROUPS.items()
    for key, hint in get_type_hints(schema, include_extras=True).items()
}
VERB = "data.verb"
SETTINGS = {name: hint for name, hint in HINTS.items() if name != VERB}


def members(hint: Any) -> list[Any]:
    """Return the types that a field may have, without what is said about them."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [member for one in get_args(hint) for member in members(one)]
    return [hint]


def choices(hint: Any) -> list:
    """Return the values that a field may have beside those of its other types."""
    return [value for kind in members(hint) if get_origin(kind) is Literal for value in get_args(kind)]


def describe(hint: Any) -> str:
    """Return, in words, the values that the type of a field allows."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else [hint]
    for note in notes:
        if isinstance(note, Rule):
            return _(note.words)
        if isinstance(note, FieldInfo):
            limits = {name: limit for end in note.metadata for name, limit in asdict(end).items()}
            words = RANGES[tuple(limits)]
            return _(words).format(kind=describe(kind), **limits)
    if get_origin(kind) in (Union, UnionType):
        return _(" or ").join(map(describe, get_args(kind)))
    if get_origin(kind) is Literal:
        values = ", ".join(map(str, get_args(kind)))
        return _("one of {values}").format(values=values) if len(get_args(kind)) > 1 else values
    words = TYPES.get(kind, TYPES[dict])
    return _(words)


def rules_together(config: Config) -> Iterator[tuple[Any, str, str]]:
    """Yield the rules for several settings: whether the configuration keeps it, the dotted name of a setting
    that breaks it otherwise, and what that one must be."""
    data, model, train = config.data, config.model, config.train
    for key in ("train", "dev", "test"):
        files = getattr(data, key) or []
        for file in [files] if isinstance(files, str) else files:
            check_address(f"data.{key}", file)
        yield data.train is not None or not files, f"data.{key}", _("given together with data.train")
    yield from _rules_of_task(config)
    rule = _("left out with model.lora_rank, which freezes all")
    yield not model.freeze or not model.lora_rank, "model.freeze", rule
    rule = _("left out with data.long {way}, which reads single texts").format(way=data.long)
    yield data.long == "cut" or data.text_pair_column is None, "data.text_pair_column", rule
    for key in ("labels", "label_column", "label_separator"):
        rule = _("left out with data.label_columns, which has the labels")
        yield data.label_columns is None or getattr(data, key) is None, f"data.{key}", rule
    rule = _("left out with train.loss logit_adjusted: both correct the same imbalance")
    is_twice = train.loss == "logit_adjusted" and train.class_weights == "balanced"
    yield not is_twice, "train.class_weights", rule


def _rules_of_task(config: Config) -> Iterator[tuple[Any, str, str]]:
    """Yield the rules of data.task for other settings."""
    task, known = config.data.task, TASKS[config.data.task]
    has = known.has
    for key, values in (("best_metric", ("auto", *known.metrics)), ("loss", known.losses)):
        rule = _("one of {values} with data.task {task}").format(values=", ".join(values), task=task)
        yield not values or getattr(config.train, key) in values, f"train.{key}", rule
    for name, hint in HINTS.items():
        for needs in getattr(hint, "__metadata__", ()):
            if isinstance(needs, Needs) and needs.what not in has:
                group, _dot, key = name.partition(".")
                having = _(" or ").join(one for one, known in TASKS.items() if needs.what in known.has)
                rule = _("left out unless data.task is {tasks}").format(tasks=having)
                usual = getattr(GROUPS[group](), key)
                yield getattr(getattr(config, group), key) in (usual, *needs.also), name, rule
    rule = _("what is between the levels of a label, such as - or /, and not data.label_separator")
    is_between = config.data.label_hierarchy not in (None, config.data.label_separator)
    yield "hierarchy" not in has or is_between, "data.label_hierarchy", rule
    if "labels" in has:
        without = _(" or ").join(name for name, known in TASKS.items() if "labels" not in known.has)
        rule = _("a format with labels unless data.task is {tasks}").format(tasks=without)
        yield config.data.format != "text", "data.format", rule
        rule = _("a file with data.task {task} (the sample set has one label a row)").format(task=task)
        yield task == DataConfig.task or config.data.train is not None, "data.train", rule
    else:
        rule = _("left out with data.task {task}").format(task=task)
        yield not config.model.lora_rank, "model.lora_rank", rule
