"""DistributedDataParallel through `mp.spawn`: one command starts all processes of this machine, with no launcher."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from app.strategies.ddp import DDP
from app.strategies.process_group import leave

GRACE_SECONDS = 5  # for the others to end by themselves when one has failed, then again before they are killed


class Spawn(DDP):
    """The same as DDP; only the start is different."""

    @classmethod
    def command(cls, script: list[str], processes: int) -> list[str]:
        return [sys.executable, *script, "--nprocs", str(processes)]

    @classmethod
    def launch(cls, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # The parent hosts the store on a port that the system has chosen and that is open from the start: there is no
        # moment in which another program could take it.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        nprocs = nprocs or torch.cuda.device_count() or 2
        processes = mp.spawn(_start, (nprocs, store.port, work, arguments), nprocs, join=False)
        received = pass_signals_on(processes.pids())
        try:
            while not processes.join(grace_period=GRACE_SECONDS):
                pass
        except mp.ProcessExitedException as error:
            if error.signal_name is None:  # the process has said why
                return error.exit_code
            if received:
                return 128 + received[0]
            raise
        return 0


def pass_signals_on(pids: list[int]) -> list[int]:
    """Send SIGTERM and SIGINT on to processes from now on; returns a list that will hold what came."""
    received: list[int] = []

    def pass_on(number: int, frame: object) -> None:
        received.append(number)
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, pass_on)
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
    try:
        status = work(*arguments)
    except Exception:  # noqa: BLE001
        # The parent would show it only if this process is the first that it sees ending; the others end because of it.
        traceback.print_exc()
        status = 1
    leave(status)
