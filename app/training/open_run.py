"""All that a run works with is opened, and closed at its end."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial

import torch

from ..checkpoints.job import job_signature
from ..checkpoints.ranks import check_ranks
from ..checkpoints.resume import load_state
from ..checkpoints.run_folder import check_run_folder
from ..checkpoints.run_history import describe_start
from ..checkpoints.run_start import RunStart
from ..checkpoints.saver import Saver
from ..data.report import render
from ..errors import counted
from ..modes.mode import Mode
from ..runtime.cores import busy_cores, load_message
from ..runtime.devices import has_memory
from .build import Components, build
from .head_start import start_head
from .log import RunLog
from .step import planned_steps
from .token_limit import token_limit
from .trackers import check_trackers
from .train import Run

logger = logging.getLogger(__name__)


@contextmanager
def open_run(name: str, mode: Mode, with_report: bool = True, ends_process: bool = False) -> Iterator[Run]:
    """Give a run of the mode `name`, which has been entered as `mode`; every rank calls it.

    The data and the model are built, the ranks agree that they do the same job, and the run folder is opened
    and locked. A run that resumes gets its state. `with_report` and `ends_process` are those of `Run`. Raises
    InputError, on every rank alike, for settings, data or a folder that cannot be used.
    """
    group = mode.group
    # These settings are checked before the long work
    group.on_rank_0(partial(check_run_folder, mode.config.output))
    group.on_rank_0(partial(check_trackers, mode.config.output))
    # All ranks are here before rank 0 looks at the cores, and wait: none of them keeps a core busy
    group.gather_values(None)
    group.on_rank_0(partial(log_load, mode))

    components = build(mode.config, mode)
    # From here on this is the only configuration: it also has what follows from the model and the data
    config = components.config
    dataset = components.dataset
    tokenizer = components.tokenizer
    model = components.model
    task = components.task
    total_steps = planned_steps(components.plan, config.train)
    job = job_signature(config, dataset, tokenizer, model, task.best_metric)
    check_ranks(group, name, config, dataset, components.stores, job)
    job["steps"] = total_steps
    job["the optimizer state"] = mode.state_form
    description = describe_start(name, group.world_size, str(mode.device))
    start = RunStart(config, dataset, job, description)

    def open_folder() -> None:
        is_task_chosen = not config.given.isdisjoint(("data.task", "data.labels"))
        logger.info(render(dataset, components.stores, is_task_chosen))
        start.open()
        logger.info(describe_run(mode, components, start))

    # The stack closes at the end all that is opened here, the last first
    with ExitStack() as closing:
        closing.callback(start.close)
        group.on_rank_0(open_folder)
        is_resumed = group.broadcast(start.state is not None)
        if not is_resumed:
            start_head(mode, components, with_bar=ends_process)
        mode.setup(model, config)
        progress = load_state(mode, start.state, start.folder, job)
        log = RunLog(
            folder=start.folder,
            config=config,
            metrics=(*task.log_metrics, task.best_metric),
            total_steps=total_steps,
            first_step=progress.step,
            limit=token_limit(mode, components) if start.folder else None,
            with_bar=ends_process,
        )
        closing.enter_context(log)
        saver = Saver(mode, start.folder, model, tokenizer, job, start.record)
        closing.callback(saver.close)
        yield Run(
            mode=mode,
            components=components,
            start=start,
            progress=progress,
            log=log,
            saver=saver,
            with_report=with_report,
            ends_process=ends_process,
        )


def log_load(mode: Mode) -> None:
    """Say where other programs need the cores; rank 0 calls it while the others wait for it."""
    threads = torch.get_num_threads()
    if has_memory(mode.device) or threads == 1:
        return
    message = load_message(busy_cores(), threads, mode.group.local_world_size)
    if message:
        logger.info(message)


def describe_run(mode: Mode, components: Components, start: RunStart) -> str:
    """Return, for the log, what is trained, how, and in which folder."""
    train = components.config.train
    model = components.model
    if components.loaders["train"].layout.packed:
        batches = "packed"
    else:
        reason = model.why_padded or "this mode splits them"
        batches = f"padded ({reason})"
    processes = counted(mode.group.world_size, "process", "processes")
    steps = counted(start.job["steps"], "step")
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    return (
        f"Model\n  {model.model.config.model_type}, {num_parameters / 1e6:.1f} million parameters, "
        f"{train.precision}, batches {batches}\n"
        f"  {processes}, {mode.device}; {steps} of "
        f"{train.batch_size} rows\n  run folder {start.folder}"
    )
