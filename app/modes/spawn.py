"""The launcher that needs no other command: `mp.spawn` starts all processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing import resource_tracker
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from .launchers import Launcher, end_after

# After a failure: for the others to end by themselves, then for SIGTERM to end them, then SIGKILL
GRACE_SECONDS = 5


class Spawn(Launcher):
    """One command starts `nprocs` processes: one for each accelerator, or two on the CPU."""

    one_process = False
    starts_processes = True

    def command(self, program: list[str], processes: int) -> list[str]:
        return [sys.executable, *program, "--nprocs", str(processes)]

    def launch(self, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # The parent hosts the store, on a port that the system chooses and that stays open from the start. So
        # no other program can take the port in between.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        nprocs = nprocs or torch.accelerator.device_count() or 2
        # A process that is still importing gets Ctrl-C when it can end without a traceback
        # The tracker, which multiprocessing starts first, unblocks the signal
        resource_tracker.ensure_running()
        hold_back_interrupts(signal.SIG_BLOCK)
        processes = mp.spawn(_start, (nprocs, store.port, work, arguments), nprocs, join=False)
        received = forward_signals(processes.pids())
        hold_back_interrupts(signal.SIG_UNBLOCK)
        try:
            while not processes.join(grace_period=GRACE_SECONDS):
                pass
        except mp.ProcessExitedException as error:
            # The process has printed why
            if error.signal_name is None:
                return error.exit_code
            if received:
                return 128 + received[0]
            raise
        return 0


def hold_back_interrupts(how: int) -> None:
    """Have the system keep SIGINT for this process and its children (SIG_BLOCK) or not (SIG_UNBLOCK)."""
    # Not on Windows
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(how, {signal.SIGINT})


def forward_signals(pids: list[int]) -> list[int]:
    """Forward SIGTERM and SIGINT to processes from now on; returns a list that gets each signal."""
    received: list[int] = []

    def forward(number: int, frame: object) -> None:
        received.append(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, forward)
    return received


def _start(local_rank: int, nprocs: int, port: int, work: Callable[..., int], arguments: tuple) -> None:
    environment: dict[str, Any] = {
        "RANK": local_rank,
        "LOCAL_RANK": local_rank,
        "WORLD_SIZE": nprocs,
        "LOCAL_WORLD_SIZE": nprocs,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "TORCHELASTIC_USE_AGENT_STORE": True,
    }
    os.environ.update({name: str(value) for name, value in environment.items()})

    def start_work() -> int:
        hold_back_interrupts(signal.SIG_UNBLOCK)
        return work(*arguments)

    end_after(start_work, ())
