"""Trainings of `python -m app verify` in ranks that are forked by the server of tests/ranks.py, which takes a
second where a launcher takes ten; and in deliberately broken modes."""

from pathlib import Path

from app import modes
from app.config.schema import Config
from app.runs.verify import run_trainings
from tests.modes import broken_modes
from tests.ranks import fork


def train(config: Config, mode: str, folder: Path, *trainings: str, world_size: int = 2) -> Path:
    """Return the folder with the results of trainings; a class of broken_modes is a mode too."""
    (folder / mode).mkdir(exist_ok=True)
    fork(be_rank, (config, mode, str(folder / mode), *trainings), world_size, folder / "ranks.log")
    return folder / mode


def be_rank(config: Config, mode: str, folder: str, *trainings: str) -> int:
    """Be one rank of a mode."""
    if hasattr(broken_modes, mode):
        modes.MODES[mode] = f"{broken_modes.__name__}:{mode}"
    return run_trainings(config, 2, mode, folder, *trainings)
