"""Which model a verb uses: the folder that is its first word, or --checkpoint, else the run that finished
last; and which words can be texts."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError, nearest, say, shorten

MODEL_HELP = "a run, an exported folder or a transformers checkpoint (default: the newest finished run)"
SAME_AS_RUN = "the same as RUN in the first place (default: the newest finished run)"
# The remedy where the name of a file stands in the place of a text
FOR_A_FILE = "to classify its rows, write --input {file}"
MAX_SHOWN = 200  # characters of a word in a message


@dataclass(frozen=True)
class Words:
    """The words of a command line that are neither options nor their values: those `before` --, of which the
    first may be a model, and those `after` it, which are taken as they are."""

    before: list[str]
    after: list[str]

    @property
    def all(self) -> list[str]:
        return [*self.before, *self.after]


def folder_name(text: str) -> Path:
    """Return the folder that an option names. A variable of a shell that is not set names none."""
    if not text.strip():
        raise argparse.ArgumentTypeError("must be a folder, found nothing")
    return Path(text)


class AddRun(argparse.Action):
    """Adds a folder to those that an option has named before; none unsets them."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, option: Any = None
    ) -> None:
        folders = None
        if values is not None:
            folders = [*(getattr(namespace, self.dest) or []), values]
        setattr(namespace, self.dest, folders)


def add_checkpoint(
    add: Callable, help: str = SAME_AS_RUN, action: str | type[argparse.Action] = "store"
) -> None:
    """Add the option that names the model of a verb; with the action `AddRun`, several of them."""
    add("--checkpoint", type=folder_name, metavar="RUN", help=help, action=action)


def add_model(add: Callable, help: str = MODEL_HELP) -> None:
    """Add the model of a verb that takes no other word."""
    add("model", nargs="?", type=folder_name, metavar="RUN", help=help)
    add_checkpoint(add)


def named_model(model: Path | None, checkpoint: Path | None) -> Path:
    """Return the folder that is named as a word or by --checkpoint, else the run that finished last, and say
    that. Raises InputError where both name different folders, and where there is no finished run."""
    check_one_model(model, checkpoint)
    folder = model or checkpoint
    if folder is None:
        from ..prediction.trained_model import choose_run

        folder = choose_run()
        say(f"model {folder}")
    if not folder.is_dir():
        # It says so before a file is read as by a model that is not there
        from ..prediction.load_checkpoint import check_folder

        check_folder(folder)
    return folder


def check_one_model(model: Path | None, checkpoint: Path | None) -> None:
    """Raise InputError where the word and the option name different folders."""
    if model is None or checkpoint is None:
        return
    if os.path.realpath(model) != os.path.realpath(checkpoint):
        raise InputError(f"two models are named, {model} and --checkpoint {checkpoint}; leave one out")


def take_model(words: Words) -> tuple[Path | None, Words]:
    """Return the model that the first word is, or None, and the other words."""
    if not words.before or not is_model(words.before[0]):
        return None, words
    return take_first(words)


def take_first(words: Words) -> tuple[Path, Words]:
    """Return the first word as a folder, and the other words."""
    return Path(words.before[0]), Words(words.before[1:], words.after)


def is_model(word: str) -> bool:
    """Return whether a word is the folder of a model, or of a run that has none yet."""
    if not os.path.isdir(word):
        return False
    from ..prediction.trained_model import holds_model

    return holds_model(Path(word))


def check_texts(words: Words, for_a_file: str = FOR_A_FILE) -> None:
    """Raise InputError for a text that is the name of a file or folder, or looks like one: it is
    there by mistake. Texts after -- are taken as they are, with a message. `for_a_file` says what to
    write for the rows of a file."""
    for word in words.before:
        problem = problem_of_text(word, for_a_file)
        if problem is not None:
            stop = "" if problem.endswith("?") else "."
            raise InputError(f"{problem}{stop} A text that looks like a name goes after --")
    for word in words.after:
        if os.path.lexists(word):
            name = shorten(word, MAX_SHOWN)
            say(f"{name} is taken as a text; it is also the name of a file or folder")


def problem_of_text(word: str, for_a_file: str) -> str | None:
    """Return what a word is that is no text, with the remedy, or None."""
    name = shorten(word, MAX_SHOWN)
    if is_model(word):
        return f"{name} is the folder of a model; name one model, in front of the texts"
    if os.path.isdir(word):
        return f"{name} is a folder without a model{_model_inside(word)}; name the folder of a run"
    if os.path.lexists(word):
        from ..report.commands import path_word

        return f"there is a file {name}; {for_a_file.format(file=path_word(word))}"
    if looks_like_path(word):
        return f"there is no file or folder {name}{nearest(word, _names_beside(word))}"
    return None


def looks_like_path(word: str) -> bool:
    """Return whether a word names something in a folder that exists."""
    parent = os.path.dirname(word.rstrip("/"))
    return parent != "" and os.path.isdir(parent)


def _model_inside(word: str) -> str:
    for path in _names_in(word):
        if is_model(path):
            return f" (there is one in {shorten(path, MAX_SHOWN)})"
    return ""


def _names_beside(word: str) -> list[str]:
    return _names_in(os.path.dirname(word.rstrip("/")))


def _names_in(folder: str) -> list[str]:
    """Return the paths of what is in a folder; none where it may not be read."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [os.path.join(folder, name) for name in names]
