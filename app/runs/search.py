"""A search for settings on Optuna: each trial is a run that sees no test row; a final run is measured on it.

Optuna keeps the study on the disk, draws the settings, and notices by heartbeats that a process of the search
has died; it then adds that trial again, which goes on with the same settings in the same folder.
"""

import html
import json
import signal
import time
from pathlib import Path
from statistics import median
from typing import Any
from warnings import simplefilter

import optuna
import yaml
from filelock import FileLock
from optuna import visualization
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from ..checkpoints.run_folder import MODEL, REPORT
from ..checkpoints.training_state import drop_states
from ..config.command_line import load_config
from ..config.data_settings import as_number
from ..config.schema import SETTINGS, members
from ..errors import InputError, TrainingError, nearest
from ..report.metrics import BY_KEY
from ..runtime.disk import read_json, write_text
from ..runtime.signals import Stopped
from ..training.log import METRICS_FILE, read_evaluations
from .series import Series, rendered, say

USUAL = {"train.learning_rate": "[1e-5, 5e-4, log]", "train.epochs": "[2, 8]"}
USUAL_LOSSES = {"train.loss": "[cross_entropy, focal]"}  # of tasks that have both
# A lucky seed is no better setting, best_metric judges the trials, and with other rows nothing is comparable
NOT_SEARCHED = ("train.seed", "train.best_metric")
OF_DATA = ("data.max_length", "data.long", "data.max_windows", "data.remove_spaces")
KNOWN = [name for name in SETTINGS if name.startswith(("model.", "train.")) and name not in NOT_SEARCHED]
HEARTBEAT_SECONDS, DEAD_SECONDS = 5, 30


def read_space(
    asked: dict[str, str], settings: list[str], losses: tuple[str, ...]
) -> dict[str, BaseDistribution]:
    """Return the values to search of each setting; where none is `asked` for, the usual ones of settings that
    are not among the words for the trainer, `settings`. `losses` are those of the task. Raises InputError for
    what is no range or cannot be searched, and for a value that is not allowed."""
    fixed = {word[2:].partition("=")[0] for word in settings if word.startswith("--")}
    usual = USUAL | (USUAL_LOSSES if "focal" in losses else {})
    asked = asked or {name: text for name, text in usual.items() if name not in fixed}
    if not asked or fixed & set(asked):
        both = ", ".join(sorted(fixed & set(asked or usual)))
        raise InputError(f"a setting is either fixed or searched, and {both} would be both; leave one out")
    space = {name: parse_values(name, text) for name, text in asked.items()}
    for name, values in space.items():
        for value in getattr(values, "choices", None) or (values.low, values.high):
            load_config([*settings, *as_words({name: value})])
    return space


def parse_values(name: str, text: str) -> BaseDistribution:
    """Return the values to search of a setting: two numbers are a range, all else is a choice."""
    known = (*KNOWN, *OF_DATA)
    if name not in known and not name.startswith("model.config."):
        raise InputError(
            f"--space {name}: there is no setting '{name}' to search{nearest(name, known)}; settings of "
            f"train and model are, but {' and '.join(NOT_SEARCHED)}, and of data {', '.join(OF_DATA)}"
        )
    try:
        values = [as_number(one) for one in yaml.safe_load(text)]
        is_log = values[-1] == "log"
        values = values[:-1] if is_log else values
        if len(values) < 2 or len({repr(one) for one in values}) < len(values):
            raise ValueError("two or more different values are needed")
        if len(values) > 2 or not all(type(one) in (int, float) for one in values):
            return CategoricalDistribution(values)
        is_whole = all(isinstance(one, int) for one in values) and float not in members(SETTINGS.get(name))
        return (IntDistribution if is_whole else FloatDistribution)(*values, log=is_log)
    except (ValueError, TypeError, LookupError, yaml.YAMLError) as error:
        rule = f"the values of {name} to search must be a list, as in [1e-5, 5e-4], [1e-5, 5e-4, log] or"
        raise InputError(f"{rule} [cross_entropy, focal]; found {text}: {error}") from error


def as_words(values: dict[str, Any]) -> list[str]:
    """Return settings as the command line has them."""
    words = {name: value if isinstance(value, str) else json.dumps(value) for name, value in values.items()}
    return [word for name, value in words.items() for word in (f"--{name}", value)]


class Search:
    """`count` trials in the folder of `series`, judged by `metric` on dev; `space` has the values of the
    settings that are searched. Several processes may run the same search. Raises InputError where the folder
    has another one, or other files."""

    def __init__(self, series: Series, space: dict[str, BaseDistribution], metric: str, count: int) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self.series, self.space, self.metric, self.count = series, space, metric, count
        self.sign = 1 if BY_KEY[metric].higher_is_better else -1
        folder = series.folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        # One process at a time makes the folder and its tables, and trains the final run
        self.lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        with self.lock:
            series.open({name: f"searched in {values}" for name, values in space.items()})
            self.study = optuna.create_study(
                storage=RDBStorage(
                    f"sqlite:///{(folder / 'study.db').resolve()}",
                    engine_kwargs={"connect_args": {"timeout": 120}},
                    heartbeat_interval=HEARTBEAT_SECONDS,
                    grace_period=DEAD_SECONDS,
                    heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
                ),
                # The first evaluation says little about the last one
                pruner=optuna.pruners.MedianPruner(n_warmup_steps=2),
                study_name="search",
                direction="maximize" if self.sign > 0 else "minimize",
                load_if_exists=True,
            )

    def run(self) -> str:
        """Run trials until all have ended, also those of other processes, then the final run; return the
        result as text. Raises TrainingError where no trial finishes, and Stopped after a signal."""
        while True:
            fail_stale_trials(self.study)
            states = [trial.state for trial in self.last_tries()]
            if TrialState.WAITING in states or len(states) < self.count:
                self.study.optimize(self.run_trial, n_trials=1, catch=(TrainingError,))
            elif TrialState.RUNNING in states:
                time.sleep(HEARTBEAT_SECONDS)
            else:
                break
        with self.lock:
            return self.finish()

    def last_tries(self) -> list[FrozenTrial]:
        """Return the trials in the order in which they began; of one that was continued the last try."""
        first, tries = RetryHeartbeatStaleTrialCallback.retried_trial_number, {}
        for trial in self.study.get_trials(deepcopy=False):
            number = first(trial)
            tries[trial.number if number is None else number] = trial
        return list(tries.values())

    def run_trial(self, trial: Trial) -> float:
        """Train one trial and return its best value on dev; raises TrialPruned, TrainingError and Stopped."""
        number = [one.number for one in self.last_tries()].index(trial.number)
        # Without another seed each process of a search, and a continued one, would draw the same values again
        seed = self.series.config.train.seed + number
        self.study.sampler = optuna.samplers.TPESampler(multivariate=True, seed=seed)
        params = {}
        for key, values in self.space.items():
            if isinstance(values, CategoricalDistribution):
                params[key] = trial.suggest_categorical(key, values.choices)
            else:
                suggest = trial.suggest_int if isinstance(values, IntDistribution) else trial.suggest_float
                params[key] = suggest(key, values.low, values.high, log=values.log)
        name = f"trial-{number:03}"
        folder, found, is_pruned = self.series.folder / name, [], False
        say(f"{name}: {settings_text(params)}")

        def is_hopeless() -> bool:
            nonlocal is_pruned
            evaluations = read_evaluations(folder / METRICS_FILE)
            for one in [one for one in evaluations if one["split"] == "dev"][len(found) :]:
                found.append(one[self.metric])
                trial.report(found[-1], len(found))
                is_pruned = is_pruned or trial.should_prune()
            return is_pruned

        try:
            self.series.run(name, [*as_words(params), "--verb", "{use_test: false}"], is_hopeless)
            is_hopeless()
        except (Stopped, KeyboardInterrupt) as stop:
            RetryHeartbeatStaleTrialCallback()(self.study, self.study.tell(trial, state=TrialState.FAIL))
            raise Stopped(getattr(stop, "number", signal.SIGINT)) from stop
        except TrainingError as error:
            drop_weights(folder)
            trial.set_user_attr("error", str(error).partition(". The same command")[0])
            say(f"{name}: failed, and the search goes on: {error}")
            raise
        drop_weights(folder)
        best = self.sign * max(self.sign * value for value in found)
        say(f"{name}: {'pruned' if is_pruned else 'finished'}, {self.metric} on dev {best:.4f}")
        if is_pruned:
            raise optuna.TrialPruned
        return best

    def finish(self) -> str:
        """Train the final run and write all files of the search; return the result as text. There is one
        final run for each best trial: with more trials another one may be the best."""
        folder, metric, trials = self.series.folder, self.metric, self.last_tries()
        numbers, states = [trial.number for trial in trials], [trial.state.name.lower() for trial in trials]
        table = self.study.trials_dataframe(("number", "state", "value", "duration", "params", "user_attrs"))
        table = table.set_index("number").loc[numbers].reset_index(drop=True)
        table.columns = [name.removeprefix("params_").removeprefix("user_attrs_") for name in table.columns]
        write_text(folder / "trials.csv", table.to_csv(index_label="trial"))
        finished = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        if not finished:
            raise TrainingError(f"{folder}: no trial has finished, and trials.csv says why; raise --trials")
        best = self.study.best_trial
        number, words = numbers.index(best.number), as_words(best.params)
        settings = load_config([*self.series.settings, *words]).to_dict()
        settings["data"].pop("verb")
        settings["output"] = {key: settings["output"][key] for key in ("name", "language")}
        note = f"# trial-{number:03}: {metric} on dev {best.value:.4f}\n"
        write_text(folder / "best.yaml", note + yaml.safe_dump(settings, allow_unicode=True, sort_keys=False))
        name = f"final-{number:03}"
        self.series.run(name, words)
        report = read_json(folder / name / REPORT)
        figures = {
            "metric": metric,
            "trials": {state: states.count(state) for state in sorted(set(states))},
            "best_trial": number,
            "best_settings": best.params,
            "best_dev": best.value,
            "median_dev": median(finished),
            "final_run": name,
            "final_test": report[metric],
            "test_interval": report["intervals"].get(metric),
            "rows": {of: report["data"][of]["rows"] for of in ("dev", "test")},
            "optimism": (best.value - report[metric]) * self.sign,
        }
        best_settings = settings_text(best.params)
        text = rendered("search", best=best_settings, name=BY_KEY[metric].english, **figures)
        self.series.write("search", figures, text)
        charts = [visualization.plot_optimization_history(self.study), visualization.plot_slice(self.study)]
        charts.append(visualization.plot_intermediate_values(self.study))
        parts = [chart.to_html(full_html=False, include_plotlyjs=chart is charts[0]) for chart in charts]
        head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(folder.name)}</title>'
        write_text(folder / "search.html", "\n".join([head, f"<pre>{html.escape(text)}</pre>", *parts]))
        return f"{text}\n\nWritten into {folder}: best.yaml, trials.csv, search.html, {name}"


def drop_weights(folder: Path) -> None:
    """Remove the weights of a trial; the final run has its own."""
    (folder / MODEL).unlink(missing_ok=True)
    drop_states(folder, keep=0)


def settings_text(params: dict) -> str:
    """Return settings for people, numbers with four digits."""
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())
