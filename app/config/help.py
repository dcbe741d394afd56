"""The help of the run scripts, and docs/settings.md: all settings with what they allow and their defaults."""

import re
import shutil
import textwrap
from typing import Any

from ..errors import show
from .allowed_values import describe
from .schema import GROUPS, SETTINGS, Config

MAX_WIDTH = 110  # columns of the help
# `--help` has these settings, `--help all` has all
USUAL = (
    "data.train",
    "data.dev",
    "data.test",
    "data.text_column",
    "data.label_column",
    "data.task",
    "data.label_separator",
    "data.on_bad_row",
    "data.max_length",
    "data.long",
    "model.name",
    "train.epochs",
    "train.batch_size",
    "train.learning_rate",
    "train.early_stopping",
    "train.class_weights",
    "train.seed",
    "train.device",
    "train.precision",
    "output.dir",
    "output.resume",
    "output.language",
)
# The first clause of an explanation ends here
END_OF_CLAUSE = re.compile(r"[;.:] |[;.]$| \(")
TITLE = """\
# Settings

All settings, in a YAML file or on the command line: `--train.epochs 3`. What neither sets has the default
below. Made by `python -m app.config.help > docs/settings.md`.
"""


def help_text(command: str, description: str, is_whole: bool, defaults: Config) -> str:
    """Return the help of a script that trains `defaults` without options: the usual settings, or all."""
    values = defaults.to_dict()
    lines = [f"usage: python {command} [--config FILE] [--GROUP.KEY VALUE ...]\n", description.strip(), ""]
    lines += _lines_of_all(values) if is_whole else _lines_of_usual(values)
    lines += [
        "  --config FILE                        YAML file of settings; may be repeated, later ones win",
        "  --print_config                       print the settings of this command as YAML, and end",
    ]
    if is_whole:
        lines.append("")
    else:
        lines.append("\nMore: --help all has every setting, and docs/settings.md.\n")
    return "\n".join(lines)


def _lines_of_all(values: dict[str, dict]) -> list[str]:
    """Return two or more lines for each setting: what it allows, and its whole explanation."""
    columns = shutil.get_terminal_size((100, 24)).columns
    width = min(columns, MAX_WIDTH) - 6
    lines = []
    for name, hint in SETTINGS.items():
        lines.append(f"  --{name}  {describe(hint)}{default(name, values)}")
        words = textwrap.fill(explanation(name), width, break_on_hyphens=False)
        lines.append(textwrap.indent(words, " " * 6))
    return lines


def _lines_of_usual(values: dict[str, dict]) -> list[str]:
    """Return a line for each usual setting, with the first clause of its explanation."""
    lines = []
    for name in USUAL:
        last_word = re.split("[._]", name)[-1]
        option = f"--{name} {last_word.upper()}"
        clause = END_OF_CLAUSE.split(explanation(name))[0]
        lines.append(f"  {option:36} {clause[:1].lower()}{clause[1:]}{default(name, values)}")
    return lines


def explanation(name: str) -> str:
    """Return the text under the field of a setting as one line."""
    group, _dot, key = name.partition(".")
    return " ".join(GROUPS[group].__pydantic_fields__[key].description.split())


def default(name: str, values: dict[str, dict[str, Any]]) -> str:
    """Return the value of a setting in brackets, or nothing."""
    group, _dot, key = name.partition(".")
    value = values[group][key]
    if value is None or value in ([], {}):
        return ""
    if isinstance(value, bool):
        value = str(value).lower()
    return f" (default: {value})"


def markdown() -> str:
    """Return docs/settings.md: every setting with what it allows, its default and its explanation."""
    values = Config().to_dict()
    text = TITLE
    for group, schema in GROUPS.items():
        text += f"\n## {group}\n\n{schema.__doc__}\n\n| setting | value | |\n| --- | --- | --- |\n"
        for name, hint in SETTINGS.items():
            if name.startswith(f"{group}."):
                cells = [f"`{name}`", f"{describe(hint)}{default(name, values)}", explanation(name)]
                row = " | ".join(cell.replace("|", "\\|") for cell in cells)
                text += f"| {row} |\n"
    return text


if __name__ == "__main__":
    raise SystemExit(show(markdown()))
