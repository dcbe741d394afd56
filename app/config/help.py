"""What the settings allow, in words: each alone, and several together; and the help of the run scripts."""

import re
import shutil
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from ..errors import show
from ..words import N_, _
from .schema import (
    GROUPS,
    HINTS,
    SETTINGS,
    TASKS,
    Config,
    DataConfig,
    Float,
    ModelConfig,
    Needs,
    Rule,
    check_address,
)

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


def members(hint: Any) -> list[Any]:
    """Return the types that a field may have, without what is said about them."""
    if get_origin(hint) is Annotated:
        return members(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return [member for one in get_args(hint) for member in members(one)]
    return [hint]


def describe(hint: Any) -> str:
    """Return, in words, the values that the type of a field allows."""
    kind, *notes = get_args(hint) if get_origin(hint) is Annotated else [hint]
    for note in notes:
        if isinstance(note, Rule):
            return _(note.words)
        if isinstance(note, FieldInfo):
            limits = {name: limit for end in note.metadata for name, limit in asdict(end).items()}
            return _(RANGES[tuple(limits)]).format(kind=describe(kind), **limits)
    if get_origin(kind) in (Union, UnionType):
        return _(" or ").join(map(describe, get_args(kind)))
    if get_origin(kind) is Literal:
        values = ", ".join(map(str, get_args(kind)))
        return _("one of {values}").format(values=values) if len(get_args(kind)) > 1 else values
    words = TYPES.get(kind, TYPES[dict])
    return _(words)


def rules_together(config: Config) -> Iterator[tuple[Any, str, str]]:
    """Yield each rule for several settings: whether the configuration obeys it, the dotted name of the
    setting that breaks it otherwise, and what that setting must be."""
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
    rule = _("left out unless model.name is random (for random weights: --model.name random)")
    for key in ("architecture", "vocab_file"):
        is_usual = getattr(model, key) == getattr(ModelConfig(), key)
        yield model.has_random_weights or is_usual, f"model.{key}", rule


def _rules_of_task(config: Config) -> Iterator[tuple[Any, str, str]]:
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


# The settings that people use
USUAL = (
    *("data.train", "data.dev", "data.test", "data.text_column", "data.label_column", "data.task"),
    *("data.label_separator", "data.on_bad_row", "data.max_length", "data.long", "model.name"),
    *("train.epochs", "train.batch_size", "train.learning_rate", "train.early_stopping"),
    *("train.class_weights", "train.seed", "train.device", "train.precision"),
    *("output.dir", "output.resume", "output.language"),
)
TITLE = """\
# Settings

All settings, in a YAML file or on the command line: `--train.epochs 3`. What neither sets has the default
below. Made by `python -m app.config.help > docs/settings.md`.
"""


def help_text(command: str, description: str, is_whole: bool, defaults: Config) -> str:
    """Return the help of a script that trains `defaults` without options: the usual settings, or all."""
    usage, values = f"usage: python {command} [--config FILE] [--GROUP.KEY VALUE ...]\n", defaults.to_dict()
    lines = [usage, description.strip(), ""]
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - 6
    for name in SETTINGS if is_whole else ():
        words = textwrap.fill(explanation(name), width, break_on_hyphens=False)
        lines.append(f"  --{name}  {describe(SETTINGS[name])}{default(name, values)}")
        lines.append(textwrap.indent(words, " " * 6))
    for name in () if is_whole else USUAL:
        option = f"--{name} {re.split('[._]', name)[-1].upper()}"
        # The first clause of its text says what it is
        words = re.split(r"[;.:] |[;.]$| \(", explanation(name))[0]
        lines.append(f"  {option:36} {words[:1].lower()}{words[1:]}{default(name, values)}")
    lines += [
        "  --config FILE                        YAML file of settings; may be repeated, later ones win",
        "  --print_config                       print the settings of this command as YAML, and end",
        "" if is_whole else "\nMore: --help all has every setting, and docs/settings.md.\n",
    ]
    return "\n".join(lines)


def explanation(name: str) -> str:
    group, _dot, key = name.partition(".")
    return " ".join(GROUPS[group].__pydantic_fields__[key].description.split())


def default(name: str, values: dict) -> str:
    """Return the value of a setting in brackets, or nothing."""
    group, _dot, key = name.partition(".")
    value = values[group][key]
    shown = str(value).lower() if isinstance(value, bool) else value
    return "" if value is None or value in ([], {}) else f" (default: {shown})"


def markdown() -> str:
    """Return docs/settings.md: every setting with what it allows, its default and its explanation."""
    defaults, text = Config().to_dict(), TITLE
    for group, schema in GROUPS.items():
        text += f"\n## {group}\n\n{schema.__doc__}\n\n| setting | value | |\n| --- | --- | --- |\n"
        for name in (one for one in SETTINGS if one.startswith(f"{group}.")):
            value = f"{describe(SETTINGS[name])}{default(name, defaults)}"
            cells = [one.replace("|", "\\|") for one in (f"`{name}`", value, explanation(name))]
            text += f"| {' | '.join(cells)} |\n"
    return text


if __name__ == "__main__":
    raise SystemExit(show(markdown()))
