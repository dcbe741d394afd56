"""Trainings of `python -m app verify` in ranks that are forked by the server of tests/ranks.py, which takes a
second where a launcher takes ten; and in deliberately broken modes."""

from pathlib import Path

from app import strategies
from app.config.schema import Config
from app.run.modes.worker import result_file, run_trainings
from tests.ranks import fork
from tests.strategies import broken_strategies


def train(
    config: Config, mode: str, training: str, folder: Path, world_size: int = 2, steps: int = 2
) -> Path:
    """Return the file with the results of a training; a class of broken_strategies is a mode too."""
    fork(be_rank, (config, mode, training, folder, steps), world_size, folder / "ranks.log")
    return result_file(folder, mode, training)


def be_rank(config: Config, mode: str, training: str, folder: Path, steps: int) -> int:
    """Be one rank of a mode."""
    if hasattr(broken_strategies, mode):
        strategies.MODES[mode] = f"{broken_strategies.__name__}:{mode}"
    run_trainings(config, mode, steps, [training], str(folder))
    return 0
