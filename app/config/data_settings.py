"""The settings of the data, and what all settings are made of; see app/config/schema.py."""

import re
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, Literal

from annotated_types import Predicate
from pydantic import BeforeValidator, ConfigDict, Field
from pydantic.dataclasses import dataclass

from ..errors import InputError
from ..words import N_

# Values must have the very type of their field; the text under a field is its help.
STRICT = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)
MAX_ROWS = 10**12
MAX_TOKENS = 1_000_000
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://")
CREDENTIALS = re.compile(rf"{ADDRESS.pattern}[^/]*@|https?://.*\?", re.DOTALL)


def is_address(name: str) -> bool:
    """Return whether a data file is named by an address such as s3://bucket/posts.parquet, which fsspec
    opens, and not by a path."""
    return ADDRESS.match(name) is not None


def check_address(key: str, name: str) -> None:
    """Raise InputError, without the address, where it holds credentials, which logs would keep."""
    if CREDENTIALS.match(name):
        raise InputError(
            f"{key}: an address must have no user:password@ and, of a web server, nothing after ? (a "
            f"signature), found such a {name.partition('://')[0]}:// address; give credentials in the "
            "environment, as docs/data.md says"
        )


@plain_dataclass(frozen=True)
class Rule(Predicate):
    """A rule that is no range, in `Annotated` of a type: `words` are all that is allowed, after "must be"."""

    words: str


def as_number(value: Any) -> Any:
    """Return the number that a string such as 3e-4 stands for, which YAML takes for a string."""
    is_number = isinstance(value, str) and re.fullmatch(r"[-+]?[\d.]+e[-+]?\d+", value, re.IGNORECASE)
    return float(value) if is_number else value


@plain_dataclass(frozen=True)
class Needs:
    """A setting that keeps its default unless data.task has `what`, one of `TaskSettings.has`; `also` are
    values that it may have with the other tasks."""

    what: str
    also: tuple[str, ...] = ()


@plain_dataclass(frozen=True)
class TaskSettings:
    """What the settings know of a value of data.task: `has`, in words, what its rows have; `losses`, the
    values of train.loss, and `metrics`, those of train.best_metric, of which auto is the first."""

    has: frozenset[str]
    losses: tuple[str, ...]
    metrics: tuple[str, ...]


ONE = TaskSettings(
    frozenset({"labels", "classes", "unordered"}),
    ("cross_entropy", "focal", "logit_adjusted"),
    ("macro_f1", "weighted_f1", "accuracy", "loss"),
)
SEVERAL = TaskSettings(
    frozenset({"labels", "classes", "unordered", "several"}),
    ("cross_entropy", "focal"),
    ("micro_f1", "macro_f1", "weighted_f1", "samples_f1", "subset_accuracy", "loss"),
)
# The keys are the values of data.task. A new one is one entry here; its help is at `DataConfig.task`.
TASKS = {
    "single_label": replace(ONE, metrics=(*ONE.metrics, "rare_f1")),
    "multi_label": SEVERAL,
    "ordinal": TaskSettings(
        frozenset({"labels", "classes"}),
        ("cross_entropy", "focal", "logit_adjusted"),
        ("kappa", "macro_mae", "within_one", "accuracy", "macro_f1", "weighted_f1", "loss"),
    ),
    "regression": TaskSettings(
        frozenset({"labels"}),
        ("cross_entropy", "huber"),
        ("rmse", "mae", "pearson", "spearman", "loss"),
    ),
    "single_path": replace(ONE, has=ONE.has | {"hierarchy"}),
    "multi_path": replace(SEVERAL, has=SEVERAL.has | {"hierarchy"}),
    "masked_language_modelling": TaskSettings(frozenset(), (), ("loss", "accuracy")),
}
TaskName = Literal[*TASKS]
FormatName = Literal["auto", "csv", "tsv", "semicolon", "pipe", "json", "jsonl", "parquet", "xlsx", "text"]
LongTextMode = Literal["cut", "head_tail", "windows"]
WITH_LABELS, WITH_CLASSES = Needs("labels"), Needs("classes")
Float = Annotated[float, BeforeValidator(as_number)]
Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=1 << 63)]
Separator = Annotated[str, Rule(bool, N_("one or more characters"))]
Names = Annotated[
    list[str],
    Rule(
        lambda names: len(set(names)) == len(names) >= 2 and all(one == one.strip() != "" for one in names),
        N_(
            "a list such as [a, b] of two or more different names without white space around them, none of "
            "them empty (numbers, yes and no in quotes)"
        ),
    ),
]
SplitSize = Annotated[
    Float,
    Rule(
        lambda size: 0 <= size <= MAX_ROWS and (size < 1 or size.is_integer()),
        N_("0, a fraction below 1 or a whole number of rows up to 1,000,000,000,000"),
    ),
]


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class VerbArguments:
    """What a verb asks of the data of its runs, which it hands to them as `--verb`.

    `folds`: the train file is divided into so many parts, and `fold` of them, from 0, is test. `train_share`:
    the part of the training rows, of each class alike. `use_test` false: no row of test is read.
    """

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
    regression: one number a row, such as a score (rmse). single_path, multi_path: one label or several in a
    hierarchy (label_hierarchy). masked_language_modelling: hidden words of plain texts, one text a line,
    without labels, to continue the pretraining of an encoder (loss)."""
    train: str | list[str] | None = None
    """File with the training rows; a folder, a pattern in quotes ('posts/*.parquet') or a list of these: all
    their files; also at addresses such as s3://bucket/posts/. none: the sample set in data/sample."""
    dev: str | list[str] | None = None
    """File or files with the dev rows; none: dev_size of the training rows."""
    test: str | list[str] | None = None
    """File or files with the test rows; none: test_size of the training rows."""
    format: FormatName = "auto"
    """Format of the data files; text: one text a line, without labels, for masked_language_modelling; auto:
    by the content, else by the ending of the file name."""
    text_column: int | str | list[int | str] | None = None
    """Column of the text, by name or number (0 is the first), or columns ('[标题, 正文]') whose texts are
    read as one; none: the column with a usual name such as text or 评论, else the one that has texts."""
    text_pair_column: Annotated[int | str | None, WITH_LABELS] = None
    """Column of the second text of a sentence pair, by name or number; none: with text_column single texts,
    without it pairs where the names (sentence1, sentence2) or the values show them."""
    label_column: Annotated[int | str | None, WITH_LABELS] = None
    """Column of the label, by name or number; none: the one with a usual name such as label or 类别, else the
    one that has labels."""
    label_separator: Annotated[Separator | None, Needs("several")] = None
    """What is between the labels of a row of multi_label (such as , or |); none: lists, or one label."""
    label_columns: Annotated[Names | None, Needs("several")] = None
    """For multi_label: columns of 0 and 1 by name, one for each label. none: the labels are in
    label_column."""
    label_hierarchy: Annotated[Separator | None, Needs("hierarchy")] = None
    """For single_path and multi_path: what is between the levels of a label, such as - or /."""
    header: bool | None = None
    """Whether the first line of a table has the column names; none: yes if a column is chosen by name, or if
    the line has usual names or words above numbers."""
    encoding: str = "utf-8"
    """Encoding of text files. utf-8: with or without a byte order mark, and GB18030 (GBK) where all of a file
    shows it; else big5, utf-16, ..."""
    quoting: Literal["auto", "none", "double"] = "auto"
    """Whether double quotes enclose fields: double, or none (part of the text); auto: in CSV, not in TSV."""
    labels: Annotated[Names | None, WITH_CLASSES] = None
    """Label names in the order of their ids; integers in the files are then ids, unless a name is an integer;
    none: the labels of the train file, sorted."""
    remove_spaces: bool = False
    """Remove all white space inside texts, for texts with spaces between the words."""
    limit: Count | None = None
    """Use only the first rows of each train file, before any split."""
    split: Literal["stratified", "random"] = "stratified"
    """How dev and test rows are taken from the train file. stratified: each class keeps its proportion, and
    rows with the same text stay in the same split. random: all rows are shuffled with Python's
    random.Random(split_seed); test is the end of them, dev the part before it."""
    dev_size: SplitSize = 0.1
    """Dev rows without a dev file: below 1 a fraction of the train file, from 1 a number; 0: none."""
    test_size: SplitSize = 0.1
    """Test rows without a test file: below 1 a fraction of the train file, from 1 a number; 0: none."""
    split_seed: Seed = 42
    """Random seed of the split."""
    relabel: Annotated[str | None, WITH_LABELS] = None
    """File of corrected labels (CSV with text_hash or text, and label): they replace the labels of these
    texts in all data files, which stay as they are."""
    on_bad_row: Literal["error", "skip"] = "error"
    """How invalid rows are handled; error: stop (but skip empty texts up to 1 % of rows); skip: leave them
    out. The data report counts them, skipped_rows.csv in the run folder has them."""
    max_length: Annotated[int, Field(ge=4, le=MAX_TOKENS)] = 128
    """Most tokens of a row, with special tokens; `long` says what is read of longer texts."""
    long: Annotated[LongTextMode, WITH_LABELS] = "cut"
    """What is read of a text of more tokens. cut: the first max_length. head_tail: a quarter of them from its
    beginning, the others from its end. windows: all, in windows of max_length; the logits of a row are the
    mean of those of its windows."""
    max_windows: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Most windows of a row; the text after the last one is not read, and the data report says so."""
    cache_dir: str = ".cache"
    """Folder of the cache: tables, splits, vocabularies and tokens made from the data files."""
    verb: VerbArguments = VerbArguments()
