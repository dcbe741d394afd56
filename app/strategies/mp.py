"""DistributedDataParallel whose processes are started by `mp.spawn`: one command, with no launcher."""

from app.strategies.ddp import DDP
from app.strategies.spawn import Spawn


class SpawnedDDP(DDP):
    """The same as DDP; only the start is different."""

    launcher = Spawn()
