"""The best model so far has the decision that was fitted for it on dev, also while a run trains, or trains
for longer, and is stopped or killed."""

import json
import random
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from app.api import load
from app.checkpoints import saver
from app.checkpoints.resume import restore_best_model
from app.checkpoints.run_files import is_finished
from app.checkpoints.training_state import load_training_state
from app.config.command_line import load_config
from app.run import work
from app.runtime.disk import read_json
from tests.checkpoints.test_resume_states import save as save_state
from tests.multi_label_runs import arguments, write_posts
from tests.ranks import Disturbance, run
from tests.verbs import predict


def write_complaints(path: Path) -> Path:
    """Write rows of which one in eight is 投诉, by one character that others have too."""
    generator = random.Random(0)
    lines = []
    for number in range(400):
        is_rare = number % 8 == 0
        sign = "差" if generator.random() < (0.8 if is_rare else 0.15) else "好"
        text = "".join(generator.choices("天地玄黄宇宙", k=6)) + sign + str(number)
        label = "投诉" if is_rare else "其他"
        lines.append(json.dumps({"text": text, "label": label}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


TEXTS = ["天地差玄黄1", "宇宙好天地2", "的差好3", "的书桌4", "的赞5"]
# Each epoch has several steps, and a state is written in the middle of it
USUAL = {"train__epochs": 2, "train__save_every": 2, "output__resume": "auto"}
USUAL |= {"data__dev_size": 0.3, "data__test_size": 0.2, "train__schedule": "constant"}
# A second reader is fitted with the report: a run that was stopped before has none
USUAL |= {"model__ngrams": "off"}
CASES = {
    "one label": (write_complaints, {"data__task": "single_label", "train__epochs": 4}),
    "several labels": (write_posts, {"data__task": "multi_label"}),
    "rare_f1": (write_complaints, {"data__task": "single_label", "train__best_metric": "rare_f1"}),
}


class Runs:
    """Starts a run of a case; all its starts have the same rows and the same folder."""

    def __init__(self, case: str, folder: Path, at_step: Callable) -> None:
        write, self.settings = CASES[case]
        self.rows = write(folder / "rows.jsonl")
        self.folder = folder / "run"
        self.at_step = at_step

    def words(self, **changes) -> list[str]:
        return arguments(self.rows, self.folder, **USUAL | self.settings | changes)

    def start(self, steps: int | None = None, action: Callable | None = None, **changes) -> int:
        """Return the exit status; after `steps` steps SIGTERM or another action happens."""
        self.at_step(steps, action)
        return work(load_config(self.words(**changes)), "single")


@pytest.fixture
def runs(tmp_path, at_step) -> Callable[[str], Runs]:
    return lambda case: Runs(case, tmp_path, at_step)


def answers(folder: Path) -> tuple[list, np.ndarray]:
    model = load(folder, device="cpu")
    return model.predict(TEXTS).tolist(), model.predict_proba(TEXTS)


@pytest.mark.parametrize("case", CASES)
def test_a_finished_run_that_is_stopped_while_it_trains_for_longer_answers_as_before(case, runs):
    """The signal comes when a state of the longer run is written, and no evaluation has come yet."""
    trained = runs(case)
    assert trained.start() == 0
    content = (trained.folder / "decision.json").read_bytes()
    assert json.loads(content).keys() & {"temperature", "thresholds", "rare_threshold"}
    last_step = load_training_state(trained.folder).progress.step
    labels, probabilities = answers(trained.folder)
    assert trained.start(steps=3, train__epochs=8) == 143
    assert not is_finished(trained.folder)
    assert answers(trained.folder)[0] == labels
    assert (answers(trained.folder)[1] == probabilities).all()
    # The report that was put aside has its decision too
    assert (trained.folder / f"decision.step-{last_step}.json").read_bytes() == content


@pytest.mark.chaos
def test_a_run_that_is_killed_while_it_trains_for_longer_answers_as_before(tmp_path, at_step):
    trained = Runs("several labels", tmp_path, at_step)
    assert trained.start() == 0
    labels, probabilities = answers(trained.folder)
    killed = run("single", 1, trained.words(train__epochs=4), [Disturbance(3, "SIGKILL")])
    assert killed == [-signal.SIGKILL]
    assert (trained.folder / "report.step-10.json").exists()
    assert answers(trained.folder)[0] == labels
    assert (answers(trained.folder)[1] == probabilities).all()


def decision_of(folder: Path) -> dict:
    """Return what decides, without the effect on the rows of a report."""
    values = read_json(folder / "decision.json")
    return {key: values.get(key) for key in ("step", "temperature", "thresholds", "rare_threshold")}


@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_stopped_before_its_report_decides_as_one_that_ended_at_its_best_step(case, runs):
    often = {"train__eval_every": 4, "train__schedule": "constant", "train__warmup": 0}
    stopped = runs(case)
    assert stopped.start(steps=5, **often) == 143
    ended = runs(case)
    ended.folder = stopped.folder.with_name("ended")
    assert ended.start(train__max_steps=4, **often) == 0
    assert decision_of(stopped.folder) == decision_of(ended.folder)
    assert answers(stopped.folder)[0] == answers(ended.folder)[0]


@pytest.mark.parametrize("lora_rank", [0, 2])
def test_a_new_best_model_of_a_longer_run_has_its_own_decision(lora_rank, runs):
    """With an adapter the weights that classify are those of the report, until the next report."""
    if lora_rank:
        pytest.importorskip("peft", reason="needs requirements/lora.txt")
    often = {"train__eval_every": 4, "train__schedule": "constant", "train__warmup": 0}
    often |= {"train__best_metric": "loss", "train__epochs": 4, "model__lora_rank": lora_rank}
    trained = runs("several labels")
    assert trained.start(train__max_steps=4, **often) == 0
    before = decision_of(trained.folder)
    labels, _probabilities = answers(trained.folder)
    assert trained.start(steps=5, train__max_steps=12, **often) == 143
    assert load_training_state(trained.folder).progress.best_step == 8
    ended = runs("several labels")
    ended.folder = trained.folder.with_name("ended")
    assert ended.start(train__max_steps=8, **often) == 0
    wanted = before if lora_rank else decision_of(ended.folder)
    assert decision_of(trained.folder) == wanted
    assert answers(trained.folder)[0] == (labels if lora_rank else answers(ended.folder)[0])
    assert trained.start(train__max_steps=12, **often) == 0
    assert decision_of(trained.folder)["step"] == read_json(trained.folder / "report.json")["step"]


def test_weights_never_stay_with_the_decision_of_others(runs, monkeypatch, capsys):
    """A process that ends between the two files leaves the new model alone; opening it says so."""
    often = {"train__eval_every": 4, "train__best_metric": "loss", "train__epochs": 4}
    trained = runs("several labels")
    assert trained.start(train__max_steps=4, **often) == 0

    def fail(folder: Path, values: dict) -> None:
        raise RuntimeError("the machine has failed")

    with monkeypatch.context() as patch:
        patch.setattr(saver, "write_decision", fail)
        with pytest.raises(RuntimeError, match="the machine has failed"):
            trained.start(train__max_steps=12, **often)
    assert not (trained.folder / "decision.json").exists()
    assert predict(["--checkpoint", str(trained.folder), *TEXTS]) == 0
    stderr = capsys.readouterr().err
    assert f"warning: {trained.folder}: decision.json is not there" in stderr
    assert "finish it with --resume auto" in stderr


def test_a_state_brings_the_decision_of_its_best_model_back(runs):
    trained = runs("several labels")
    assert trained.start(steps=7) == 143
    decision = decision_of(trained.folder)
    (trained.folder / "decision.json").unlink()
    assert trained.start(steps=0) == 143
    assert decision_of(trained.folder) == decision


@pytest.mark.parametrize("has_decision", [True, False])
def test_the_decision_of_a_model_after_the_last_state_goes_with_it(has_decision, tmp_path):
    """The run was killed after it had written a better model than that of its last state."""
    path = tmp_path / "decision.json"
    if has_decision:
        path.write_text(json.dumps({"step": 6, "temperature": 1.5}), encoding="utf-8")
    # Its best model is that of step 6
    save_state(tmp_path, 7)
    progress = load_training_state(tmp_path).progress
    state = tmp_path / "state" / "step-00000007"
    path.write_text(json.dumps({"step": 9, "temperature": 2.0}), encoding="utf-8")
    restore_best_model(state, tmp_path / "model.safetensors", progress.best_step)
    assert path.exists() == has_decision
    assert not has_decision or read_json(path) == {"step": 6, "temperature": 1.5}


def test_a_decision_of_the_same_model_is_left_as_it_is(tmp_path):
    """A report adds the effect on its rows."""
    path = tmp_path / "decision.json"
    path.write_text(json.dumps({"step": 6, "temperature": 1.5}), encoding="utf-8")
    save_state(tmp_path, 7)
    content = json.dumps({"step": 6, "temperature": 1.5, "before": {"loss": 1.0}})
    path.write_text(content, encoding="utf-8")
    restore_best_model(tmp_path / "state" / "step-00000007", tmp_path / "model.safetensors", 6)
    assert path.read_text(encoding="utf-8") == content
