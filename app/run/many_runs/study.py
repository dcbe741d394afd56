"""The study of a search on disk: Optuna's storage, samplers and pruners, and the locks of its processes."""

import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna
from filelock import FileLock, Timeout
from optuna.trial import FrozenTrial

from ...report.metrics import BY_KEY

STUDY = "study.db"
# The first evaluation says little about the last one
FIRST_JUDGED = 2
SAMPLERS = {
    "tpe": lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
    "gp": lambda seed: optuna.samplers.GPSampler(seed=seed),
    "random": lambda seed: optuna.samplers.RandomSampler(seed=seed),
}
PRUNERS = {
    "median": lambda: optuna.pruners.MedianPruner(n_warmup_steps=FIRST_JUDGED),
    "halving": lambda: optuna.pruners.SuccessiveHalvingPruner(),
    "none": lambda: optuna.pruners.NopPruner(),
}


class SamplerByNumber(optuna.samplers.BaseSampler):
    """A sampler whose draws follow from the seed, the trial's number and the trials before it. Optuna's
    samplers keep their random state in memory, so a resumed search would draw other values."""

    def __init__(self, kind: str, seed: int) -> None:
        self.make, self.seed = SAMPLERS[kind], seed

    def infer_relative_search_space(self, study, trial):
        return self.make(self.seed).infer_relative_search_space(study, trial)

    def sample_relative(self, study, trial, search_space):
        return self.make(self.seed_of(trial)).sample_relative(study, trial, search_space)

    def sample_independent(self, study, trial, param_name, param_distribution):
        sampler = self.make(self.seed_of(trial, param_name))
        return sampler.sample_independent(study, trial, param_name, param_distribution)

    def seed_of(self, trial: FrozenTrial, name: str = "") -> int:
        """Return the seed of the draws of a trial, or of one of its settings."""
        return zlib.crc32(f"{self.seed} {trial.number} {name}".encode())


@contextmanager
def study_lock(folder: Path) -> Iterator[None]:
    """Hold the study in a folder: one process at a time opens it, or takes a trial."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_name(f".{folder.name}.lock")):
        yield


def open_study(folder: Path, metric: str, sampler: str, pruner: str, seed: int) -> optuna.Study:
    """Return the study in a folder; a new one where there is none. The caller holds `study_lock`."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    storage = optuna.storages.RDBStorage(
        f"sqlite:///{(folder / STUDY).resolve()}", engine_kwargs={"connect_args": {"timeout": 120}}
    )
    direction = "maximize" if BY_KEY[metric].higher_is_better else "minimize"
    return optuna.create_study(
        storage=storage,
        study_name="search",
        direction=direction,
        sampler=SamplerByNumber(sampler, seed),
        pruner=PRUNERS[pruner](),
        load_if_exists=True,
    )


def own_lock(path: Path) -> FileLock | None:
    """Return a lock that is held until this process ends, or None where another process has it."""
    lock = FileLock(path)
    try:
        lock.acquire(blocking=False)
    except Timeout:
        return None
    return lock
