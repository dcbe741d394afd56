"""Trainings of `python -m app verify` in ranks that are forked by the server of tests/ranks.py, which takes a
second where a launcher takes ten; and in deliberately broken modes."""

import os
from pathlib import Path

import torch.distributed as dist

from app import strategies
from app.config.schema import Config
from app.run.modes.worker import result_file, run_trainings
from tests.ranks import context, start_server
from tests.strategies import broken_strategies


def train(
    config: Config, mode: str, training: str, folder: Path, world_size: int = 2, steps: int = 2
) -> Path:
    """Return the file with the results of a training; a class of broken_strategies is a mode too."""
    start_server()
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    arguments = (store.port, world_size, config, mode, training, folder, steps)
    ranks = [context.Process(target=be_rank, args=(rank, *arguments)) for rank in range(world_size)]
    for rank in ranks:
        rank.start()
    for rank in ranks:
        rank.join(300)
    assert [rank.exitcode for rank in ranks] == [0] * world_size
    return result_file(folder, mode, training)


def be_rank(
    rank: int, port: int, world_size: int, config: Config, mode: str, training: str, folder: Path, steps: int
) -> None:
    """Be one rank of a mode."""
    names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world_size, "LOCAL_WORLD_SIZE": world_size}
    names |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_USE_AGENT_STORE": True}
    os.environ.update({name: str(value) for name, value in names.items()})
    if hasattr(broken_strategies, mode):
        strategies.MODES[mode] = f"{broken_strategies.__name__}:{mode}"
    run_trainings(config, mode, steps, [training], str(folder))
