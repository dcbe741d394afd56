"""DistributedDataParallel whose processes are started by `mp.spawn`: one command, with no launcher."""

from .ddp import DDP
from .spawn import Spawn


class SpawnedDDP(DDP):
    """The same as DDP; only the start is different."""

    launcher = Spawn()
