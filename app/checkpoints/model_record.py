"""The record of a finished model: the SHA-256 of its files and the settings on which its answers depend.

The record is in the last start of the history. Who opens the model checks it, so that a damaged or exchanged
file is found before it gives wrong answers.
"""

import logging
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from ..errors import InputError, excerpt
from ..ngrams.second_reader import NGRAM_WEIGHTS, NGRAMS
from ..report.logits_file import LOGITS
from ..runtime.disk import checked_value, checksum
from ..tasks.decision_file import DECISION
from .run_files import CONFIG, HISTORY, LOCK, MODEL, REPORT, STATES
from .run_history import add_to_last_start, read_settings, read_starts

logger = logging.getLogger(__name__)
# The answers of a model, and what is said of it, depend on these files
RECORDED_FILES = (
    MODEL,
    "model-*.safetensors",
    f"{MODEL}.index.json",
    "config.json",
    DECISION,
    NGRAMS,
    NGRAM_WEIGHTS,
    LOGITS,
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.*",
    "merges.txt",
    "*.model",
)
# The answer to a text depends on these settings; those that say where texts are in a file may be edited
RECORDED_SETTINGS = (
    "data.task",
    "data.max_length",
    "data.long",
    "data.max_windows",
    "data.remove_spaces",
)
REMEDY = "copy the folder again"
NO_FILE = "none"  # in place of the SHA-256 of a file that is not there


def add_finish(folder: Path) -> None:
    """Note in the history when the run has finished, and the record of its model."""
    add_to_last_start(folder, {"finished": datetime.now().astimezone().isoformat()})
    add_record(folder)


def add_record(folder: Path) -> None:
    """Note the SHA-256 of the files of the model in the history, and the settings on which answers depend.
    Nothing of the run changes them later."""
    digests = {path.name: checksum(path) for path in recorded_files(folder)}
    settings = read_settings(folder)
    recorded_settings = {name: settings[name] for name in RECORDED_SETTINGS if name in settings}
    add_to_last_start(folder, {"sha256": digests, "settings": recorded_settings})


def recorded_files(folder: Path) -> list[Path]:
    """Return the files in a folder on which the answers of its model depend."""
    paths: set[Path] = set()
    for pattern in RECORDED_FILES:
        paths.update(folder.glob(pattern))
    return sorted(path for path in paths if path.is_file())


def check_record(folder: Path, *names: str) -> None:
    """Raise InputError unless the files of the model of a run, or those of them with these `names`, are as
    the training wrote them.

    A warning says where a run has no record of them, or one of its weights only. A checkpoint of another
    program has none, and passes.
    """
    is_run = any((folder / name).exists() for name in (HISTORY, REPORT, LOCK, STATES))
    if not is_run:
        return
    starts = read_starts(folder)
    if not starts:
        logger.warning(
            "%s has the SHA-256 of the files of this run, and is not there or damaged: they are not checked.",
            folder / HISTORY,
        )
        return
    last_start = starts[-1]
    digests = _recorded_digests(folder, last_start)
    if digests is None:
        logger.warning("%s: the run has not finished, so its files are not checked.", folder)
        return
    checked_value(digests, dict[str, str | None], folder / HISTORY, "'sha256'", REMEDY)
    if not names:
        settings = last_start.get("settings", {})
        checked_value(settings, dict, folder / HISTORY, "'settings'", REMEDY)
        _check_settings(folder, settings)
    _check_files(folder, digests, names)


def _recorded_digests(folder: Path, start: dict[str, Any]) -> Any:
    """Return what a start recorded as the SHA-256 of each file, by name; None where there is no record."""
    if start.get("sha256") is not None:
        return start["sha256"]
    weights_digest = start.get("weights")
    if weights_digest is None:
        return None
    logger.warning("%s: an earlier version recorded the weights only; no other file is checked.", folder)
    digests = dict.fromkeys((path.name for path in recorded_files(folder)), None)
    digests[MODEL] = weights_digest
    return digests


def _check_files(folder: Path, digests: dict[str, str | None], names: Iterable[str]) -> None:
    """Raise InputError unless the files with these `names`, without names all, have the recorded `digests`. A
    digest that is None was changed on purpose: the file is not checked."""
    present = {path.name for path in recorded_files(folder)}
    for name in names or sorted(present.union(digests)):
        expected = digests.get(name, NO_FILE)
        if expected is None:
            continue
        digest = NO_FILE
        if name in present:
            digest = checksum(folder / name)
        if digest != expected:
            raise InputError(
                f"{folder / name}: the files of a run must be those that the training wrote (SHA-256 "
                f"{expected[:12]}), found {digest[:12]}: this one is damaged, replaced, removed or added; "
                f"{REMEDY} or, if it was changed on purpose, write null in place of its SHA-256 (in "
                f'"sha256" of the last start in {folder / HISTORY})'
            )


def _check_settings(folder: Path, recorded: dict[str, Any]) -> None:
    """Raise InputError unless the settings of a run that are `recorded`, by dotted name, are the same now."""
    if not recorded:
        return
    settings = read_settings(folder)
    for name, expected in recorded.items():
        value = settings.get(name)
        if value != expected:
            raise InputError(
                f"{folder / CONFIG}: {name} must be as in the training, {excerpt(expected)}, found "
                f"{excerpt(value)}; correct it or, if it was changed on purpose, remove it from "
                f'"settings" of the last start in {folder / HISTORY}'
            )
