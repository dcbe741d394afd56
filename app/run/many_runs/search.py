"""A search by Optuna: each trial is a run that sees no test row; any number of processes share a study."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.trial import FrozenTrial, Trial, TrialState

from ...checkpoints.run_files import MODEL
from ...checkpoints.run_folder import LOCK
from ...checkpoints.training_state import drop_states
from ...errors import TrainingError
from ...report.metrics import is_better
from ...training.log.metrics_file import METRICS, parse_line
from .search_space import Range, word
from .series import Series, say
from .study import own_lock, study_lock

WITHOUT_TEST = ["--verb", "{use_test: false}"]
# So many failures and no success: the fault is not in what is searched
ALL_FAILED = 3
# Attribute of a trial that is to be pruned: a search that resumes after `kill -9` prunes it
PRUNED = "pruned"
SHOWN = {
    TrialState.COMPLETE: "finished",
    TrialState.PRUNED: "pruned",
    TrialState.FAIL: "failed",
    TrialState.RUNNING: "running",
}


@dataclass(frozen=True)
class Search:
    """A search in the folder of `series`, by `metric` on dev, over `space`, of `count` trials."""

    series: Series
    space: list[Range]
    metric: str
    count: int
    study: optuna.Study

    def path(self, number: int) -> Path:
        """Return the run folder of a trial."""
        return self.series.path(name_of(number))

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials, by their number."""
        return self.study.get_trials(deepcopy=False)

    def best_of(self, trial: FrozenTrial) -> float | None:
        """Return the best dev value of a trial, or None where it has none."""
        best = None
        for value in trial.intermediate_values.values():
            best = value if is_better(value, best, self.metric) else best
        return best


def name_of(number: int) -> str:
    """Return the name of a trial's run folder."""
    return f"trial-{number:03}"


def words_of(params: dict[str, Any]) -> list[str]:
    """Return the settings of a trial as the command line has them."""
    return [item for name, value in params.items() for item in (f"--{name}", word(value))]


def settings_text(params: dict[str, Any]) -> str:
    """Return settings for people."""
    return ", ".join(f"{name} {shown(value)}" for name, value in params.items())


def shown(value: Any) -> str:
    """Return the value of a setting, a number with four digits."""
    return f"{value:.4g}" if isinstance(value, float) else word(value)


def run_trials(search: Search) -> None:
    """Run trials until there are `count`; those of dead processes are continued. Raises TrainingError where
    every trial fails, and Stopped after a signal: that trial is continued later."""
    while taken := next_trial(search):
        trial, lock = taken
        try:
            run_trial(search, trial)
        finally:
            lock.release()
        check_not_all_failed(search.trials)


def check_not_all_failed(trials: list[FrozenTrial]) -> None:
    """Raise TrainingError where the first trials have failed and none has not."""
    errors = [trial.user_attrs.get("error") for trial in trials if trial.state == TrialState.FAIL]
    if len(errors) >= ALL_FAILED and len(errors) == len(trials):
        raise TrainingError(
            f"the first {len(errors)} trials have failed, so the fault is hardly in what is searched: "
            f"{errors[-1]}. Mend it, and choose another output.dir"
        )


def next_trial(search: Search) -> tuple[Trial, FileLock] | None:
    """Return a trial and its lock: one whose process has died, or a new one; None where there are enough."""
    with study_lock(search.series.folder):
        for one in search.trials:
            if one.state == TrialState.RUNNING and (lock := own(search, one.number)):
                say(f"{name_of(one.number)}: its process has ended; it is continued with the same settings")
                return with_values(search, Trial(search.study, one._trial_id)), lock
        if len(search.trials) >= search.count:
            return None
        trial = search.study.ask()
        return with_values(search, trial), own(search, trial.number)


def own(search: Search, number: int) -> FileLock | None:
    """Return the lock of a trial, or None where another process has it."""
    return own_lock(search.series.folder / f".{name_of(number)}.lock")


def with_values(search: Search, trial: Trial) -> Trial:
    """Return a trial with a value for each setting; those that it has stay."""
    for one in search.space:
        one.suggest(trial)
    return trial


def run_trial(search: Search, trial: Trial) -> None:
    """Train one trial and tell the study how it ended: finished, pruned or failed."""
    name, folder = name_of(trial.number), search.path(trial.number)
    say(f"{name}: {settings_text(trial.params)}")
    wait_for_orphan(folder)
    judge = Judge(search, trial)
    try:
        is_pruned = (
            judge() or not search.series.run(name, [*words_of(trial.params), *WITHOUT_TEST], judge) or judge()
        )
        if judge.best is None and not is_pruned:
            raise TrainingError("it has not evaluated dev")
    except TrainingError as error:
        trial.set_user_attr("error", str(error).partition(". The same command")[0])
        search.study.tell(trial, state=TrialState.FAIL)
        say(f"{name}: failed, and the search goes on: {trial.user_attrs['error']}")
    else:
        state = TrialState.PRUNED if is_pruned else TrialState.COMPLETE
        search.study.tell(trial, None if is_pruned else judge.best, state)
        say(f"{name}: {SHOWN[state]}, {search.metric} on dev {judge.best:.4f}")
    # Only the settings of a trial are used later
    (folder / MODEL).unlink(missing_ok=True)
    if folder.exists():
        drop_states(folder, keep=0, keep_damaged=0)


def wait_for_orphan(folder: Path) -> None:
    """Wait until a run has ended whose search was killed: it still trains in its folder."""
    if not (folder / LOCK).exists():
        return
    lock = own_lock(folder / LOCK)
    if lock is None:
        say(f"{folder.name}: waiting for its run, which was not killed with its search")
        lock = FileLock(folder / LOCK)
        lock.acquire()
    lock.release()


class Judge:
    """Reports the evaluations of a trial's run in order; called, it returns whether to prune it. Each is
    looked at once, also after the run, so no time matters. `best` is the best value so far."""

    def __init__(self, search: Search, trial: Trial) -> None:
        self.search, self.trial = search, trial
        self.path = search.path(trial.number) / METRICS
        self.frozen = search.trials[trial.number]
        self.num_reported = len(self.frozen.intermediate_values)
        self.best = search.best_of(self.frozen)
        self.is_pruned = PRUNED in self.frozen.user_attrs or (bool(self.num_reported) and self.should_prune())

    def __call__(self) -> bool:
        for number, value in enumerate(self.values(), 1):
            if self.is_pruned:
                break
            if number > self.num_reported:
                self.trial.report(value, number)
                self.num_reported = number
                self.best = value if is_better(value, self.best, self.search.metric) else self.best
                self.is_pruned = self.should_prune()
        return self.is_pruned

    def should_prune(self) -> bool:
        """Ask the pruner, and keep the answer: successive halving gives it once."""
        is_pruned = self.trial.should_prune()
        if is_pruned:
            self.trial.set_user_attr(PRUNED, True)
        return is_pruned

    def values(self) -> list[float]:
        """Return the values of all evaluations on dev so far; a line that is being written comes later."""
        lines = self.path.read_bytes().splitlines(True) if self.path.exists() else []
        whole = (parse_line(line, (self.search.metric,)) for line in lines if line.endswith(b"\n"))
        return [one[self.search.metric] for one in whole if one and one["split"] == "dev"]
