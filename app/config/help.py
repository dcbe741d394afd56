"""The help of the run scripts: the settings that people use on one screen, or all of them."""

import os
import re
import shutil
import sys
import textwrap

from .schema import GROUPS, SETTINGS, Config, describe

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

All settings, in a YAML file or on the command line: `--train.epochs 3`. Made by
`python -m app.config.help > docs/settings.md` from the fields in `app/config/`.
"""


def help_text(command: str, description: str, is_whole: bool, defaults: Config) -> str:
    """Return the help of the script `command`, which trains `defaults` without options: the usual settings,
    or all of them."""
    usage, values = f"usage: python {command} [--config FILE] [--GROUP.KEY VALUE ...]\n", defaults.to_dict()
    lines = [usage, description.strip(), ""]
    width = min(shutil.get_terminal_size((100, 24)).columns, 110) - 6
    for name in SETTINGS if is_whole else ():
        words = textwrap.fill(explanation(name), width, break_on_hyphens=False)
        lines += [
            f"  --{name}  {describe(SETTINGS[name])}{default(name, values)}",
            textwrap.indent(words, " " * 6),
        ]
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


def show(text: str) -> int:
    """Write a help text to standard output; return the exit status, 141 where it cannot be written: its
    reader has gone, or the disk is full."""
    try:
        print(text, end="", flush=True)  # noqa: T201
    except OSError:
        # Without this, Python would try to write again when it ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def explanation(name: str) -> str:
    """Return the text below the field of a setting."""
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
    show(markdown())
