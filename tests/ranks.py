"""Runs of several ranks for the tests of resuming and of chaos: started fast, and disturbed on purpose.

The ranks are forked by a server process that has imported everything, so a run takes a second or two where a
launcher's takes ten. All else is what `run_ddp.py` and the others do.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import torch.distributed as dist
from safetensors.torch import load_file, save_file

from app.runtime.devices import trim_heap

ROOT = Path(__file__).resolve().parent.parent
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.ranks_preload"])
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@dataclass(frozen=True)
class Disturbance:
    """What happens to `rank` in the optimizer step behind `step` others of the run, before the weights move;
    -1: at the start."""

    step: int
    # The name of a signal that the rank sends itself, or of a function in this module
    what: str
    rank: int = 0


def settings(data: list[str], folder: Path, **changes) -> list[str]:
    """Return the arguments of a small job; `changes` by setting, `train__epochs` for train.epochs."""
    values = {"output.dir": folder, "output.resume": "auto", "train.device": "cpu", "train.threads": 1}
    values |= {"train.precision": "fp32", "train.batch_size": 16, "train.learning_rate": 5e-3}
    values |= {"train.log_every": 4, "data.max_length": 24}
    values |= {f"model.config.{key}": value for key, value in SMALL.items()} | {"output.trackers": "[]"}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return [*data, *(f"--{key}={value}" for key, value in values.items())]


@cache
def start_server() -> None:
    """Start the server; before Python 3.13 it finds its modules by the environment only."""
    from multiprocessing.forkserver import ensure_running

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)
    ensure_running()
    os.environ.pop("PYTHONPATH")
    if before is not None:
        os.environ["PYTHONPATH"] = before


class Ranks:
    """Forked processes that call `target(rank, world_size, *arguments)`, each with its number: `exit_codes`
    after `join`; a negative one is the signal that ended the rank.

    What they print goes into `log`.
    """

    def __init__(self, target: Callable, arguments: tuple, world_size: int, log: Path | None):
        start_server()
        self.log = log
        self.ranks = [
            context.Process(target=target, args=(rank, world_size, *arguments)) for rank in range(world_size)
        ]
        for process in self.ranks:
            process.start()

    def join(self, seconds: float = 120, grace: float = 10) -> list[int | None]:
        """Wait for all ranks, as a launcher does: when one fails the others get SIGTERM, and are killed after
        `grace` seconds."""
        deadline = time.monotonic() + seconds
        failed_at = None
        while any(process.exitcode is None for process in self.ranks):
            time.sleep(0.02)
            assert time.monotonic() < deadline, f"the run did not end: {self.exit_codes}\n{self.said()}"
            if failed_at is None and any(self.exit_codes):
                failed_at = time.monotonic()
                self.send(signal.SIGTERM)
            if failed_at and time.monotonic() > failed_at + grace:
                self.send(signal.SIGKILL)
        return self.exit_codes

    @property
    def exit_codes(self) -> list[int | None]:
        return [process.exitcode for process in self.ranks]

    def send(self, number: int) -> None:
        for process in self.ranks:
            # The server that forked it buries a rank a moment before we hear of its end.
            with suppress(ProcessLookupError):
                if process.exitcode is None:
                    os.kill(process.pid, number)

    def said(self) -> str:
        return self.log.read_text(encoding="utf-8") if self.log else ""


class Run(Ranks):
    """The ranks of one run. RANK in an argument is the rank's number."""

    def __init__(self, mode, world_size, argv, disturbances=(), log: Path | None = None, port=None):
        # Else rank 0 holds the store, on this port
        hosted = port is None
        self.store = new_store() if hosted else None
        arguments = (port or self.store.port, hosted, mode, argv, list(disturbances), log)
        super().__init__(rank_main, arguments, world_size, log)


def new_store() -> dist.TCPStore:
    # On a free port; it lives as long as the object
    return dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)


def run(mode: str, world_size: int, argv: list[str], disturbances=(), log=None) -> list[int | None]:
    return Run(mode, world_size, argv, disturbances, log).join()


def largest_difference(one: Path, other: Path) -> float:
    """Return by how much the weights of two run folders differ, but for the biases of keys: their exact
    gradient is zero, and AdamW enlarges what rounding leaves of it."""
    weights, others = (load_file(folder / "model.safetensors") for folder in (one, other))
    assert weights.keys() == others.keys()
    names = [name for name in weights if "key.bias" not in name]
    return max(float((weights[name] - others[name]).abs().max()) for name in names)


def fork(work: Callable, arguments: tuple, world_size: int, log: Path) -> None:
    """Call `work(*arguments)` in each of `world_size` ranks of a group, and wait for them; none may fail."""
    store = new_store()
    ranks = Ranks(forked_main, (store.port, log, work, arguments), world_size, log)
    assert ranks.join(600) == [0] * world_size, ranks.said()[-3000:]


def forked_main(rank: int, world_size: int, port: int, log: Path, work: Callable, arguments: tuple) -> None:
    from app.modes.group import end_after

    print_to(log)
    set_variables(rank, world_size, port, hosted=True)
    end_after(work, arguments)


def run_alone(mode: str, argv: list[str], log: Path) -> int:
    """Run as the mode's script does where no launcher starts it; returns the exit code."""
    return Ranks(alone_main, (mode, argv, log), 1, log).join()[0]


def alone_main(rank: int, world_size: int, mode: str, argv: list[str], log: Path) -> None:
    from app.run import main

    print_to(log)
    sys.exit(main(mode, "", argv))


def print_to(log: Path | None) -> None:
    """Have this process print into a file, also where native code ends it."""
    target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(target, 1)
    os.dup2(target, 2)
    faulthandler.enable()


def set_variables(rank: int, world_size: int, port: int, hosted: bool) -> None:
    """Set what torchrun sets for a rank; `hosted`: whether the launcher holds the store."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": hosted}
    os.environ.update({name: str(value) for name, value in names.items()})


def rank_main(
    rank: int, world_size: int, port: int, hosted: bool, mode: str, argv, disturbances, log
) -> None:
    import app.config.train_settings
    from app.config.command_line import load_config
    from app.modes import load_mode
    from app.modes.group import end_after
    from app.run import work
    from app.training.train import Run

    print_to(log)
    faulthandler.register(signal.SIGUSR1)
    if world_size > 1 or mode != "single":
        set_variables(rank, world_size, port, hosted)
    keep_final_state(Run)
    for entry in disturbances:
        if entry.step < 0 and entry.rank == rank:
            globals()[entry.what](None)
    # So that the tests need not wait
    app.config.train_settings.MIN_TIMEOUT = 1
    disturb(load_mode(mode), rank, disturbances)
    end_after(work, (load_config([word.replace("RANK", str(rank)) for word in argv]), mode))


def keep_final_state(run_class: type) -> None:
    """Write the weights and the optimizer state of the last step beside the run folder, which keeps only the
    best weights."""
    finish = run_class.finish

    def keep_and_finish(self):
        weights, optimizer = self.mode.weights(), self.mode.optimizer_state()
        if self.folder and optimizer:
            tensors = {name: value.contiguous() for name, value in (weights | optimizer).items()}
            save_file(tensors, self.folder.with_name(f"{self.folder.name}.final"))
        return finish(self)

    run_class.finish = keep_and_finish


def disturb(mode_class: type, rank: int, disturbances: list[Disturbance]) -> None:
    """Have what is planned for this rank happen in its steps."""
    plan = {entry.step: entry.what for entry in disturbances if entry.rank == rank}
    step, seen = mode_class.step, []

    def disturbed(self, max_norm):
        what = plan.get(len(seen))
        seen.append(1)
        if what and what.startswith("SIG"):
            os.kill(os.getpid(), signal.Signals[what])
        elif what:
            globals()[what](self)
        return step(self, max_norm)

    # The first thing a step does with the whole gradients
    mode_class.step = disturbed


def crawl(mode) -> None:
    time.sleep(5)


def two_signals(mode) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)


def spoil_gradients(mode) -> None:
    """Make all gradients not a number, as a loss does that is none; to be planned for every rank."""
    for parameter in mode.unwrapped_module().parameters():
        parameter.grad.mul_(float("nan"))


def spoil_weights(mode) -> None:
    """Make all weights not a number after a loss that was one; to be planned for every rank."""
    for parameter in mode.unwrapped_module().parameters():
        parameter.data.fill_(float("nan"))


def jump_back(mode, seconds: int = -3600) -> None:
    clock = time.time
    time.time = lambda: clock() + seconds


def jump_ahead(mode) -> None:
    jump_back(mode, 86400)


def limit_memory(mode) -> None:
    """Have this process get no more than 100 MB of memory beyond what it has now; a real allocation then
    fails."""
    # What was freed before must not help
    trim_heap()
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    most = pages * resource.getpagesize() + 100 * 2**20
    # Not RLIMIT_AS, which also counts the 64 MB that malloc reserves, and does not use, for each new thread.
    resource.setrlimit(resource.RLIMIT_DATA, (most, resource.RLIM_INFINITY))


def terminate_in_evaluation(mode) -> None:
    from app.training.train import Run

    evaluate = Run.evaluate
    Run.evaluate = lambda *values: (os.kill(os.getpid(), signal.SIGTERM), evaluate(*values))[1]


def close_late(mode) -> None:
    """Take a second to close the log, in which the other ranks have left and the launcher sends SIGTERM."""
    from app.training.log import RunLog

    close = RunLog.close
    RunLog.close = lambda self: (time.sleep(1), close(self))


def terminate_late(mode) -> None:
    from app.training.log import RunLog

    close = RunLog.close
    RunLog.close = lambda self: (os.kill(os.getpid(), signal.SIGTERM), close(self))


def rename_folder(mode) -> None:
    folder = Path(mode.config.output.dir)
    folder.rename(folder.with_name("renamed"))


def block_metrics(mode) -> None:
    path = Path(mode.config.output.dir, "metrics.jsonl")
    path.unlink(missing_ok=True)
    path.mkdir()


def die_in_report(mode) -> None:
    from app.training.train import Run

    Run.finish = lambda self: os.kill(os.getpid(), signal.SIGKILL)


def die_in_save(mode) -> None:
    """Be killed while the next training state is written: behind its first file that is on the disk."""
    import app.checkpoints.training_state

    app.checkpoints.training_state.sync = lambda path: os.kill(os.getpid(), signal.SIGKILL)
