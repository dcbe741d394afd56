"""The help of the run scripts: the settings that people use on one screen, or all of a group."""

import os
import re
import shutil
import sys
import textwrap
from types import NoneType
from typing import Literal, get_origin

from ..errors import InputError, nearest
from ..words import _
from .data_settings import TASKS
from .schema import GROUPS, SETTINGS, Config, choices, describe, members

# The settings that people use, each with its value and what it is in a few words
USUAL = {
    "data.train": ("FILE", "training rows: CSV, TSV, JSON, JSON Lines, Parquet or Excel"),
    "data.dev": ("FILE", "rows to choose the best model by; else a part of the training rows"),
    "data.test": ("FILE", "rows to report on; else a part of the training rows"),
    "data.text_column": ("COLUMN", "column of the text, by name or number from 0; else found"),
    "data.label_column": ("COLUMN", "column of the label; else found"),
    "data.task": ("TASK", "|".join([*TASKS][1:-1])),
    "data.label_separator": ("TEXT", "for multi_label: what is between the labels of a row"),
    "data.on_bad_row": ("HOW", "invalid rows: error or skip"),
    "data.max_length": ("TOKENS", "most tokens of a text"),
    "data.long": ("HOW", "longer texts: cut, head_tail or windows"),
    "model.name": ("MODEL", "pretrained model: a name on a hub, a folder or a run"),
    "train.epochs": ("N", "passes over the training rows; auto: by the data"),
    "train.batch_size": ("ROWS", "rows of an optimizer step, over all processes"),
    "train.learning_rate": ("RATE", "peak learning rate; else by the model and the data"),
    "train.early_stopping": ("N", "stop after N evaluations without a better model"),
    "train.class_weights": ("HOW", "balanced: rare classes count more"),
    "train.seed": ("N", "random seed"),
    "train.device": ("DEVICE", "cpu, cuda, npu, xpu or mps, with :N; auto: the best there is"),
    "train.precision": ("HOW", "fp32, bf16 or fp16; auto: what is fast here"),
    "output.dir": ("FOLDER", "run folder; else the next free one in checkpoints/"),
    "output.resume": ("HOW", "auto: continue an interrupted run"),
    "output.language": ("LANGUAGE", "language of the report: en or zh; auto: that of the locale"),
}
INDENT = "      "
TITLE = """\
# Settings

All settings, in a YAML file or on the command line: `--train.epochs 3`. Made by
`python -m app.config.help > docs/settings.md` from the fields in `app/config/`.
"""


def help_text(command: str, description: str, topics: list[str], defaults: Config) -> str:
    """Return the help of the script `command`, which trains `defaults` without options. `topics` after --help
    are groups, settings or all; none: the usual settings. Raises InputError for another word."""
    usage = f"usage: python {command} [--config FILE] [--GROUP.KEY VALUE ...]\n"
    values = defaults.to_dict()
    if topics:
        asked = GROUPS if "all" in topics else topics
        return usage + "".join(f"\n{_explained(topic, values)}\n" for topic in asked)
    usual = [
        f"  {f'--{name} {value}':28} {words}{_default(values, name)}"
        for name, (value, words) in USUAL.items()
    ]
    more = f"""\
  --config FILE                YAML file of settings; may be repeated, later ones win
  --print_config               print the settings of this command as YAML, and end

More: --help all, or --help with a group ({", ".join(GROUPS)}) or a setting.
"""
    return "\n".join([usage, description.strip(), "", *usual, more])


def show(text: str) -> int:
    """Write a help text to standard output; return the exit status, 141 where its reader has gone. Raises
    InputError where it cannot be written: argparse would say nothing."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except OSError as error:
        # Without this, Python would try to write again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        raise InputError(f"the help cannot be written to standard output: {error.strerror}") from error
    return 0


def _explained(topic: str, values: dict) -> str:
    """Return the help of a group, or of one setting: its choices and default, and below them what it does."""
    names = [name for name in SETTINGS if name == topic or name.startswith(f"{topic}.")]
    if not names:
        near = nearest(topic, [*GROUPS, *SETTINGS, "all"])
        raise InputError(
            _("command line: there is no help on '{topic}'{near}").format(topic=topic, near=near)
        )
    lines = [f"{topic}: {GROUPS[topic].__doc__}", ""] if topic in GROUPS else []
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - len(INDENT)
    for name in names:
        words = textwrap.fill(explanation(name), width, break_on_hyphens=False)
        lines += [f"  --{name} {_value(name)}{_default(values, name)}", textwrap.indent(words, INDENT)]
    return "\n".join(lines)


def explanation(name: str) -> str:
    """Return the text below the field of a setting."""
    group, _dot, key = name.partition(".")
    return " ".join(GROUPS[group].__pydantic_fields__[key].description.split())


def _value(name: str) -> str:
    """Return the choices of a setting, or what stands for any of its values."""
    kinds = [kind for kind in members(SETTINGS[name]) if kind is not NoneType]
    if kinds == [bool]:
        return "true|false"
    words = [*map(str, choices(SETTINGS[name]))]
    if any(get_origin(kind) is not Literal for kind in kinds):
        words.append(re.split("[._]", name)[-1].upper())
    return "|".join(words)


def _default(values: dict, name: str) -> str:
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
            value = f"{describe(SETTINGS[name])}{_default(defaults, name)}"
            cells = [one.replace("|", "\\|") for one in (f"`{name}`", value, explanation(name))]
            text += f"| {' | '.join(cells)} |\n"
    return text


if __name__ == "__main__":
    show(markdown())
