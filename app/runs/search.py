"""A search for settings on Optuna: each trial is a run that sees no test row; a final run is measured on it.

Optuna draws the settings. A trial whose process has died goes on with the same settings in the same folder.
"""

import time
from dataclasses import dataclass, replace
from statistics import median
from typing import Any
from warnings import simplefilter

import optuna
import yaml
from filelock import FileLock
from optuna import visualization
from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import Trial, TrialState
from plotly.io import to_html

from ..batching.plan import BatchPlan
from ..checkpoints.run_files import MODEL
from ..config.command_line import load_config
from ..config.schema import TASKS, Config
from ..data.dataset import Dataset, open_dataset
from ..errors import InputError, TrainingError, say
from ..model.checkpoint import checkpoint_place
from ..model.head_choice import with_head
from ..model.recipe import with_recipe
from ..modes.signals import Stopped
from ..report.metrics import BY_KEY
from ..runtime.disk import write_frame, write_text
from .search_space import LEARNING_RATE, SearchedSetting, read_space, with_rate
from .series import Series, as_arguments, read_report
from .study import HEARTBEAT_SECONDS, STUDY, last_tries, open_study, study_errors


def search(series: Series, asked: dict[str, str], num_trials: int) -> str:
    """Run so many trials, until all have ended, also those of other processes with the same search, then the
    final run; return the result as text. `asked` has the values to search. Raises InputError, TrainingError
    where no trial finishes, and Stopped after a signal."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    config = series.config
    space = read_space(asked, series.settings, config.data.task)
    dataset = open_dataset(config.data)
    for split in ("dev", "test"):
        if split not in dataset.splits:
            raise InputError(f"tune needs {split} rows: give data.{split} or data.{split}_size")
    metric = config.train.best_metric
    if metric == "auto":
        metric = TASKS[config.data.task].metrics[0]
    folder = series.folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    # One process at a time makes the folder and its tables, begins a trial, and trains the final run
    lock = FileLock(folder.with_name(f".{folder.name}.lock"))
    first_values = {}
    if LEARNING_RATE in space:
        rate = configured_rate(config, dataset)
        if LEARNING_RATE not in asked:
            space[LEARNING_RATE] = with_rate(space[LEARNING_RATE], rate)
        if space[LEARNING_RATE].has(rate):
            first_values = {LEARNING_RATE: rate}
    searched_values = {name: f"searched in {setting.options}" for name, setting in space.items()}
    with lock:
        series.open(dataset, **searched_values)
        study = open_study(folder, metric)
        if first_values and not study.get_trials(deepcopy=False):
            study.enqueue_trial(first_values)
    with study_errors(folder / STUDY):
        return Search(series, study, space, metric, num_trials, lock).run()


def configured_rate(config: Config, dataset: Dataset) -> float:
    """Return the learning rate of a run with this configuration, as it is set or chosen for the model and the
    data. Raises InputError where the model cannot be read."""
    if config.train.learning_rate is not None:
        return config.train.learning_rate
    table = dataset.files["train"]
    # A trial sets the rate, so it has the head of a run that says how to train
    with_a_rate = replace(config, train=replace(config.train, learning_rate=1.0))
    chosen = with_head(with_a_rate, table.num_rows, len(dataset.label_names), table.has_pairs)
    chosen = replace(chosen, train=config.train)
    place = checkpoint_place(chosen.model, chosen.data.cache_dir)
    plan = BatchPlan(len(dataset.splits["train"]), config.train.batch_size, config.train.seed)
    return with_recipe(chosen, place, plan.steps_per_epoch, table.has_pairs).train.learning_rate


@dataclass(frozen=True)
class Search:
    """A search in the folder of a series, which several processes may share. `lock` is held where a trial
    begins, and in the final run."""

    series: Series
    study: optuna.Study
    space: dict[str, SearchedSetting]
    metric: str
    num_trials: int
    lock: FileLock

    def run(self) -> str:
        """Run the trials and the final run, see `search`."""
        while True:
            fail_stale_trials(self.study)
            self.lock.acquire()
            states = [trial.state for trial in last_tries(self.study)]
            if TrialState.WAITING in states or len(states) < self.num_trials:
                self.study.optimize(self._run_trial, n_trials=1, catch=(TrainingError,))
                continue
            self.lock.release()
            if TrialState.RUNNING in states:
                time.sleep(HEARTBEAT_SECONDS)
            else:
                with self.lock:
                    return self._finish()

    def _run_trial(self, trial: Trial) -> float:
        """Release the lock, train one trial and return its best value on dev. Raises TrainingError and
        Stopped."""
        # Only now do other processes count this trial
        self.lock.release()
        # A trial that is continued has the attributes of its first try
        name = trial.user_attrs.get("run", f"trial-{trial.number:03}")
        trial.set_user_attr("run", name)
        # Without another seed each process of a search, and a continued one, would draw the same values again
        seed = self.series.config.train.seed + trial.number
        trial.study.sampler = optuna.samplers.TPESampler(multivariate=True, seed=seed)
        settings = {key: setting.draw(trial, key) for key, setting in self.space.items()}
        say(f"{name}: {settings}")
        try:
            folder = self.series.run(name, settings | {"verb": {"use_test": False}})
        except Stopped:
            failed_trial = trial.study.tell(trial, state=TrialState.FAIL)
            RetryHeartbeatStaleTrialCallback()(trial.study, failed_trial)
            raise
        except TrainingError as error:
            trial.set_user_attr("error", str(error).partition(". The same command")[0])
            say(f"{name}: failed, and the search goes on: {error}")
            raise
        # The final run has its own weights
        (folder / MODEL).unlink(missing_ok=True)
        return read_report(folder, {self.metric: float})[self.metric]

    def _finish(self) -> str:
        """Train the final run and write all files of the search; return the result as text. There is one
        final run for each best trial: with more trials another one may be the best."""
        folder = self.series.folder
        trials = last_tries(self.study)
        write_frame(folder / "trials.csv", self.study.trials_dataframe())
        finished_values = [trial.value for trial in trials if trial.state == TrialState.COMPLETE]
        if not finished_values:
            raise TrainingError(f"{folder}: no trial has finished, and trials.csv says why; raise --trials")
        best_trial = self.study.best_trial
        best_name = best_trial.user_attrs["run"]
        best_settings = best_trial.params
        self._write_best_settings(best_settings)
        report = read_report(
            self.series.run(best_name.replace("trial", "final"), best_settings),
            {
                self.metric: float,
                "intervals": dict,
                "data": {"dev": {"rows": int}, "test": {"rows": int}},
            },
        )
        data = report["data"]
        optimism = best_trial.value - report[self.metric]
        if not BY_KEY[self.metric].higher_is_better:
            optimism = -optimism
        figures = {
            "metric": self.metric,
            "trials": len(trials),
            "finished": len(finished_values),
            "best_trial": best_name,
            "best_settings": best_settings,
            "best_dev": best_trial.value,
            "median_dev": median(finished_values),
            "final_test": report[self.metric],
            "test_interval": report["intervals"].get(self.metric),
            "rows": {"dev": data["dev"]["rows"], "test": data["test"]["rows"]},
            "optimism": optimism,
        }
        write_text(folder / "history.html", to_html(visualization.plot_optimization_history(self.study)))
        write_text(folder / "settings.html", to_html(visualization.plot_slice(self.study)))
        return self.series.write("search", figures, search_text(figures))

    def _write_best_settings(self, best_settings: dict[str, Any]) -> None:
        """Write best.yaml, from which anyone can train with the best settings."""
        words = [*self.series.settings, *as_arguments(best_settings)]
        settings = load_config(words).to_dict()
        settings["data"].pop("verb")
        output = settings["output"]
        settings["output"] = {"name": output["name"], "language": output["language"]}
        text = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)
        write_text(self.series.folder / "best.yaml", text)


def search_text(figures: dict[str, Any]) -> str:
    """Return for people what a search has found, and by how much it was optimistic."""
    final_run = f"  final run, test             {figures['final_test']:.4f}"
    if figures["test_interval"]:
        low, high = figures["test_interval"]
        final_run += f"   95 % interval {low:.4f} to {high:.4f}"
    rows = figures["rows"]
    lines = [
        f"{figures['trials']} trials on {rows['dev']:,} dev rows, {figures['finished']} finished",
        "",
        f"best settings: {figures['best_settings']}",
        "",
        BY_KEY[figures["metric"]].english,
        f"  best trial ({figures['best_trial']}), dev  {figures['best_dev']:.4f}",
        f"  median finished trial, dev  {figures['median_dev']:.4f}",
        final_run,
        f"  optimism of the search      {figures['optimism']:.4f}",
        "",
        "The best dev value is the best of many, so it is too good. The optimism is this value against that",
        f"of the final run on {rows['test']:,} test rows, which chose nothing.",
    ]
    return "\n".join(lines)
