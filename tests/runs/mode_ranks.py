"""Trainings of `python -m app verify` in ranks that are forked by the server of tests/ranks.py, which takes a
second where a launcher takes ten; and in deliberately broken modes."""

from pathlib import Path

from app import modes
from app.config.schema import Config
from app.runs.verify import result_file, run_trainings
from tests.modes import broken_modes
from tests.ranks import fork


def train(
    config: Config, mode: str, training: str, folder: Path, world_size: int = 2, steps: int = 2
) -> Path:
    """Return the file with the results of a training; a class of broken_modes is a mode too."""
    fork(be_rank, (config, mode, training, folder, steps), world_size, folder / "ranks.log")
    return result_file(folder, mode, training)


def be_rank(config: Config, mode: str, training: str, folder: Path, steps: int) -> int:
    """Be one rank of a mode."""
    if hasattr(broken_modes, mode):
        modes.MODES[mode] = f"{broken_modes.__name__}:{mode}"
    run_trainings(config, mode, steps, str(folder), [training])
    return 0
