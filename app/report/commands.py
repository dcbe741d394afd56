"""Commands that are printed for people: they can be copied into a shell where this program was started."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ..config.schema import DataConfig
from ..data.files import files_of
from ..data.read import ReadOptions
from ..errors import InputError
from ..program import IN_A_CLONE, PROGRAM, ROOT, file_here, is_in_root

PLAIN_WORD = re.compile(r"[\w@%+=:,./-]+")  # these characters, also Chinese ones, mean nothing to a shell
EXAMPLE_TEXT = "今天真开心"


def quoted(word: str | Path) -> str:
    """Return a word of a command as a shell reads it, also with control characters (bash and zsh)."""
    text = str(word)
    if PLAIN_WORD.fullmatch(text):
        return text
    if text.isprintable():
        return shlex.quote(text)
    # Bytes of another encoding stand in a path as half characters; latin-1 has a character for each byte
    characters = text.encode("utf-8", "surrogateescape").decode("latin-1")
    escaped = characters.encode("unicode_escape").decode().replace("'", r"\'")
    return f"$'{escaped}'"


def path_word(path: str | Path) -> str:
    """Return a path as a word; one that begins with a dash would be taken for an option."""
    text = str(path)
    if text.startswith("-"):
        text = f"./{text}"
    return quoted(text)


def verb_command(verb: str, *words: str) -> str:
    """Return the command of a verb with further words, which are quoted already."""
    program = f"{PROGRAM} {verb}"
    if IN_A_CLONE and verb == "predict":
        program = script_command("predict.py")
    elif IN_A_CLONE and not is_in_root():
        program = f"PYTHONPATH={quoted(ROOT)} {program}"
    return " ".join([program, *words])


def training_command(*words: str) -> str:
    """Return the command that trains in one process, with further words, which are quoted already."""
    program = f"{PROGRAM} train"
    if IN_A_CLONE:
        program = script_command("run_single.py")
    return " ".join([program, *words])


def script_command(name: str) -> str:
    """Return how a script of the repository is started from the current folder."""
    return f"python {quoted(file_here(name))}"


def predict_command(folder: Path, reading: DataConfig | ReadOptions, train_file: str) -> str:
    """Return a command that classifies with the model in `folder`: a text, or where a row of its training has
    more than one text, the rows of `train_file`. `reading` has the columns of the training."""
    words = [path_word(folder)]
    is_one_text = reading.text_pair_column is None and not isinstance(reading.text_column, list)
    if is_one_text:
        words.append(EXAMPLE_TEXT)
    else:
        words += ["--input", path_word(train_file), "--output", path_word(f"{folder.name}-labels.csv")]
    return verb_command("predict", *words)


def first_train_file(names: Sequence[str]) -> str:
    """Return a file of the training by the `names` of its files, FILE where it is not there any more."""
    with suppress(InputError):
        return files_of(names, DataConfig.cache_dir)[0]
    return "FILE"


def command_after_pretraining(folder: Path) -> str:
    """Return the command that trains a classifier on rows.tsv from the model in `folder`."""
    return training_command("--model.name", path_word(folder), "--data.train", "rows.tsv")
