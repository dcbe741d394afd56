"""The help of the run scripts, and docs/settings.md: all settings with what they allow and their defaults."""

import re
import shutil
import textwrap
from typing import Any

from ..errors import show
from ..program import with_names_here
from .allowed_values import describe, literal_values
from .schema import GROUPS, SETTINGS, Config
from .yaml_files import yaml_text

MAX_WIDTH = 110  # columns of the help
OPTION_WIDTH = 39  # columns of an option and its value
INDENT = OPTION_WIDTH + 3  # columns before what an option does
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
MEANING_OF_NONE = re.compile(r"\bnone: .+?(?=[;.:,] |[;.]$)")
TITLE = """\
# Settings

All settings, in a YAML file or on the command line: `--train.epochs 3`. What neither sets has the default
below. `none` unsets a setting that may be none, also one that an earlier file has set; in YAML `null` and `~`
are the same. A file or folder of that name is written `./none`, a column of that name by its number.

Made by `python -m app.config.help > docs/settings.md`.
"""


def help_text(program: str, description: str, is_whole: bool, defaults: Config) -> str:
    """Return the help of a program that trains `defaults` without options: the usual settings, or all."""
    values = defaults.to_dict()
    lines = [f"usage: {program} [--config FILE] [--GROUP.KEY VALUE ...]\n", description.strip(), ""]
    lines += _lines_of_all(values) if is_whole else _lines_of_usual(values)
    lines += [
        f"  {'--config FILE':{OPTION_WIDTH}} YAML file of settings; may be repeated, later ones win",
        f"  {'--print_config':{OPTION_WIDTH}} print the settings of this command as YAML, and end",
    ]
    if is_whole:
        lines.append("")
    else:
        lines.append("\nMore: --help all has every setting, and docs/settings.md.\n")
    return with_names_here("\n".join(lines))


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
        option = f"--{name} {_values_of_usual(name)}"
        clause = END_OF_CLAUSE.split(explanation(name))[0]
        words = f"{clause[:1].lower()}{clause[1:]}{_usual_default(name, values)}"
        first_words, *more_words = textwrap.wrap(words, MAX_WIDTH - INDENT, break_on_hyphens=False)
        if len(option) > OPTION_WIDTH:
            lines.append(f"  {option}")
            option = ""
        lines.append(f"  {option:{OPTION_WIDTH}} {first_words}")
        lines += [" " * INDENT + part for part in more_words]
    return lines


def _usual_default(name: str, values: dict[str, dict]) -> str:
    """Return the default of a setting in brackets; of none what that means, as the explanation has it."""
    meaning = MEANING_OF_NONE.search(explanation(name))
    if yaml_text(value_of(name, values)) == "none" and meaning:
        return f" ({meaning[0]})"
    return default(name, values)


def _values_of_usual(name: str) -> str:
    """Return the choices of a setting in braces, as argparse shows them; else the last word of its name."""
    choices = literal_values(SETTINGS[name])
    if len(choices) < 2:
        return re.split("[._]", name)[-1].upper()
    return "{" + ",".join(map(str, choices)) + "}"


def explanation(name: str) -> str:
    """Return the text under the field of a setting as one line."""
    group, _dot, key = name.partition(".")
    return " ".join(GROUPS[group].__pydantic_fields__[key].description.split())


def value_of(name: str, values: dict[str, dict[str, Any]]) -> Any:
    group, _dot, key = name.partition(".")
    return values[group][key]


def default(name: str, values: dict[str, dict[str, Any]]) -> str:
    """Return the value of a setting in brackets, or nothing."""
    value = value_of(name, values)
    if value == {}:
        return ""
    return f" (default: {yaml_text(value)})"


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
