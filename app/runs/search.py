"""A search for settings on Optuna: each trial is a run that sees no test row; a final run is measured on it.

Optuna keeps the study on the disk, draws the settings, and notices by heartbeats that a process of the search
has died; it then adds that trial again, which goes on with the same settings in the same folder.
"""

import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import median
from warnings import simplefilter

import optuna
import yaml
from filelock import FileLock
from optuna import visualization
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState
from plotly.io import to_html
from sqlalchemy.exc import SQLAlchemyError

from ..checkpoints.run_files import MODEL
from ..config.allowed_values import member_types
from ..config.command_line import load_config
from ..config.schema import SETTINGS, TASKS, as_number
from ..data.dataset import open_dataset
from ..errors import InputError, TrainingError, as_input_error, say
from ..modes.signals import Stopped
from ..report.metrics import BY_KEY
from ..runtime.disk import write_text
from .series import Series, as_arguments, read_report, rendered

USUAL = {"train.learning_rate": "[1e-5, 5e-4, log]", "train.epochs": "[2, 8]"}
# A lucky seed is no better setting, best_metric judges the trials, and with other rows nothing is comparable
SEARCHED = r"model\..*|train\.(?!seed|best_metric).*|data\.(max_length|long|max_windows|remove_spaces)"
HEARTBEAT_SECONDS = 5
STUDY = "study.db"
DATABASE_SECONDS = 120  # for which a process waits for another one that writes


def read_space(asked: dict[str, str], settings: list[str], task: str) -> dict[str, tuple[str, dict]]:
    """Return the method of a trial that draws each setting, and its arguments: a range of two numbers, else a
    choice. Without `asked`, they are the usual ones that are not among `settings`, the words for the trainer.
    Raises InputError for what is no range, cannot be searched, or has a value that is not allowed."""
    fixed = {word.removeprefix("--").partition("=")[0] for word in settings}
    usual = USUAL | ({"train.loss": "[cross_entropy, focal]"} if "focal" in TASKS[task].losses else {})
    asked = asked or {name: text for name, text in usual.items() if name not in fixed}
    if not asked or fixed & set(asked):
        both = ", ".join(sorted(fixed & set(asked or usual)))
        raise InputError(f"a setting is either fixed or searched, and {both} would be both; leave one out")
    space, trial = {}, optuna.create_study().ask()
    for name, text in asked.items():
        try:
            values = [as_number(one) for one in yaml.safe_load(text)]
            is_log = values[-1] == "log"
            values = values[:-1] if is_log else values
            if len({repr(one) for one in values}) < max(2, len(values)):
                raise ValueError("two or more different values are needed")
            space[name] = ("suggest_categorical", {"choices": values})
            if len(values) == 2 and all(type(one) in (int, float) for one in values):
                is_whole = float not in {*map(type, values), *member_types(SETTINGS.get(name))}
                ends = {"low": values[0], "high": values[1], "log": is_log}
                space[name] = ("suggest_int" if is_whole else "suggest_float", ends)
            getattr(trial, space[name][0])(name, **space[name][1])
        except (ValueError, TypeError, LookupError, yaml.YAMLError) as error:
            rule = f"the values of {name} to search must be a list, as in [1e-5, 5e-4], [1e-5, 5e-4, log] or"
            raise InputError(f"{rule} [cross_entropy, focal]; found {text}: {error}") from error
        for value in values:
            load_config([*settings, *as_arguments({name: value})])
        if not re.fullmatch(SEARCHED, name):
            raise InputError(f"--space {name}: this setting cannot be searched; docs/evaluation.md says why")
    return space


def search(series: Series, asked: dict[str, str], count: int) -> str:
    """Run `count` trials, until all have ended, also those of other processes with the same search, then the
    final run; return the result as text. `asked` has the values to search. Raises InputError, TrainingError
    where no trial finishes, and Stopped after a signal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    config, folder = series.config, series.folder
    space, dataset = read_space(asked, series.settings, config.data.task), open_dataset(config.data)
    for split in ("dev", "test"):
        if split not in dataset.splits:
            raise InputError(f"tune needs {split} rows: give data.{split} or data.{split}_size")
    metric = config.train.best_metric
    metric = TASKS[config.data.task].metrics[0] if metric == "auto" else metric
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One process at a time makes the folder and its tables, begins a trial, and trains the final run
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    with lock:
        series.open(dataset, **{name: f"searched in {values}" for name, (_, values) in space.items()})
        study = open_study(folder, metric)
    with study_errors(folder / STUDY):
        return run_trials(series, study, space, metric, count, lock)


def run_trials(
    series: Series,
    study: optuna.Study,
    space: dict[str, tuple[str, dict]],
    metric: str,
    count: int,
    lock: FileLock,
) -> str:
    """Run `count` trials and the final run, see `search`. `lock` is held where a trial begins, and in the
    final run."""

    def run_begun(trial: Trial) -> float:
        # Only now do other processes count this trial
        lock.release()
        return run_trial(trial, series, space, metric)

    while True:
        fail_stale_trials(study)
        lock.acquire()
        states = [trial.state for trial in last_tries(study)]
        if TrialState.WAITING in states or len(states) < count:
            study.optimize(run_begun, 1, catch=(TrainingError,))
            continue
        lock.release()
        if TrialState.RUNNING in states:
            time.sleep(HEARTBEAT_SECONDS)
        else:
            with lock:
                return finish(series, study, metric)


def open_study(folder: Path, metric: str) -> optuna.Study:
    """Return the study of a search, which is made where there are no trials yet. Raises InputError where its
    database is damaged or gone: without it, the settings of the trials in the folder are unknown."""
    path = folder / STUDY
    remedy = "copy the file back, or start the search again in another output.dir"
    is_there = path.is_file() and path.stat().st_size > 0
    if not is_there and any(folder.glob("trial-*")):
        raise InputError(f"{path}: the trials of this search are here, and their study is not; {remedy}")
    beats = {"heartbeat_interval": HEARTBEAT_SECONDS, "grace_period": 6 * HEARTBEAT_SECONDS}
    beats |= {"heartbeat_stale_trial_callback": RetryHeartbeatStaleTrialCallback()}
    direction = "maximize" if BY_KEY[metric].higher_is_better else "minimize"
    options = {"study_name": "search", "direction": direction, "load_if_exists": True}
    with as_input_error(f"{path}: the study cannot be read", remedy), study_errors(path):
        if is_there:
            with closing(sqlite3.connect(path, timeout=DATABASE_SECONDS)) as database:
                [(problem,), *_] = database.execute("PRAGMA integrity_check(1)").fetchall()
            if problem != "ok":
                raise InputError(f"{path}: the study is damaged: {problem}; {remedy}")
        connection = {"connect_args": {"timeout": DATABASE_SECONDS}}
        storage = RDBStorage(f"sqlite:///{path.resolve()}", engine_kwargs=connection, **beats)
        study = optuna.create_study(storage=storage, **options)
        last_tries(study)
    return study


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
        if re.search("disk is full|disk I/O error|readonly|unable to open", str(cause)):
            raise TrainingError(
                f"{path}: the study cannot be written: {cause}; free space on the disk, and the same command "
                "continues"
            ) from error
        raise InputError(
            f"{path}: the study cannot be read: {cause}; copy the file back, or start the search again in "
            "another output.dir"
        ) from error


def last_tries(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials in the order in which they began; of one that was continued the last try."""
    trials = study.get_trials(deepcopy=False)
    return list({trial.user_attrs.get("run", trial.number): trial for trial in trials}.values())


def run_trial(trial: Trial, series: Series, space: dict[str, tuple[str, dict]], metric: str) -> float:
    """Train one trial and return its best value on dev; raises TrainingError and Stopped."""
    # A trial that is continued has the attributes of its first try
    name = trial.user_attrs.get("run", f"trial-{trial.number:03}")
    trial.set_user_attr("run", name)
    # Without another seed each process of a search, and a continued one, would draw the same values again
    seed = series.config.train.seed + trial.number
    trial.study.sampler = optuna.samplers.TPESampler(multivariate=True, seed=seed)
    params = {key: getattr(trial, method)(key, **options) for key, (method, options) in space.items()}
    say(f"{name}: {params}")
    try:
        folder = series.run(name, params | {"verb": {"use_test": False}})
    except Stopped:
        RetryHeartbeatStaleTrialCallback()(trial.study, trial.study.tell(trial, state=TrialState.FAIL))
        raise
    except TrainingError as error:
        trial.set_user_attr("error", str(error).partition(". The same command")[0])
        say(f"{name}: failed, and the search goes on: {error}")
        raise
    # The final run has its own weights
    (folder / MODEL).unlink(missing_ok=True)
    return read_report(folder, {metric: float})[metric]


def finish(series: Series, study: optuna.Study, metric: str) -> str:
    """Train the final run and write all files of the search; return the result as text. There is one final
    run for each best trial: with more trials another one may be the best."""
    folder, trials = series.folder, last_tries(study)
    write_text(folder / "trials.csv", study.trials_dataframe().to_csv(index=False))
    finished = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
    if not finished:
        raise TrainingError(f"{folder}: no trial has finished, and trials.csv says why; raise --trials")
    best = study.best_trial
    name, params = best.user_attrs["run"], best.params
    settings = load_config([*series.settings, *as_arguments(params)]).to_dict()
    settings["data"].pop("verb")
    settings["output"] = {key: settings["output"][key] for key in ("name", "language")}
    write_text(folder / "best.yaml", yaml.safe_dump(settings, allow_unicode=True, sort_keys=False))
    wanted = {metric: float, "intervals": dict, "data": {"dev": {"rows": int}, "test": {"rows": int}}}
    report = read_report(series.run(name.replace("trial", "final"), params), wanted)
    gap = best.value - report[metric]
    figures = {
        "metric": metric,
        "trials": len(trials),
        "finished": len(finished),
        "best_trial": name,
        "best_settings": params,
        "best_dev": best.value,
        "median_dev": median(finished),
        "final_test": report[metric],
        "test_interval": report["intervals"].get(metric),
        "rows": {of: report["data"][of]["rows"] for of in ("dev", "test")},
        "optimism": gap if BY_KEY[metric].higher_is_better else -gap,
    }
    write_text(folder / "history.html", to_html(visualization.plot_optimization_history(study)))
    write_text(folder / "settings.html", to_html(visualization.plot_slice(study)))
    text = rendered("search", name=BY_KEY[metric].english, **figures)
    return series.write("search", figures, text)
