"""A search for settings on Optuna: each trial is a run that sees no test row; a final run is measured on it.

Optuna keeps the study on the disk, draws the settings, and notices by heartbeats that a process of the search
has died; Optuna then adds its trial again, which goes on with the same settings in the same folder.
"""

import html
import json
import math
import signal
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from warnings import simplefilter

import optuna
import yaml
from filelock import FileLock
from optuna import visualization
from optuna.distributions import BaseDistribution
from optuna.samplers import GPSampler, RandomSampler, TPESampler
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, Trial, TrialState

from ..checkpoints.run_folder import MODEL, REPORT
from ..checkpoints.training_state import drop_states
from ..config.command_line import load_config
from ..config.schema import Config
from ..errors import TrainingError
from ..report.bootstrap import all_metrics
from ..report.logits_file import read_run
from ..report.metrics import BY_KEY
from ..runtime.disk import write_text
from ..runtime.signals import Stopped
from ..text_table import text_table
from ..training.log import METRICS, read_evaluations
from .search_space import as_words, draw
from .series import Series, open_series, say, write_figures

SAMPLERS = {"tpe": partial(TPESampler, multivariate=True), "gp": GPSampler, "random": RandomSampler}
PRUNERS = {
    # The first evaluation says little about the last one
    "median": partial(optuna.pruners.MedianPruner, n_warmup_steps=2),
    "halving": optuna.pruners.SuccessiveHalvingPruner,
    "none": optuna.pruners.NopPruner,
}
HEARTBEAT_SECONDS, DEAD_SECONDS = 5, 30
ALL_FAILED = 3  # failures and no success: the fault is not in what is searched
COMPLETE, FAIL = TrialState.COMPLETE, TrialState.FAIL


@dataclass(frozen=True)
class Search:
    """`count` trials in the folder of `series`, judged by `metric` on dev; `space` has the values of the
    settings that are searched, `sampler` and `pruner` are keys of SAMPLERS and PRUNERS."""

    series: Series
    space: dict[str, BaseDistribution]
    metric: str
    count: int
    sampler: str
    pruner: str
    seed: int


def run_search(search: Search, config: Config) -> str:
    """Run trials until all have ended, also those of other processes, then the final run; return the result
    as text. Raises InputError where the folder has another search or other files, TrainingError where every
    trial fails, and Stopped after a signal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    folder = search.series.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One process at a time makes the folder and its tables, and trains the final run
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    with lock:
        open_series(search.series, config, {name: f"searched in {one}" for name, one in search.space.items()})
        storage = RDBStorage(
            f"sqlite:///{(folder / 'study.db').resolve()}",
            engine_kwargs={"connect_args": {"timeout": 120}},
            heartbeat_interval=HEARTBEAT_SECONDS,
            grace_period=DEAD_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )
        direction = "maximize" if BY_KEY[search.metric].higher_is_better else "minimize"
        study = optuna.create_study(
            storage=storage,
            sampler=SAMPLERS[search.sampler](seed=search.seed),
            pruner=PRUNERS[search.pruner](),
            study_name="search",
            direction=direction,
            load_if_exists=True,
        )
    while True:
        fail_stale_trials(study)
        states = [trial.state for trial in last_tries(study)]
        if TrialState.WAITING in states or len(states) < search.count:
            study.optimize(partial(run_trial, search, study), n_trials=1, catch=(TrainingError,))
            tries = last_tries(study)
            if len(tries) >= ALL_FAILED and all(trial.state == FAIL for trial in tries):
                raise TrainingError(
                    f"the first {len(tries)} trials have failed, so the fault is hardly in what is searched: "
                    f"{tries[-1].user_attrs.get('error')}. Mend it, and choose another output.dir"
                )
        elif TrialState.RUNNING in states:
            time.sleep(HEARTBEAT_SECONDS)
        else:
            break
    with lock:
        return finish(search, study)


def last_tries(study: optuna.Study) -> list[FrozenTrial]:
    """Return the trials in the order in which they began; of one that was continued the last try."""
    first = RetryHeartbeatStaleTrialCallback.retried_trial_number
    tries = study.get_trials(deepcopy=False)
    return list(
        {first(trial) if first(trial) is not None else trial.number: trial for trial in tries}.values()
    )


def run_trial(search: Search, study: optuna.Study, trial: Trial) -> float:
    """Train one trial and return its best value on dev; raises TrialPruned, TrainingError and Stopped."""
    number = [one.number for one in last_tries(study)].index(trial.number)
    # Without another seed each process of a search, and a continued one, would draw the same values again
    study.sampler = SAMPLERS[search.sampler](seed=search.seed + number)
    params = {name: draw(trial, name, values) for name, values in search.space.items()}
    name = f"trial-{number:03}"
    folder = search.series.path(name)
    say(f"{name}: {settings_text(params)}")
    values: list[float] = []
    verdicts: list[bool] = []

    def is_hopeless() -> bool:
        evaluations = read_evaluations(folder / METRICS, (search.metric,))
        for one in [one for one in evaluations if one["split"] == "dev"][len(values) :]:
            if not any(verdicts):
                values.append(one[search.metric])
                trial.report(values[-1], len(values))
                verdicts.append(trial.should_prune())
        return any(verdicts)

    try:
        words = [*as_words(params), "--verb", "{use_test: false}"]
        is_pruned = not search.series.run(name, words, is_hopeless) or is_hopeless()
        if not values:
            raise TrainingError("it has not evaluated dev")
    except (Stopped, KeyboardInterrupt) as stop:
        RetryHeartbeatStaleTrialCallback()(study, study.tell(trial, state=FAIL))
        raise Stopped(getattr(stop, "number", signal.SIGINT)) from stop
    except TrainingError as error:
        trial.set_user_attr("error", str(error).partition(". The same command")[0])
        say(f"{name}: failed, and the search goes on: {error}")
        remove_weights(folder)
        raise
    best = max(values) if BY_KEY[search.metric].higher_is_better else min(values)
    say(f"{name}: {'pruned' if is_pruned else 'finished'}, {search.metric} on dev {best:.4f}")
    remove_weights(folder)
    if is_pruned:
        raise optuna.TrialPruned
    return best


def settings_text(params: dict) -> str:
    """Return settings for people, numbers with four digits."""
    shown = {name: f"{value:.4g}" if isinstance(value, float) else value for name, value in params.items()}
    return ", ".join(f"{name} {value}" for name, value in shown.items())


def remove_weights(folder: Path) -> None:
    """Remove the weights of a trial; the final run has its own."""
    (folder / MODEL).unlink(missing_ok=True)
    if folder.exists():
        drop_states(folder, keep=0)


def finish(search: Search, study: optuna.Study) -> str:
    """Train the final run and write all files of the search; return the result as text. There is one final
    run for each best trial: with more trials another one may be the best."""
    folder, trials = search.series.folder, last_tries(study)
    table = study.trials_dataframe(("number", "state", "value", "duration", "params", "user_attrs"))
    table = table.set_index("number").loc[[trial.number for trial in trials]]
    table.columns = [name.removeprefix("params_").removeprefix("user_attrs_") for name in table.columns]
    table.insert(0, "trial", range(len(trials)))
    write_text(folder / "trials.csv", table.to_csv(index=False))
    finished = [trial.value for trial in trials if trial.state == COMPLETE]
    if not finished:
        raise TrainingError(
            "no trial has finished; trials.csv says why; raise --trials, or set --pruner none"
        )
    best = study.best_trial
    number = [trial.number for trial in trials].index(best.number)
    words, name = as_words(best.params), f"final-{number:03}"
    settings = load_config([*search.series.settings, *words]).to_dict()
    settings["data"].pop("verb")
    settings["output"] = {key: settings["output"][key] for key in ("name", "language")}
    note = f"# trial-{number:03}: {search.metric} on dev {best.value:.4f}\n"
    write_text(folder / "best.yaml", note + yaml.safe_dump(settings, allow_unicode=True, sort_keys=False))
    search.series.run(name, words)
    task, splits = read_run(folder / name)
    test = json.loads((folder / name / REPORT).read_text(encoding="utf-8"))[search.metric]
    measured = [all_metrics(task, task.score(splits[of].labels, splits[of].logits)) for of in ("dev", "test")]
    intervals = [metrics["intervals"].get(search.metric) for metrics in measured]
    optimism = (best.value - test) * (1 if BY_KEY[search.metric].higher_is_better else -1)
    # The width is that of the difference of two normal distributions.
    width = math.hypot(*((high - low) / 2 for low, high in filter(None, intervals)))
    states = [trial.state.name.lower() for trial in trials]
    figures = {
        "metric": search.metric,
        "trials": {state: states.count(state) for state in sorted(set(states))},
        "best_trial": number,
        "best_settings": best.params,
        "best_dev": best.value,
        "median_dev": median(finished),
        "final_run": name,
        "final_dev": measured[0].get(search.metric),
        "final_test": test,
        "test_interval": intervals[1],
        "rows": {of: len(split) for of, split in splits.items()},
        "optimism": {"value": optimism, "interval": intervals[1] and [optimism - width, optimism + width]},
    }
    text = render_search(figures)
    write_figures(folder, "search", figures, text)
    charts = [
        visualization.plot_optimization_history(study, target_name=search.metric),
        visualization.plot_slice(study, target_name=search.metric),
        visualization.plot_intermediate_values(study),
    ]
    parts = [chart.to_html(full_html=False, include_plotlyjs=chart is charts[0]) for chart in charts]
    head = f'<!doctype html><meta charset="utf-8"><title>{html.escape(folder.name)}</title>'
    write_text(folder / "search.html", "\n".join([head, f"<pre>{html.escape(text)}</pre>", *parts]))
    return f"{text}\n\nWritten into {folder}: best.yaml, trials.csv, search.html, {name}"


def render_search(figures: dict) -> str:
    """Return the figures as text."""

    def line(name: str, value: str, ends: list[float] | None = None) -> list[str]:
        return [name, value, "{:.4f} to {:.4f}".format(*ends) if ends else ""]

    optimism = figures["optimism"]
    rows = [
        line(f"best trial ({figures['best_trial']}), dev", f"{figures['best_dev']:.4f}"),
        line("median finished trial, dev", f"{figures['median_dev']:.4f}"),
        line("final run, test", f"{figures['final_test']:.4f}", figures["test_interval"]),
        line("optimism of the search", f"{optimism['value']:+.4f}", optimism["interval"]),
    ]
    states = ", ".join(f"{count} {state}" for state, count in figures["trials"].items())
    lines = [
        f"{sum(figures['trials'].values())} trials on {figures['rows']['dev']:,} dev rows: {states}",
        f"best settings: {settings_text(figures['best_settings'])}",
        "",
        text_table(["", BY_KEY[figures["metric"]].english, "95 % interval"], rows),
        "",
        "The best dev value is the best of many, so it is too good. The optimism is this value against that",
        f"of the final run on {figures['rows']['test']:,} test rows, which chose nothing.",
    ]
    return "\n".join(lines)
