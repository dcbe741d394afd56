"""The settings of a run: frozen dataclasses with their types, rules, defaults and help texts.

`command_line` fills them from YAML files and the command line. A default and a rule for a single value are
written once, at the field (`rules`); `checks` has the rules for several settings together. Nothing here
imports torch, so that `--help` is quick. Paths are relative to the working directory.
"""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

from .data_settings import DataConfig
from .rules import FROM_0_BELOW_1, Count, CountOrNone, Needs, Rule
from .train_settings import TrainConfig

Head = Annotated[Literal["auto", "random", "linear"], Needs("unordered", also=("random",))]
# Not Any: given a mapping with a `class_path`, jsonargparse would import that class and create an object.
PlainValue = bool | int | float | str | list | dict | None
Freeze = Annotated[
    Literal["embeddings", "encoder"] | int | None,
    Rule("embeddings, encoder, or at least 1", lambda lowest: isinstance(lowest, str) or lowest >= 1),
]


@dataclass(frozen=True)
class LoRAConfig:
    """Small matrices that are trained in place of the encoder's own, by peft; the head is trained in full."""

    rank: Annotated[int | None, Rule("at least 0", lambda rank: rank >= 0)] = None
    """Rank of the small matrices, such as 16; none, 0: train the encoder itself."""
    alpha: CountOrNone = None
    """They are multiplied by alpha / rank; none: alpha is twice the rank."""
    dropout: Annotated[float | None, FROM_0_BELOW_1] = None
    """Dropout probability of what they get; none: no dropout."""
    targets: Annotated[list[str] | None, Rule("one name or more", bool)] = None
    """Linear layers of the encoder that get them, such as [query, value]; none: all."""


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
    prefix: str | None = None
    """Words before each text, such as "query: ", with which e5 was pretrained; they stay in the checkpoint's
    tokenizer. Of a pair, the first text has them. "": none; none: as in the checkpoint."""
    dropout: Annotated[float | None, FROM_0_BELOW_1] = None
    """All dropout probabilities of the model; none: as in the model's configuration."""
    head: Head = "auto"
    """How a new head starts: random, or linear: as a logistic regression on the means of the states of the
    tokens (of a BERT, which gets one more layer for it); auto: linear for up to 12,000 rows of the default
    model, with configs/few_labels.yaml for few rows; else random (docs/models.md)."""
    freeze: Freeze = None
    """Train without changing the embeddings (embeddings), these and so many of the lowest layers (a number),
    or these and all layers, so only the head is trained (encoder); none: train all."""
    config: dict[str, PlainValue] = field(default_factory=dict)
    """Keys to set in the transformers configuration of the model: num_hidden_layers, hidden_size, ..."""
    lora: LoRAConfig = field(default_factory=LoRAConfig)


@dataclass(frozen=True)
class DDPConfig:
    """For run_ddp.py and run_mp.py only."""

    compression: Literal["none", "fp16", "bf16"] = "none"
    """Precision in which gradients are sent: as they are (none) or half (half the bytes; weights differ
    slightly)."""


@dataclass(frozen=True)
class DeepSpeedConfig:
    """ZeRO, for run_deepspeed.py only; the rest of DeepSpeed's configuration follows from `train`."""

    stage: Literal[0, 1, 2, 3] = 2
    """What is partitioned across processes: 0 nothing, 1 optimizer states, 2 also gradients, 3 also
    parameters."""
    offload_optimizer: bool = False
    """Keep the optimizer states, and run the optimizer, in host memory."""
    config: str | None = None
    """DeepSpeed JSON file to merge in; its "auto" values are filled in from these settings, values that
    contradict them are refused.
    """


@dataclass(frozen=True)
class HorovodConfig:
    """For run_horovod.py only."""

    compression: Literal["none", "fp16"] = "none"
    """Precision in which gradients are sent: as they are (none) or half (half the bytes; weights differ
    slightly)."""


@dataclass(frozen=True)
class OutputConfig:
    """Where a run is saved, and what it shows."""

    dir: str | None = None
    """Run folder, empty or with the run to resume; none: the next free one of checkpoints/<name>-001,
    checkpoints/<name>-002, ..."""
    name: str | None = None
    """Name of the run; none: the name of the configuration file (with the default file, of the data)."""
    resume: Literal["never", "auto"] = "never"
    """auto: resume the interrupted run in `dir` (without `dir`: the newest one with this name), or start a
    new run if there is none; a finished run in `dir` continues if epochs or max_steps give it more steps
    (short: --resume).
    """
    keep_states: Count = 2
    """Number of training states to keep until the run is finished, the newest ones; each includes the best
    model so far."""
    keep_final_state: bool = True
    """Keep the last training state of a finished run (three times the model's size): --resume auto can train
    it for longer."""
    merge: bool = True
    """With model.lora.rank: save the model with the trained matrices added to its own, an ordinary
    checkpoint, beside the folder adapter; false: save the adapter only."""
    tensorboard: bool = True
    """Write TensorBoard event files to the run folder."""
    trackers: list[str] = field(default_factory=list)
    """Services that follow the run as well, such as [mlflow, wandb], by accelerate's names
    (docs/evaluation.md)."""
    project: str = "chinese-text-classification"
    """Name under which the trackers group runs (MLflow: experiment)."""
    language: Literal["auto", "en", "zh"] = "auto"
    """Language of the report, its page and the advice: English or Chinese; auto: by LANG."""
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
