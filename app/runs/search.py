"""A search for settings on Optuna: each trial is a run that sees no test row; a final run is measured on it.

Optuna keeps the study on the disk, draws the settings, and notices by heartbeats that a process of the search
has died; it then adds that trial again, which goes on with the same settings in the same folder.
"""

import html
import math
import signal
import time
from functools import partial
from pathlib import Path
from statistics import median
from warnings import simplefilter

import optuna
import yaml
from filelock import FileLock
from optuna import visualization
from optuna.distributions import BaseDistribution
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from ..checkpoints.run_folder import MODEL, REPORT
from ..checkpoints.training_state import drop_states
from ..config.command_line import load_config
from ..errors import TrainingError
from ..report.bootstrap import all_metrics
from ..report.logits_file import read_run
from ..report.metrics import BY_KEY
from ..runtime.disk import read_json, write_text
from ..runtime.signals import Stopped
from ..training.log import METRICS_FILE, read_evaluations
from .search_space import as_words, draw
from .series import Series, rendered, say, table

PRUNERS = {
    # The first evaluation says little about the last one
    "median": partial(optuna.pruners.MedianPruner, n_warmup_steps=2),
    "none": optuna.pruners.NopPruner,
}
HEARTBEAT_SECONDS, DEAD_SECONDS = 5, 30


class Search:
    """`count` trials in the folder of `series`, judged by `metric` on dev; `space` has the values of the
    settings that are searched. Several processes may run the same search. Raises InputError where the folder
    has another one, or other files."""

    def __init__(
        self, series: Series, space: dict[str, BaseDistribution], metric: str, count: int, pruner: str
    ) -> None:
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        self.series, self.space, self.metric, self.count = series, space, metric, count
        self.sign = 1 if BY_KEY[metric].higher_is_better else -1
        folder = series.folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        # One process at a time makes the folder and its tables, and trains the final run
        self.lock = FileLock(folder.with_name(f".{folder.name}.lock"))
        with self.lock:
            searched = {name: f"searched in {values}" for name, values in space.items()}
            series.open({**searched, "--pruner": pruner})
            storage = RDBStorage(
                f"sqlite:///{(folder / 'study.db').resolve()}",
                engine_kwargs={"connect_args": {"timeout": 120}},
                heartbeat_interval=HEARTBEAT_SECONDS,
                grace_period=DEAD_SECONDS,
                heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
            )
            direction = "maximize" if self.sign > 0 else "minimize"
            options = {"pruner": PRUNERS[pruner](), "direction": direction, "load_if_exists": True}
            self.study = optuna.create_study(storage=storage, study_name="search", **options)

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
        params = {name: draw(trial, name, values) for name, values in self.space.items()}
        name = f"trial-{number:03}"
        folder, values, is_pruned = self.series.folder / name, [], False
        say(f"{name}: {settings_text(params)}")

        def is_hopeless() -> bool:
            nonlocal is_pruned
            evaluations = read_evaluations(folder / METRICS_FILE)
            for one in [one for one in evaluations if one["split"] == "dev"][len(values) :]:
                values.append(one[self.metric])
                trial.report(values[-1], len(values))
                is_pruned = is_pruned or trial.should_prune()
            return is_pruned

        try:
            self.series.run(name, [*as_words(params), "--verb", "{use_test: false}"], is_hopeless)
            is_hopeless()
        except (Stopped, KeyboardInterrupt) as stop:
            RetryHeartbeatStaleTrialCallback()(self.study, self.study.tell(trial, state=TrialState.FAIL))
            raise Stopped(getattr(stop, "number", signal.SIGINT)) from stop
        except TrainingError as error:
            trial.set_user_attr("error", str(error).partition(". The same command")[0])
            say(f"{name}: failed, and the search goes on: {error}")
            remove_weights(folder)
            raise
        remove_weights(folder)
        best = self.sign * max(self.sign * value for value in values)
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
        table = table.set_index("number").loc[numbers]
        table.columns = [name.removeprefix("params_").removeprefix("user_attrs_") for name in table.columns]
        table.insert(0, "trial", range(len(trials)))
        write_text(folder / "trials.csv", table.to_csv(index=False))
        finished = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        if not finished:
            why = "trials.csv says why; raise --trials, or set --pruner none"
            raise TrainingError(f"{folder}: no trial has finished; {why}")
        best = self.study.best_trial
        number, words = numbers.index(best.number), as_words(best.params)
        settings = load_config([*self.series.settings, *words]).to_dict()
        settings["data"].pop("verb")
        settings["output"] = {key: settings["output"][key] for key in ("name", "language")}
        note = f"# trial-{number:03}: {metric} on dev {best.value:.4f}\n"
        write_text(folder / "best.yaml", note + yaml.safe_dump(settings, allow_unicode=True, sort_keys=False))
        name = f"final-{number:03}"
        self.series.run(name, words)
        task, splits = read_run(folder / name)
        test = read_json(folder / name / REPORT)[metric]
        dev_metrics, test_metrics = (
            all_metrics(task, task.score(splits[of].labels, splits[of].logits)) for of in ("dev", "test")
        )
        ends = [metrics["intervals"].get(metric) for metrics in (dev_metrics, test_metrics)]
        optimism = (best.value - test) * self.sign
        # The width is that of the difference of two normal distributions
        width = math.hypot(*((high - low) / 2 for low, high in filter(None, ends)))
        figures = {
            "metric": metric,
            "trials": {state: states.count(state) for state in sorted(set(states))},
            "best_trial": number,
            "best_settings": best.params,
            "best_dev": best.value,
            "median_dev": median(finished),
            "final_run": name,
            "final_dev": dev_metrics.get(metric),
            "final_test": test,
            "test_interval": ends[1],
            "rows": {of: len(split) for of, split in splits.items()},
            "optimism": {"value": optimism, "interval": ends[1] and [optimism - width, optimism + width]},
        }
        text = render_search(figures)
        self.series.write("search", figures, text)
        charts = [
            visualization.plot_optimization_history(self.study, target_name=metric),
            visualization.plot_slice(self.study, target_name=metric),
            visualization.plot_intermediate_values(self.study),
        ]
        parts = [chart.to_html(full_html=False, include_plotlyjs=chart is charts[0]) for chart in charts]
        head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(folder.name)}</title>'
        write_text(folder / "search.html", "\n".join([head, f"<pre>{html.escape(text)}</pre>", *parts]))
        return f"{text}\n\nWritten into {folder}: best.yaml, trials.csv, search.html, {name}"


def remove_weights(folder: Path) -> None:
    """Remove the weights of a trial; the final run has its own."""
    (folder / MODEL).unlink(missing_ok=True)
    if folder.exists():
        drop_states(folder, keep=0)


def settings_text(params: dict) -> str:
    """Return settings for people, numbers with four digits."""
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def render_search(figures: dict) -> str:
    """Return the figures as text."""
    optimism, interval = figures["optimism"].values()
    rows = {
        f"best trial ({figures['best_trial']}), dev": [figures["best_dev"], None],
        "median finished trial, dev": [figures["median_dev"], None],
        "final run, test": [figures["final_test"], figures["test_interval"]],
        "optimism of the search": [optimism, interval],
    }
    for values in rows.values():
        values[1] = "{:.4f} to {:.4f}".format(*values[1]) if values[1] else ""
    shown = table([BY_KEY[figures["metric"]].english, "95 % interval"], rows)
    best = settings_text(figures["best_settings"])
    return rendered("search", table=shown, best=best, **figures)
