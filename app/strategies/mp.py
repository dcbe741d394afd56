"""DistributedDataParallel through `mp.spawn`: one command starts all processes of this machine, with no launcher."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from app.strategies.ddp import DDP
from app.strategies.process_group import leave


class Spawn(DDP):
    """The same as DDP; only the start is different."""

    launcher = "spawn"

    @classmethod
    def launch(cls, work: Callable[..., int], arguments: tuple, nprocs: int | None) -> int:
        # The parent hosts the store on a port that the system has chosen and that is open from the start: there is no
        # moment in which another program could take it.
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        nprocs = nprocs or torch.cuda.device_count() or 2
        try:
            mp.spawn(_start, args=(nprocs, store.port, work, arguments), nprocs=nprocs)
        except mp.ProcessExitedException as error:
            if error.signal_name is None:  # the process has said why
                return error.exit_code
            raise
        return 0


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
    leave(work(*arguments))
