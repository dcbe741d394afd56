"""The study of a search: Optuna keeps its trials in a database on the disk, and notices by heartbeats that a
process of the search has died; it then adds that trial again."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import optuna
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial
from sqlalchemy.exc import SQLAlchemyError

from ..errors import InputError, TrainingError, as_input_error
from ..report.metrics import BY_KEY

STUDY = "study.db"
HEARTBEAT_SECONDS = 5
DATABASE_SECONDS = 120  # for which a process waits for another one that writes
REMEDY = "copy the file back, or start the search again in another output.dir"
NOT_WRITTEN = re.compile("disk is full|disk I/O error|readonly|unable to open")


def open_study(folder: Path, metric: str) -> optuna.Study:
    """Return the study of a search, which is made where there are no trials yet. Raises InputError where its
    database is damaged or gone: without it, the settings of the trials in the folder are unknown."""
    path = folder / STUDY
    has_study = path.is_file() and path.stat().st_size > 0
    if not has_study and any(folder.glob("trial-*")):
        raise InputError(f"{path}: the trials of this search are here, and their study is not; {REMEDY}")
    with as_input_error(f"{path}: the study cannot be read", REMEDY), study_errors(path):
        if has_study:
            check_database(path)
        storage = RDBStorage(
            f"sqlite:///{path.resolve()}",
            engine_kwargs={"connect_args": {"timeout": DATABASE_SECONDS}},
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=6 * HEARTBEAT_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )
        study = optuna.create_study(
            storage=storage,
            study_name="search",
            direction="maximize" if BY_KEY[metric].higher_is_better else "minimize",
            load_if_exists=True,
        )
        # Trials that cannot be read are an error now
        last_tries(study)
    return study


def check_database(path: Path) -> None:
    """Raise InputError where SQLite finds its own database damaged."""
    with closing(sqlite3.connect(path, timeout=DATABASE_SECONDS)) as database:
        rows = database.execute("PRAGMA integrity_check(1)").fetchall()
    problem = rows[0][0]
    if problem != "ok":
        raise InputError(f"{path}: the study is damaged: {problem}; {REMEDY}")


@contextmanager
def study_errors(path: Path) -> Iterator[None]:
    """Raise TrainingError where the database of a study cannot be written, and InputError where it cannot be
    read."""
    try:
        yield
    except (StorageInternalError, SQLAlchemyError, sqlite3.Error) as error:
        # Optuna hides the error of SQLAlchemy, and that the one of the database
        cause = error.__cause__ or error
        cause = getattr(cause, "orig", None) or cause
        if NOT_WRITTEN.search(str(cause)):
            raise TrainingError(
                f"{path}: the study cannot be written: {cause}; free space on the disk, and the same command "
                "continues"
            ) from error
        raise InputError(f"{path}: the study cannot be read: {cause}; {REMEDY}") from error


def last_tries(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials in the order in which they began; of one that was continued the last try."""
    trials: dict[str | int, FrozenTrial] = {}
    for trial in study.get_trials(deepcopy=False):
        # All tries of a trial have the name of the same run
        trials[trial.user_attrs.get("run", trial.number)] = trial
    return list(trials.values())
