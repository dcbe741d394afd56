"""What a run writes while it trains, how it resumes from there or trains for longer, and what must then be
the same, and on all ranks.

A training state has weights, optimizer state and progress: a folder for each, `state/step-00000120`, written
aside, synced and renamed, so it is complete or absent. Its manifest has the checksum of every file. Only
safetensors and JSON, so that reading one cannot run code, and the same files in every mode.
"""

import json
import logging
import platform
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from copy import deepcopy
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ..config.schema import RANDOM, Config
from ..data.cache import MANIFEST, content_key, file_digest, files_digest
from ..data.dataset import Dataset
from ..data.tokens import TokenStore
from ..errors import InputError, TrainingError, listed
from ..model.classifier import PackedModel
from ..model.pretrained import save_model
from ..model.recipe import started
from ..model.trained_weights import load_adapter, save_adapter
from ..modes.group import Group
from ..modes.mode import Mode, Tensors
from ..runtime.disk import checked_value, checksum, parse_json, sync, whole_file
from . import run_folder
from .decision import copy_decision, is_of_other_weights, remove_decision, write_decision
from .run_folder import STATES, best_weights, saved_states

logger = logging.getLogger(__name__)
FORMAT = 5
KEPT_STATES = 2  # training states of an unfinished run
PROGRESS = "progress.json"
# The run's best model as it was when the state was written
BEST = "best.safetensors"
STATE_FILES = {PROGRESS, "weights.safetensors", "optimizer.safetensors"}
DAMAGE = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError, SafetensorError)


@dataclass
class RunProgress:
    """Plain data, equal on every rank; a training state on disk keeps it."""

    step: int = 0  # global batches seen
    updates: int = 0  # steps that changed the weights; fewer only where fp16 overflowed
    micro_batch_size: int | None = None  # rows that fit into memory, once it has run out
    stop: bool = False  # end the loop after this step
    stopped_early: bool = False  # early stopping has ended the training
    best_value: float | None = None  # of the best evaluation on dev so far, after step
    best_step: int = 0
    evaluations_without_improvement: int = 0
    # Sum of losses over all ranks, and targets, since the last log line, and since the last evaluation
    logged: list[float] = field(default_factory=lambda: [0.0, 0])
    evaluated: list[float] = field(default_factory=lambda: [0.0, 0])
    scaler: dict = field(default_factory=dict)  # state of the loss scaler
    start_metrics: dict = field(default_factory=dict)  # before the first step

    def is_trained(self, total_steps: int) -> bool:
        return self.stopped_early or self.step >= total_steps

    def add(self, loss_sum: float, targets: int) -> None:
        for window in (self.logged, self.evaluated):
            window[0] += loss_sum
            window[1] += targets

    def mean_loss(self, window: list[float]) -> float:
        """Return the mean loss of the targets of a window, not a mean of means, and empty the window."""
        loss_sum, targets = window
        window[:] = [0.0, 0]
        return loss_sum / max(1, targets)


@dataclass(frozen=True)
class TrainingState:
    """A training state as it was read from `folder`: tensors by parameter name. `job` is what the run trains
    on, see `job_signature`."""

    progress: RunProgress
    job: dict
    weights: Tensors
    optimizer: Tensors
    folder: Path


class Saver:
    """Copies weights and writes them in the background, one write at a time; the error of a write is raised
    by the next call. Each rank has one, and the one with a `folder` writes. `job` is stored in each training
    state; `record` is called first in each write."""

    def __init__(
        self, mode: Mode, folder: Path | None, model: PackedModel, tokenizer, job: dict, record: Callable
    ) -> None:
        self.mode, self.folder, self.tokenizer, self.job = mode, folder, tokenizer, job
        # The configuration of this model is saved; the mode has wrapped it
        self.model = model
        # Training states leave these out: a run that resumes has them already
        self.frozen = {name for name, value in model.model.named_parameters() if not value.requires_grad}
        self.record = record
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="writer")
        self.running: Future | None = None

    def save(
        self, progress: RunProgress, is_best: bool, with_state: bool, fit_decision: Callable[[], dict]
    ) -> None:
        """Copy, and write in the background, the model where `is_best`, with its decision, which
        `fit_decision` returns; and a training state where `with_state`. Every rank calls it."""
        mode = self.mode
        folder = self.folder
        adapter = self.model.adapter
        weights = mode.weights() if is_best or with_state else {}
        optimizer = mode.optimizer_state() if with_state else {}
        if folder is None:
            return
        progress = deepcopy(progress)
        progress.scaler = mode.scaler.state_dict()

        def write() -> None:
            self.record()
            best_folder = best_weights(folder, adapter is not None).parent
            if is_best:
                decision = fit_decision()
                if adapter:
                    remove_decision(best_folder)
                    save_adapter(folder, adapter, weights)
                else:
                    remove_old = partial(remove_decision, best_folder)
                    save_model(folder, self.model.model, weights, self.tokenizer, remove_old)
                write_decision(best_folder, decision)
            if with_state:
                best = best_weights(folder, adapter is not None) if progress.best_step else None
                trained = {name: value for name, value in weights.items() if name not in self.frozen}
                save_training_state(folder, progress, self.job, trained, optimizer, best)

        self.wait()
        self.running = self.pool.submit(write)

    def check(self) -> None:
        if self.running and self.running.done():
            self.wait()

    def wait(self) -> None:
        running, self.running = self.running, None
        if running:
            running.result()


def save_training_state(
    folder: Path, progress: RunProgress, job: dict, weights: Tensors, optimizer: Tensors, best: Path | None
) -> None:
    """Write a training state into the run folder, with a copy of the best weights so far, which are in the
    file `best`, and of their decision beside it; then remove all but the newest two, on rank 0. Raises
    OSError or SafetensorError where it cannot be written; earlier states are then untouched, and nothing of
    the new one is left."""
    final = folder / STATES / f"step-{progress.step:08d}"
    aside = final.with_name(f".{final.name}")
    # A process that was killed has left these
    for unfinished in (folder / STATES).glob(".step-*"):
        shutil.rmtree(unfinished, ignore_errors=True)
    try:
        (folder / STATES).mkdir(exist_ok=True)
        aside.mkdir()
        for name, tensors in (("weights", weights), ("optimizer", optimizer)):
            contiguous = {key: value.contiguous() for key, value in tensors.items()}
            save_file(contiguous, aside / f"{name}.safetensors")
        (aside / PROGRESS).write_text(json.dumps(asdict(progress) | {"job": job}, indent=2))
        if best:
            # No link: damage to one state must not reach another
            shutil.copyfile(best, aside / BEST)
            copy_decision(best.parent, aside, progress.best_step)
        checksums = {path.name: checksum(path) for path in sorted(aside.iterdir())}
        (aside / MANIFEST).write_text(json.dumps({"format": FORMAT, "sha256": checksums}, indent=2))
        for path in [*aside.iterdir(), aside]:
            sync(path)
        shutil.rmtree(final, ignore_errors=True)
        aside.rename(final)
        sync(final.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    drop_states(folder, KEPT_STATES, final)


def load_training_state(folder: Path) -> TrainingState | None:
    """Return the newest undamaged training state of a run folder, or None; warns of damaged ones, which are
    renamed, and of unreadable ones. Raises TrainingError where only unreadable ones are left, and for a state
    of another version."""
    states, unreadable = saved_states(folder), []
    for state in states:
        try:
            return _read_state(state)
        except (*DAMAGE, OSError) as error:
            # safetensors gives the system's error only as text
            if isinstance(error, DAMAGE) and "(os error " not in str(error):
                aside = state.with_name(f"damaged-{state.name}")
                logger.warning("%s is damaged and is skipped: %s; it is now %s", state, error, aside.name)
                # A damaged state must not take the place of a whole one
                shutil.rmtree(aside, ignore_errors=True)
                with suppress(OSError):
                    state.rename(aside)
            else:
                unreadable.append(f"{state}: {error}")
                logger.warning("%s cannot be read now and is skipped: %s", state, error)
    if unreadable:
        raise TrainingError(
            f"a training state must be readable to resume from it, and none is: {unreadable[0]}; it is not "
            "removed; start again when the disk can be read, or start a new run in another output.dir"
        )
    if states:
        logger.warning("%s has no undamaged training state", folder)
    return None


def _read_state(state: Path) -> TrainingState:
    path = state / MANIFEST
    manifest = parse_json(path.read_text(), path, {"format": int, "sha256": Any}, "")
    if manifest["format"] != FORMAT:
        # It is whole, and not ours to put aside.
        raise TrainingError(
            f"{state}: a training state of format {FORMAT} is needed, found {manifest['format']}, of another "
            "version of this program; finish the run with that version, or choose another output.dir"
        )
    checked_value(manifest["sha256"], dict[str, str], path, "'sha256'", "")
    if missing := STATE_FILES - manifest["sha256"].keys():
        raise ValueError(f"{MANIFEST} lacks the checksum of {listed(sorted(missing))}")
    for name, expected in manifest["sha256"].items():
        if checksum(state / name) != expected:
            raise ValueError(f"{name} has another checksum than when it was written")
    values = parse_json((state / PROGRESS).read_text(), state / PROGRESS, {"job": dict}, "")
    job = values.pop("job")
    weights, optimizer = (load_file(state / f"{name}.safetensors") for name in ("weights", "optimizer"))
    return TrainingState(RunProgress(**values), job, weights, optimizer, state)


def drop_states(folder: Path, keep: int, written: Path | None = None) -> None:
    """Remove all training states but `written` and the newest `keep`; with 0 their folder too. Damaged and
    unfinished ones stay until the run is finished, when nothing is `written`."""
    others = [state for state in saved_states(folder) if state != written]
    states, unusable = folder / STATES, []
    if not written:
        unusable = [*states.glob("damaged-step-*"), *states.glob(".step-*")]
    for old in [*others[keep - bool(written) :], *unusable]:
        shutil.rmtree(old, ignore_errors=True)
    if not keep:
        # It has something else
        with suppress(OSError):
            states.rmdir()


def with_saved_choices(config: Config) -> Config:
    """Return the configuration with the head and the precision of the run that it resumes, where they are
    auto: chosen again, they could be others."""
    if "auto" not in (config.train.precision, config.model.head):
        return config
    folder = run_folder.run_to_resume(config.output)
    saved = run_folder.read_settings(folder) if folder else {}
    head, precision = saved.get("model.head"), saved.get("train.precision")
    if config.model.head == "auto" and head in ("linear", "random"):
        is_few = head == "linear" and saved.get("model.freeze")
        config = started(config, "few labels" if is_few else head)
    if config.train.precision == "auto" and precision in ("fp32", "bf16"):
        config = replace(config, train=replace(config.train, precision=precision))
    return config


def find_state(folder: Path, job: dict) -> TrainingState | None:
    """Return the newest training state of the run in `folder`, or None: the run starts from the beginning.
    Rank 0 calls it. Raises InputError for a state of another job, for a finished run that gets no more steps,
    and for fewer steps than the run has done."""
    state = load_training_state(folder)
    if state is None:
        if run_folder.is_finished(folder):
            raise run_folder.finished_error(folder)
        logger.info("%s has no training state to resume from; the run starts from the beginning.", folder)
        return None
    before = state.job
    if before.get("model.name", RANDOM) is None:
        # Earlier versions wrote null for random weights
        before = before | {"model.name": RANDOM}
    free = FREE_TO_RESUME
    if model_name_of(before) == model_name_of(job):
        # A run resumes with its own weights, whatever those that it began with are now
        free = FREE_TO_RESUME | {"model.name"}
    changed = changes(before, job, free)
    if changed:
        raise InputError(
            "a run can be resumed only with the settings and data it was started with: "
            f"{listed_changes(changed)}; change them back, or choose another output.dir"
        )
    done, steps = state.progress.step, job["steps"]
    if state.job["steps"] == steps and run_folder.is_finished(folder):
        raise run_folder.finished_error(folder)
    if state.job["steps"] != steps and steps <= done:
        raise InputError(
            f"train.epochs and train.max_steps must give more steps than the {done} that the run has done, "
            f"found {steps}; raise them, or choose another output.dir"
        )
    return state


def model_name_of(job: dict) -> str | None:
    """Return `model.name` of a job as it was given."""
    model = job.get("model.name")
    return model["path"] if isinstance(model, dict) else model


def load_state(mode: Mode, state: TrainingState | None, folder: Path | None, job: dict) -> RunProgress:
    """Load a training state into the mode, where there is one, and return the progress of the run. Every rank
    calls it; only rank 0 has a state and a folder, others pass None."""
    found = mode.group.broadcast((state.progress, state.job["steps"]) if state else None)
    if found is None:
        return RunProgress()
    # A copy, as training changes it
    progress, steps = deepcopy(found)
    has_adapter = mode.unwrapped_module().adapter is not None
    # Only rank 0 has a state and a folder
    mode.group.on_rank_0(
        lambda: restore_best_model(state.folder, best_weights(folder, has_adapter), progress.best_step)
    )
    mode.load_optimizer_state(state.optimizer if state else {})
    mode.load_weights(state.weights if state else {})
    if progress.scaler:
        mode.scaler.load_state_dict(progress.scaler)
    logger.info("Resuming from step %d.", progress.step)
    if (total := job["steps"]) != steps:
        logger.info(
            f"Training to step {total} instead of {steps}; from here on the learning rate is that of a run "
            f"of {total} steps."
        )
        if progress.stopped_early:
            progress.stopped_early, progress.evaluations_without_improvement = False, 0
    return progress


def restore_best_model(state: Path, model: Path, step: int) -> None:
    """Copy the best weights of a training state, those of `step`, to the file `model`, and their decision
    beside it, unless it is there."""
    if not (state / BEST).exists():
        return
    has_other_decision = is_of_other_weights(model.parent, state, step)
    if has_other_decision:
        remove_decision(model.parent)
    with (state / BEST).open("rb") as file, whole_file(model) as copy:
        shutil.copyfileobj(file, copy, 1 << 20)
    if has_other_decision:
        copy_decision(state, model.parent, step)


def load_best(mode: Mode, folder: Path | None) -> None:
    """Load the best weights so far, which rank 0 reads from `folder`, into the model; every rank calls it."""
    weights, has_adapter = {}, mode.unwrapped_module().adapter is not None

    def read() -> None:
        path = best_weights(folder, has_adapter)
        weights.update(load_adapter(path) if has_adapter else load_file(path))

    mode.group.on_rank_0(read)
    mode.load_weights(weights)


# Settings that decide how long a run trains
LENGTH = ("train.epochs", "train.max_steps")
# Settings of a machine, and those of files whose content counts
OF_MACHINE = ("train.device", "train.threads", "train.timeout", "data.format", "model.vocab_file")
# These may change when a run resumes: they say how, or how long, the same job is done.
FREE_TO_RESUME = frozenset(("steps", "output", "deepspeed", "data.on_bad_row", "data.cache_dir", *OF_MACHINE))
FREE_TO_RESUME |= {"train.accumulation_steps", "train.micro_batch_tokens", "train.gradient_checkpointing"}
FREE_TO_RESUME |= {"train.eval_every", "train.save_every", "train.early_stopping", "train.log_every", *LENGTH}
# Ranks may differ in these: only rank 0 looks at some.
FREE_ON_RANKS = frozenset((*OF_MACHINE, "output.dir", "output.name", "output.resume", "output.trackers"))
# It follows from the data, the settings and the version of transformers
TOKENIZER = "the tokenizer (model.vocab_file, the files of model.name, the version of transformers)"
FROZEN = "the weights that are not trained (model.name, train.seed)"
MAX_LISTED = 5


def job_signature(
    config: Config, dataset: Dataset, tokenizer, model: PackedModel, best_metric: str
) -> dict[str, Any]:
    """Return all settings by dotted name, derived ones too, and path and content of each file. It can be
    written as JSON. The mode and the number of processes are not part of it."""
    job = run_folder.flat_settings(config.to_dict())
    job |= {"train.best_metric": best_metric, "data.labels": dataset.label_names} | data_of(dataset)
    job[TOKENIZER] = content_key(tokenizer.backend_tokenizer.to_str(), tokenizer.truncation_side)
    name = config.model.name
    if not config.model.has_random_weights:
        content = f"{name} {getattr(model.model.config, '_commit_hash', None)}"
        if Path(name).is_dir():
            content = files_digest(Path(name), "*.safetensors", "*.bin")
        job["model.name"] = {"path": name, "content": content}
    if frozen := [value.detach() for value in model.parameters() if not value.requires_grad]:
        # Training states have only what is trained, so a run resumes with these weights only
        job[FROZEN] = content_key(*(value.numpy().tobytes() for value in frozen))
    return job


def data_of(dataset: Dataset) -> dict[str, dict]:
    """Return path and content of the files of a dataset, by the settings that name them."""
    files: dict[str, dict] = {}
    for name, table in dataset.files.items():
        files[f"data.{name}"] = {"path": table.source, "rows": table.num_rows, "content": table.content}
    if fixes := dataset.relabelled:
        files["data.relabel"] = {"path": fixes["source"], "content": fixes["content"]}
    return files


def changes(
    before: dict, now: dict, free: frozenset[str] = FREE_TO_RESUME, words: str = "was {} and is {}"
) -> list[str]:
    """Return the differences between two jobs, a part of a sentence for each name that is not `free`, nor its
    group. A file differs where its content does, whatever its path."""

    def content(value: Any) -> Any:
        return value["content"] if isinstance(value, dict) and "content" in value else value

    def shown(value: Any) -> str:
        if not (isinstance(value, dict) and "content" in value):
            return str(value)
        rows = f"{value['rows']:,} rows, " if isinstance(value.get("rows"), int) else ""
        return f"{value.get('path')} ({rows}content {str(value['content']).rpartition(' ')[2][:8]})"

    pairs = {name: (before.get(name), now.get(name)) for name in {**before, **now}}
    return [
        f"{name} {words.format(*map(shown, pair))}"
        for name, pair in pairs.items()
        if free.isdisjoint((name, name.partition(".")[0])) and content(pair[0]) != content(pair[1])
    ]


def listed_changes(changed: list[str]) -> str:
    more = f", and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
    return ", ".join(changed[:MAX_LISTED]) + more


def check_asked(group: Group, config: Config) -> None:
    """Raise InputError, on every rank alike, unless all ranks were asked for the same `train.precision`.
    Every rank calls it with the settings that it was given. A mode takes the precision of rank 0 for all
    ranks, so `check_ranks`, which comes later, cannot see another one."""
    if group.world_size == 1:
        return
    asked = {"train.precision": config.train.precision}
    compare_ranks(
        group,
        asked,
        rule="all ranks must be asked for the same precision, but they are not",
        remedy="start all ranks with the same command",
    )


def compare_ranks(group: Group, job: dict, rule: str, remedy: str) -> None:
    """Raise InputError, on every rank alike, where the `job` of a rank is not that of rank 0, apart from what
    may differ. Every rank calls it with its own."""
    ranks = group.gather_values({"host": platform.node(), "job": job})
    for rank, other in enumerate(ranks):
        words = f"is {{}} on rank 0 ({ranks[0]['host']}) and {{}} on rank {rank} ({other['host']})"
        changed = changes(ranks[0]["job"], other["job"], FREE_ON_RANKS, words)
        if changed:
            raise InputError(f"{rule}: {listed_changes(changed)}; {remedy}")


def check_ranks(
    group: Group, mode: str, config: Config, dataset: Dataset, stores: dict[str, TokenStore], job: dict
) -> None:
    """Raise InputError, on every rank alike, unless all ranks do the same job with the same code; every rank
    calls it with its own. Else ranks with an old copy of the data would train to a wrong report, or hang."""
    if group.world_size == 1:
        return
    own = job | run_folder.code_version() | {"mode": mode}
    # A run reads rows, splits and tokens from these folders of the cache
    folders = [dataset.folder, *(folder for table in dataset.tables for folder in table.folders)]
    folders += dict.fromkeys(store.folder for store in stores.values())
    content = content_key(*(files_digest(folder, "*.arrow", "*.bin", "*.npy") for folder in folders))
    own["data.cache_dir"] = {"path": config.data.cache_dir, "content": content}
    if path := config.deepspeed.config:
        own["deepspeed.config"] = {"path": path, "content": content_key(file_digest(Path(path)))}
    compare_ranks(
        group,
        own,
        rule="all ranks must have the same data, settings and code, but they do not",
        remedy="copy the files of rank 0 to the other machines, install the same versions there, and start "
        "all ranks with the same command",
    )
