"""Errors in the words of a Python program, which has parameters and no command line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import InputError, TrainingError

# Settings that are parameters of the estimators under the same name
OF_TRAIN = (
    "epochs",
    "max_steps",
    "batch_size",
    "learning_rate",
    "early_stopping",
    "class_weights",
    "precision",
    "device",
)
# The other parameters that are settings, by the name of the setting
OTHER_PARAMETERS = {
    "train.seed": "random_state",
    "model.name": "model",
    "data.max_length": "max_length",
    "data.dev_size": "dev_size",
    "output.dir": "output_dir",
    "data.cache_dir": "cache_dir",
}
# The name of a setting in a message that does not quote it
SETTING = re.compile(r"(?<![\w.'/])(?:data|deepspeed|model|output|train)\.[a-z_]+(?![\w.'])")
# An option of a command, which has two dashes
OPTION = re.compile(r"(?<![\w'-])--(?=[a-z])")
# The keys are remedies for files; the values are those for the arguments of `fit`
REMEDIES = {
    "add rows, set --data.split random, give separate files, or set --data.label_column": (
        "add rows, or leave dev_size out"
    ),
    "train it for longer with --resume auto and more --train.epochs (from its last training state)": (
        'train it for longer with settings={"output.resume": "auto"} and more epochs'
    ),
}


@contextmanager
def errors_for_python(own_file: str | None = None) -> Iterator[None]:
    """Give a context whose errors name parameters instead of options of the command line, and not `own_file`,
    a file that the program has never seen."""
    try:
        yield
    except InputError as error:
        raise InputError(message_for_python(str(error), own_file)) from error
    except TrainingError as error:
        raise TrainingError(message_for_python(str(error), own_file)) from error


def message_for_python(message: str, own_file: str | None = None) -> str:
    """Return the message of an error in the words of a program: a parameter by its name, another setting as
    in `settings`."""
    if own_file is not None:
        message = message.replace(f"{own_file}: ", "")
    for words, for_python in REMEDIES.items():
        message = message.replace(words, for_python)
    message = OPTION.sub("", message)
    message = SETTING.sub(name_for_python, message)
    begin, _space, rest = message.partition(" ")
    if begin == "settings:" and rest.partition(" ")[0] in (*OF_TRAIN, *OTHER_PARAMETERS.values()):
        return rest
    return message


def name_for_python(match: re.Match) -> str:
    """Return the name of the parameter for the setting that was found, else its dotted name."""
    setting = match[0]
    group, _dot, name = setting.partition(".")
    if group == "train" and name in OF_TRAIN:
        return name
    return OTHER_PARAMETERS.get(setting, setting)
