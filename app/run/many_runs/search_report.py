"""What a search has found: the best settings, one final run with them, and how optimistic the search was."""

import csv
import io
import json
import math
from pathlib import Path
from statistics import median

import yaml
from optuna.trial import FrozenTrial, TrialState

from ...checkpoints.run_files import REPORT
from ...config.command_line import load_config
from ...errors import TrainingError
from ...report.bootstrap import seed_variance
from ...report.logits_file import read_run
from ...report.metrics import BY_KEY, measure
from ...report.page import Axes, around, page_environment
from ...runtime.disk import write_text
from ...text_table import text_table
from .search import SHOWN, Search, settings_text, shown, words_of
from .search_space import without_defaults
from .series import write_figures
from .study import own_lock

BEST, TRIALS, PAGE = "best.yaml", "trials.csv", "search.html"
TEMPLATES = Path(__file__).parent
# Standard errors on each side of a 95 % interval
NORMAL = 1.96


def best_trial(search: Search) -> FrozenTrial:
    """Return the trial with the best dev value, the first of equals; raises TrainingError without one."""
    finished = [trial for trial in search.trials if trial.state == TrialState.COMPLETE]
    if not finished:
        raise TrainingError(f"no trial has finished; {TRIALS} says why; raise --trials, or set --pruner none")
    sign = 1 if BY_KEY[search.metric].higher_is_better else -1
    return max(finished, key=lambda trial: sign * trial.value)


def write_trials(search: Search) -> None:
    """Write trials.csv: a row for each trial, with its settings and its best dev value."""
    names = [one.name for one in search.space]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["trial", "state", search.metric, "evaluations", "seconds", *names, "error"])
    for trial in search.trials:
        seconds = f"{trial.duration.total_seconds():.0f}" if trial.duration else ""
        row = [
            trial.number,
            SHOWN[trial.state],
            search.best_of(trial),
            len(trial.intermediate_values),
            seconds,
        ]
        row += [trial.params.get(name) for name in names]
        writer.writerow([*row, trial.user_attrs.get("error", "")])
    write_text(search.series.folder / TRIALS, text.getvalue())


def finish_once(search: Search) -> str:
    """Call `finish` in the last process of a search; return what others say."""
    lock = own_lock(search.series.folder / ".final.lock")
    running = sum(trial.state == TrialState.RUNNING for trial in search.trials)
    if running or lock is None:
        what = f"{running} of its trials" if running else "its final run"
        return f"There is nothing left to do here: {what} still trains in another process of this search."
    try:
        return finish(search)
    finally:
        lock.release()


def finish(search: Search) -> str:
    """Train the final run and write all files of the search; return the result as text. There is one final
    run for each best trial: with more trials another one may be the best."""
    write_trials(search)
    folder, trial = search.series.folder, best_trial(search)
    settings = [*search.series.settings, *words_of(trial.params)]
    best = yaml.safe_dump(without_defaults(load_config(settings)), allow_unicode=True, sort_keys=False)
    write_text(folder / BEST, f"# Trial {trial.number}: {search.metric} on dev {trial.value:.4f}\n{best}")
    name = f"final-{trial.number:03}"
    search.series.run(name, words_of(trial.params))
    figures = search_figures(search, trial, name)
    text = render_search(figures)
    write_figures(folder, "search", figures, text)
    write_text(folder / PAGE, render_search_page(search, figures, text))
    return f"{text}\n\nWritten into {folder}: {BEST}, {TRIALS}, {PAGE}, {name}"


def search_figures(search: Search, trial: FrozenTrial, name: str) -> dict:
    """Return the figures of a search as JSON has them. The interval of the optimism is a normal one, from the
    bootstrap over dev rows and that over test rows."""
    run, metric = search.series.path(name), search.metric
    task, splits = read_run(run)
    scores = {split: task.score(splits[split].labels, splits[split].logits) for split in ("dev", "test")}
    measured = {split: measure(task, of_split) for split, of_split in scores.items()}
    variances = {split: seed_variance(task, [of_split]).get(metric) for split, of_split in scores.items()}
    report = json.loads((run / REPORT).read_text(encoding="utf-8"))
    test = measured["test"].get(metric, report.get(metric))
    sign = 1 if BY_KEY[metric].higher_is_better else -1
    optimism = {"value": sign * (trial.value - test)}
    if variances["test"]:
        error = NORMAL * math.hypot(*(of["sampling_standard_deviation"] for of in variances.values()))
        optimism["interval"] = [optimism["value"] - error, optimism["value"] + error]
    finished = [one.value for one in search.trials if one.state == TrialState.COMPLETE]
    states = [SHOWN[one.state] for one in search.trials]
    return {
        "metric": metric,
        "space": {one.name: str(one) for one in search.space},
        "trials": {state: states.count(state) for state in SHOWN.values() if state in states},
        "best_trial": trial.number,
        "best_settings": trial.params,
        "best_dev": trial.value,
        "median_dev": median(finished),
        "final_run": name,
        "final_dev": measured["dev"].get(metric),
        "final_test": test,
        "test_interval": variances["test"] and variances["test"]["sampling_interval"],
        "rows": {split: len(of_split) for split, of_split in splits.items()},
        "optimism": optimism,
        "final_runs": sorted(path.name for path in search.series.folder.glob("final-*") if path.is_dir()),
    }


def render_search(figures: dict) -> str:
    """Return the figures as text."""
    name = BY_KEY[figures["metric"]].english
    states = ", ".join(f"{count} {state}" for state, count in figures["trials"].items())
    rows = [
        [f"best trial ({figures['best_trial']}), dev", f"{figures['best_dev']:.4f}", ""],
        ["median finished trial, dev", f"{figures['median_dev']:.4f}", ""],
        ["final run, test", f"{figures['final_test']:.4f}", _interval(figures["test_interval"])],
        [
            "optimism of the search",
            f"{figures['optimism']['value']:+.4f}",
            _interval(figures["optimism"].get("interval")),
        ],
    ]
    lines = [
        f"{sum(figures['trials'].values())} trials on {figures['rows']['dev']:,} dev rows: {states}",
        f"best settings: {settings_text(figures['best_settings'])}",
        "",
        text_table(["", name, "95 % interval"], rows),
        "",
        "The best dev value is the best of many, so it is too good. The optimism is this value against that",
        f"of the final run on {figures['rows']['test']:,} test rows, which chose nothing.",
    ]
    if len(figures["final_runs"]) > 1:
        lines.append(
            f"This search has made {len(figures['final_runs'])} final runs; whoever chooses among them by "
            "their test values chooses on test."
        )
    return "\n".join(lines)


def _interval(ends: list[float] | None) -> str:
    return f"{ends[0]:.4f} to {ends[1]:.4f}" if ends else ""


def render_search_page(search: Search, figures: dict, text: str) -> str:
    """Return search.html: the figures, the dev value of each trial, and the table of the trials."""
    judged = [(trial, search.best_of(trial)) for trial in search.trials]
    points = [(trial.number, value, trial.state.name) for trial, value in judged if value is not None]
    axes = Axes(0, max(1, len(judged) - 1), *around([value for _, value, _ in points]))
    names = list(figures["space"])
    page = {
        "page_title": f"{search.series.folder.name} · {', '.join(names)}",
        "figures": figures,
        "metric": BY_KEY[figures["metric"]].name,
        "note": text.splitlines()[-1],
        "axes": axes,
        "points": [(axes.x(number), axes.y(value), state) for number, value, state in points],
        "names": names,
        "rows": [
            (
                trial.number,
                SHOWN[trial.state],
                "" if value is None else shown(value),
                [shown(trial.params.get(name)) for name in names],
            )
            for trial, value in judged
        ],
    }
    return page_environment(TEMPLATES).get_template("search_page.html.jinja").render(page)
