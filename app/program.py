"""How this program, its commands and its files are named where it runs: in a clone of the repository, or
installed."""

import os
import re
import shlex
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# pyproject.toml puts copies of files of the repository here when it builds a wheel.
SHIPPED = PACKAGE / "shipped"
IN_A_CLONE = not SHIPPED.is_dir()
ROOT = PACKAGE.parent if IN_A_CLONE else SHIPPED

# The package is called "app" in a clone, and "chinese_text_classifier" where it is installed.
MODULE = __package__
PROGRAM = f"python -m {MODULE}"
# How a card calls the program, wherever it will be read
PREDICT = "python predict.py" if IN_A_CLONE else f"{PROGRAM} predict"
DISTRIBUTION = "chinese-text-classification"

FILE_NAME = re.compile(r"(?<![\w/.-])(?:data/sample\b|(?:configs|docs|requirements|scripts)/[\w./-]*\w)")
# The commands that scripts of a clone have where the program is installed
COMMANDS_OF_SCRIPTS = {
    "python predict.py": f"{PROGRAM} predict",
    "python run_single.py": f"{PROGRAM} train",
}


def is_in_root() -> bool:
    """Return whether the current folder is the root of the clone."""
    with suppress(OSError):
        return os.path.samefile(".", ROOT)
    return False


def file_here(name: str) -> str:
    """Return the path of a file of the repository from the current folder: docs/data.md, or where that is."""
    if IN_A_CLONE and is_in_root():
        return name
    return str(ROOT / name)


def with_names_here(text: str) -> str:
    """Return a help text in which commands and files have the names that they have here."""
    text = text.replace("-m app ", f"-m {MODULE} ")
    for command, command_installed in COMMANDS_OF_SCRIPTS.items():
        script = command.removeprefix("python ")
        command_here = f"python {file_here(script)}" if IN_A_CLONE else command_installed
        text = text.replace(command, command_here)
    return FILE_NAME.sub(_named_here, text)


def _named_here(match: re.Match) -> str:
    name = match[0]
    if not (ROOT / name).exists():
        return name
    return file_here(name)


def training_program(mode: str) -> list[str]:
    """Return what a launcher starts to train in a mode: a script, or a module with its arguments."""
    if IN_A_CLONE:
        return [file_here(f"run_{mode}.py")]
    return ["-m", MODULE, "train", "--mode", mode]


def install_command(packages: str = "", constrained: bool = True) -> str:
    """Return the command that installs optional packages, or without `packages` all that is needed: in a
    clone by a file of requirements, with the versions of constraints.txt unless not `constrained`; else by
    the extra of the same name."""
    if not IN_A_CLONE:
        extra = f"[{packages}]" if packages else ""
        return f"pip install {shlex.quote(DISTRIBUTION + extra)}"
    file = f"requirements/{packages}.txt" if packages else "requirements.txt"
    command = f"pip install -r {shlex.quote(file_here(file))}"
    if constrained:
        command += f" -c {shlex.quote(file_here('constraints.txt'))}"
    return command
