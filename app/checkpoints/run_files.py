"""Which files of a run folder are the run's own; all else there is the user's, and never removed."""

import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from ..config.schema import Config
from ..errors import InputError
from ..evaluation.logits_file import LOGITS
from ..outcomes import fitted_files
from .run_history import CARD_FILES, CONFIG, HISTORY, SKIPPED, cards_of_run, is_card_of_run, is_written_by_run
from .run_lock import LOCK

# The weights of the best checkpoint so far
MODEL = "model.safetensors"
# Written last: a folder that has it is a finished run
REPORT = "report.json"
TEXT, PREDICTIONS, PAGE = "report.txt", "predictions.csv", "report.html"
# In the order in which they are written and put aside
REPORT_FILES = (LOGITS, *fitted_files(), TEXT, PREDICTIONS, PAGE, REPORT)
STATES, CURVES, TRACKED = "state", "tensorboard", "trackers"
# Of a run with LoRA, as peft reads it: what was trained, in the best checkpoint so far
ADAPTER = "adapter/adapter_model.safetensors"
# The run that is being replaced, until its successor is finished
REPLACED = "replaced_run"
# A run that has no more than these has done nothing yet
STARTED = (HISTORY, CONFIG, SKIPPED)
FILES = (
    *(*STARTED, *REPORT_FILES, *CARD_FILES, "metrics.jsonl", "train.log"),
    # Trained for longer
    *(f"{stem}.step-*.{suffix}" for stem, suffix in (name.split(".") for name in REPORT_FILES)),
    *(MODEL, "model-*-of-*.safetensors", "model.safetensors.index.json"),
    *("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "chat_template.jinja"),
)
# Written under these names with a dot before, then renamed
ASIDE = ("model", "adapter", *FILES)
FOLDERS = {
    STATES: ("step-*", ".step-*", "damaged-step-*"),
    CURVES: ("events.out.tfevents.*",),
    TRACKED: ("*.json",),
    ADAPTER.partition("/")[0]: ("adapter_*", ".adapter_*"),
}


def only_started(folder: Path) -> bool:
    """Return whether a folder has nothing but the first files of a run, or one of them half written."""
    names = {path.name for path in folder.iterdir()} - {LOCK}
    has_history = HISTORY in names
    return {name.removeprefix(".") for name in names} <= set(STARTED if has_history else (HISTORY,))


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Return whether a file has one of these names."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def run_files(folder: Path) -> Iterator[Path]:
    """Yield the files and folders in a run folder that the run has written."""
    for path in folder.iterdir():
        aside = path.name.startswith(".")
        if path.name == CONFIG and not is_written_by_run(folder):
            continue
        if not aside and matches(path.name, CARD_FILES) and not is_card_of_run(path):
            continue
        if matches(path.name.removeprefix("."), ASIDE if aside else FILES):
            yield path
        elif path.name in FOLDERS:
            if path.is_symlink() or not path.is_dir():
                yield path
            else:
                yield from (inner for pattern in FOLDERS[path.name] for inner in path.glob(pattern))


def remove_run(folder: Path) -> None:
    """Remove a run from its folder; links are removed and not followed, files that are not the run's stay."""
    for path in [*run_files(folder)]:
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    remove_empty_folders(folder)


def remove_empty_folders(folder: Path) -> None:
    """Remove the folders of a run that have no more files in them."""
    for name in FOLDERS:
        # It is not there, or has files of the user
        with suppress(OSError):
            (folder / name).rmdir()


def set_run_aside(folder: Path) -> None:
    """Move the run in a folder into `replaced_run` there, until its successor is finished; an unfinished
    successor is removed instead. Raises InputError for a `replaced_run` that is the user's."""
    replaced, partly = folder / REPLACED, folder / f".{REPLACED}"
    if holds_replaced_run(folder) and not (folder / REPORT).exists():
        remove_run(folder)
        return
    drop_replaced_run(folder)
    if replaced.exists() or replaced.is_symlink():
        raise InputError(
            f"{replaced} is no run, and its name is needed; rename it, or choose another output.dir"
        )
    # The history last: without it the rest would be no run
    for path in sorted(run_files(folder), key=lambda path: path.name == HISTORY):
        target = partly / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
    remove_empty_folders(folder)
    partly.rename(replaced)


def holds_replaced_run(folder: Path) -> bool:
    """Return whether a run folder still keeps the run that it replaces."""
    return (folder / REPLACED / HISTORY).is_file() and not (folder / REPLACED).is_symlink()


def drop_replaced_run(folder: Path) -> None:
    """Remove the run that has been replaced."""
    if holds_replaced_run(folder):
        remove_run(folder / REPLACED)
        # It has files of the user
        with suppress(OSError):
            (folder / REPLACED).rmdir()


def finished_at(folder: Path) -> int | None:
    """Return when a run wrote its last report, in nanoseconds, or None; also of one that trains on since."""
    stem, suffix = REPORT.split(".")
    times = [path.stat().st_mtime_ns for path in folder.glob(f"{stem}*.{suffix}")]
    return max(times, default=None)


def keep_reports(folder: Path, step: int) -> None:
    """Put the report of a finished run aside, under names with its last step, before the run is changed."""
    for path in [*(folder / name for name in REPORT_FILES), *cards_of_run(folder)]:
        if path.exists():
            path.rename(path.with_name(f"{path.stem}.step-{step}{path.suffix}"))


def input_files(config: Config) -> Iterator[tuple[str, str]]:
    """Yield the files and folders that a run reads, each after the setting that names it."""
    inputs = {f"data.{name}": getattr(config.data, name) for name in ("train", "dev", "test", "relabel")}
    inputs |= {"model.name": config.model.name, "model.vocab_file": config.model.vocab_file}
    inputs |= {"deepspeed.config": config.deepspeed.config}
    for setting, value in inputs.items():
        yield from ((setting, path) for path in (value if isinstance(value, list) else [value]) if path)


def check_inputs(config: Config) -> None:
    """Raise InputError where a run would replace what it reads: data, pretrained model, a setting's file."""
    if config.output.dir is None or not config.output.overwrite:
        return
    folder = Path(config.output.dir)
    if not folder.is_dir():
        return
    replaced = {path.resolve() for path in [*run_files(folder), folder / REPLACED]}
    for setting, path in input_files(config):
        place = Path(path).resolve()
        if place == folder.resolve() or not replaced.isdisjoint((place, *place.parents)):
            raise InputError(
                f"output.overwrite true replaces the run in {folder}, and {setting} ({path}) is part of it; "
                "choose another output.dir, or copy what is read to another place"
            )
