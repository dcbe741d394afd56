"""Runs of several ranks for the tests of resuming and of chaos: started fast, and disturbed on purpose.

The ranks are forked by a server process that has imported everything, so a run takes a second or two where a
launcher's takes ten. All else is what `run_ddp.py` and the others do. For real launchers, a disturbed run:

    torchrun --nproc_per_node=2 tests/ranks.py nothing|fail|hold MODE [settings]
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
from dataclasses import dataclass
from functools import cache, partial
from multiprocessing import forkserver
from pathlib import Path
from typing import IO, Any

import pytest
import torch.distributed as dist
from safetensors.torch import load_file, save_file

import app.config.schema
from app.checkpoints import training_state
from app.config.command_line import load_config
from app.modes import load_mode
from app.modes.launch import end_after, launch, launch_command, mp
from app.run import main, work
from app.runtime.memory import trim_heap
from app.runtime.processes import launched_rank
from app.training.log import RunLog
from app.training.train import Run

ROOT = Path(__file__).resolve().parent.parent
PYTHON = [sys.executable, "-m"]
TORCHRUN = launch_command("torchrun", [], 2)
# Without --use_env it passes --local-rank
OLD_LAUNCHER = [*PYTHON, "torch.distributed.launch", *TORCHRUN[3:]]
# All that a rank needs and what starts no thread; the server passes over what is not installed
IMPORTED = ["accelerate", "horovod.torch", "peft", "sklearn.feature_extraction.text"]
IMPORTED += ["sklearn.linear_model", "tests.ranks", "torch.utils.tensorboard"]
IMPORTED += [f"app.modes.{name}_mode" for name in ("accelerate", "deepspeed", "horovod")]
IMPORTED += [f"transformers.models.bert.{name}_bert" for name in ("modeling", "tokenization")]
# What DeepSpeed imports, also when it makes its engine
IMPORTED += ["deepspeed", "distutils.core", "networkx", "torch._inductor.compile_fx"]
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(IMPORTED)
SMALL = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}


@dataclass(frozen=True)
class Disturbance:
    """What happens to `rank` in the optimizer step behind `step` others of the run, before the weights move;
    -1: at the start."""

    step: int
    event: str  # the name of a signal that the rank sends itself, or a key of ACTIONS
    rank: int = 0


def need(mode: str) -> None:
    """Skip a test where a mode is not installed."""
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)


def settings(data: list[str], folder: Path, sizes: dict = SMALL, **changes) -> list[str]:
    """Return the arguments of a small job; `sizes` are those of random weights, `changes` by setting,
    `train__epochs` for train.epochs."""
    values = {"output.dir": folder, "output.resume": "auto", "train.device": "cpu", "train.threads": 1}
    values |= {"train.precision": "fp32", "train.batch_size": 16, "train.learning_rate": 5e-3}
    values |= {"train.log_every": 4, "data.max_length": 24}
    values |= {f"model.config.{key}": value for key, value in sizes.items()} | {"output.trackers": "[]"}
    if sizes:
        values |= {"model.name": "random", "train.epochs": 12}
    values |= {key.replace("__", "."): value for key, value in changes.items()}
    return [*data, *(f"--{key}={value}" for key, value in values.items())]


def largest_difference(folder: Path, other_folder: Path) -> float:
    """Return by how much the weights of two run folders differ, but for the biases of keys: their exact
    gradient is zero, and AdamW enlarges what rounding leaves of it."""
    weights = load_file(folder / "model.safetensors")
    other_weights = load_file(other_folder / "model.safetensors")
    assert weights.keys() == other_weights.keys()
    names = [name for name in weights if "key.bias" not in name]
    return max(float((weights[name] - other_weights[name]).abs().max()) for name in names)


def run(mode: str, world_size: int, argv: list[str], disturbances=(), log=None, **waiting) -> list[int]:
    """Run in forked ranks; RANK in an argument is the rank's number. Return the exit codes."""
    is_alone = mode == "single" and world_size == 1
    arguments = mode, argv, list(disturbances)
    return start_ranks(disturbed_work, arguments, world_size, log, is_alone=is_alone, **waiting)


def check_run(
    mode: str, world_size: int, argv: list[str], disturbances=(), log=None, status: int = 0, **waiting
) -> None:
    """Run in forked ranks, which must all end with a status."""
    codes = run(mode, world_size, argv, disturbances, log, **waiting)
    assert codes == [status] * world_size, f"{codes}: {log and log.read_text()[-3000:]}"


def fork(work: Callable, arguments: tuple, world_size: int, log: Path) -> None:
    """Call `work(*arguments)` in each of `world_size` ranks of a group, and wait for them; none may fail."""
    assert start_ranks(work, arguments, world_size, log, seconds=600) == [0] * world_size, log.read_text()


def fork_under_horovod(work: Callable, arguments: tuple, world_size: int, log: Path) -> None:
    """Call `work(*arguments)` in forked ranks as `fork` does, with the variables of horovodrun."""
    from horovod.runner.http.http_server import RendezvousServer

    # The server of horovodrun
    server = RendezvousServer()
    port = server.start()
    server.init(slots_of_horovod(world_size))
    fork(be_horovod_rank, (port, world_size, work, arguments), world_size, log)
    server.stop()


def slots_of_horovod(world_size: int) -> list:
    """Return the places of ranks on this machine."""
    from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts

    return get_host_assignments(parse_hosts(f"localhost:{world_size}"), world_size)


def be_horovod_rank(port: int, world_size: int, work: Callable, arguments: tuple) -> int:
    """Be a rank of Horovod with the variables of horovodrun, whose server has a port."""
    from horovod.runner import gloo_run

    slot = slots_of_horovod(world_size)[launched_rank()]
    os.environ |= gloo_run.create_slot_env_vars(slot)
    os.environ |= gloo_run.create_run_env_vars("127.0.0.1", ["lo"], str(port))
    return work(*arguments)


def run_forked(command: list[str], output: IO) -> int:
    """Do what `run_to_end` of a series does by `python -m app.run MODE words`, in a forked process."""
    mode, *words = command[3:]
    [status] = start_ranks(main, (mode, "", words), 1, Path(output.name), is_alone=True, seconds=300)
    return status


def start_ranks(
    work: Callable,
    arguments: tuple,
    world_size: int,
    log: Path | None,
    is_alone: bool = False,
    port: int | None = None,
    seconds: float = 120,
    grace: float = 10,
) -> list[int]:
    """Call `work(*arguments)` in forked processes, which print into `log`; return their exit codes, of which
    a negative one is the signal that ended the rank.

    As a launcher does: the ranks find a store in their environment, unless one `is_alone`; where rank 0 is to
    hold it, it is on `port`. When one fails the others get SIGTERM, and are killed after `grace` seconds.
    """
    start_server()
    # On a free port; it lives as long as the object
    store = None if port else dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    variables = {}
    if not is_alone:
        variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port or store.port}
        variables |= {"WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
        variables["TORCHELASTIC_USE_AGENT_STORE"] = not port
    ranks = [
        context.Process(target=be_rank, args=(rank, variables, log, work, arguments))
        for rank in range(world_size)
    ]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + seconds
    failed_at = None
    while None in (codes := [process.exitcode for process in ranks]):
        time.sleep(0.02)
        assert time.monotonic() < deadline, f"the run did not end: {codes}\n{log and log.read_text()}"
        if failed_at is None and any(codes):
            failed_at = time.monotonic()
            for process in ranks:
                process.terminate()
        if failed_at and time.monotonic() > failed_at + grace:
            for process in ranks:
                process.kill()
    return codes


@cache
def start_server() -> None:
    """Start the server; before Python 3.13 it finds its modules by the environment only, after those in the
    current folder, which may be that of a test with packages of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        patch.setenv("PYTHONPATH", str(ROOT))
        forkserver.ensure_running()


def be_rank(rank: int, variables: dict[str, Any], log: Path | None, work: Callable, arguments: tuple) -> None:
    # Also what native code prints that ends the process
    target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(target, 1)
    os.dup2(target, 2)
    faulthandler.register(signal.SIGUSR1)
    if variables:
        variables |= {"RANK": rank, "LOCAL_RANK": rank}
    os.environ.update({name: str(value) for name, value in variables.items()})
    end_after(work, arguments)


def disturbed_work(mode: str, argv: list[str], disturbances: list[Disturbance]) -> int:
    """Be one rank of a run, to which happens what is planned for it."""
    # So that the tests need not wait
    app.config.schema.MIN_TIMEOUT = 1
    mode_class = load_mode(mode)
    rank = launched_rank()
    plan = {entry.step: entry.event for entry in disturbances if entry.rank == rank}
    step = mode_class.step
    finish = Run.finish
    seen = []

    def disturbed(self, max_norm):
        event = plan.get(len(seen), "nothing")
        seen.append(1)
        if event.startswith("SIG"):
            signal.raise_signal(signal.Signals[event])
        else:
            ACTIONS[event](self)
        return step(self, max_norm)

    def keep_and_finish(self):
        """Write the last weights and optimizer state beside the run folder, which keeps the best only."""
        weights = self.mode.weights()
        optimizer = self.mode.optimizer_state()
        if self.folder and optimizer:
            tensors = {name: value.contiguous() for name, value in (weights | optimizer).items()}
            save_file(tensors, self.folder.with_name(f"{self.folder.name}.final"))
        return finish(self)

    # The first thing a step does with the whole gradients
    mode_class.step = disturbed
    Run.finish = keep_and_finish
    ACTIONS[plan.get(-1, "nothing")](None)
    return work(load_config([word.replace("RANK", str(rank)) for word in argv]), mode)


terminate = partial(signal.raise_signal, signal.SIGTERM)


def spoil_gradients(mode) -> None:
    """Make all gradients not a number, as a loss does that is none; to be planned for every rank."""
    for parameter in mode.unwrapped_module().parameters():
        parameter.grad.mul_(float("nan"))


def spoil_weights(mode) -> None:
    """Make all weights not a number after a loss that was one; to be planned for every rank."""
    for parameter in mode.unwrapped_module().parameters():
        parameter.data.fill_(float("nan"))


def jump(seconds: int) -> None:
    clock = time.time
    time.time = lambda: clock() + seconds


def limit_memory(mode) -> None:
    """Have this process get no more than 100 MB beyond what it has now; a real allocation then fails."""
    # What was freed before must not help
    trim_heap()
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    limit = pages * resource.getpagesize() + 100 * 2**20
    # Not RLIMIT_AS, which also counts the 64 MB that malloc reserves, and does not use, for each new thread.
    resource.setrlimit(resource.RLIMIT_DATA, (limit, resource.RLIM_INFINITY))


def block_metrics(mode) -> None:
    path = Path(mode.config.output.dir, "metrics.jsonl")
    path.unlink(missing_ok=True)
    path.mkdir()


def rename_folder(mode) -> None:
    folder = Path(mode.config.output.dir)
    folder.rename(folder.with_name("renamed"))


def fail(mode) -> None:
    raise RuntimeError("a rank gives up")


def hold(mode) -> None:
    """Be slow while there is a file `slow` beside the run folder."""
    if Path(mode.config.output.dir).with_name("slow").exists():
        time.sleep(0.5)


def before(owner: object, name: str, action: Callable) -> Callable:
    """Return an action by which another one happens before each call of a function."""
    function = getattr(owner, name)

    def called(*values):
        action()
        return function(*values)

    return lambda mode: setattr(owner, name, called)


ACTIONS = {action.__name__: action for action in (spoil_gradients, spoil_weights, limit_memory)}
ACTIONS |= {action.__name__: action for action in (block_metrics, rename_folder, fail, hold)}
ACTIONS |= {
    "nothing": lambda mode: None,
    "two_signals": lambda mode: (terminate(), terminate()),
    "crawl": lambda mode: time.sleep(5),
    "jump_back": lambda mode: jump(-3600),
    "jump_ahead": lambda mode: jump(86400),
    "terminate_in_evaluation": before(Run, "evaluate_split", terminate),
    # While it closes the log the other ranks have left, and the launcher sends SIGTERM
    "close_late": before(RunLog, "close", lambda: time.sleep(1)),
    "terminate_late": before(RunLog, "close", terminate),
    # Behind the first file of the next training state that is on the disk
    "die_in_save": before(training_state, "sync", partial(signal.raise_signal, signal.SIGKILL)),
}
PLANS = {
    "nothing": [],
    "fail": [Disturbance(11, "fail", 1)],
    "hold": [Disturbance(step, "hold", rank) for step in range(1000) for rank in range(2)],
}

if __name__ == "__main__":
    plan, mode, *argv = sys.argv[1:]
    if plan == "nothing":
        # Forked ranks import nothing again
        mp.spawn = partial(mp.start_processes, start_method="fork")
    sys.exit(launch(load_mode(mode).launcher, disturbed_work, (mode, argv, PLANS[plan]), 2))
