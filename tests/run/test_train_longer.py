"""Runs that are resumed with more, or fewer, steps: python -m pytest tests/run/test_train_longer.py"""

import re
import shutil
from pathlib import Path

import pytest

from app.checkpoints.training_state import load_training_state
from app.prediction.model_folder import choose_run
from app.run import main
from tests.checkpoints.test_resume import evaluations
from tests.ranks import settings
from tests.stopped_run import crash, terminate

# A learning rate that does not depend on the number of steps
FLAT = ("--train.schedule=constant", "--train.warmup=0")
FINISHED = (
    "error: {0} holds a finished run; choose another output.dir, train it for longer with --resume auto and "
    "more --train.epochs (from its last training state), or start a new run from its model with "
    "--model.name {0}\n"
)
FEWER = "train.epochs and train.max_steps must give more steps than the {} that the run has done, found 12; "
REPORT = ("report.json", "report.txt", "predictions.csv", "logits.safetensors", "report.html", "README.md")
RESULT = ("model.safetensors", "logits.safetensors", "predictions.csv", "report.json")


@pytest.fixture
def start(data, empty_folder):
    """Return a function that runs as run_single.py does, with --resume auto, and returns the exit status."""

    def run(folder: str, epochs: int, *arguments: str) -> int:
        small = {"model__dropout": 0.1, "train__log_every": 2, "train__save_every": 4}
        words = settings(data, Path(folder), **small, train__epochs=epochs)
        return main("single", "", [*words, *arguments])

    return run


def contents(folder: str, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: Path(folder, name).read_bytes() for name in names}


def learning_rates(folder: str) -> dict[int, str]:
    """Return the learning rate of each logged step."""
    log = Path(folder, "train.log").read_text(encoding="utf-8")
    return {int(step): rate for step, rate in re.findall(r"step (\d+)/.*  lr (\S+)", log)}


def check_equal(one: str, other: str) -> None:
    """Check that two runs ended with the same bits."""
    assert contents(one, RESULT) == contents(other, RESULT)
    assert evaluations(Path(one)) == evaluations(Path(other))
    states = [load_training_state(Path(folder)) for folder in (one, other)]
    assert states[0].progress == states[1].progress
    for name in ("weights", "optimizer"):
        tensors, others = (getattr(state, name) for state in states)
        assert all((tensors[key] == others[key]).all() for key in tensors | others)


def test_an_interrupted_run_trains_to_another_end(start, at_step, capsys):
    for folder, epochs in (("longer", 2), ("shorter", 9)):
        at_step(7, terminate)
        assert start(folder, epochs, *FLAT) == 143
    at_step(None)
    assert start("longer", 4, *FLAT) == start("shorter", 4, *FLAT) == 0
    said = capsys.readouterr().err
    longer = "Training to step 24 instead of 12; from here on the learning rate is that of a run of 24 steps."
    assert longer in said
    assert "Training to step 24 instead of 54; " in said
    assert start("whole", 4, *FLAT) == 0
    check_equal("longer", "whole")
    check_equal("shorter", "whole")
    assert "epochs: 4" in Path("longer/config.yaml").read_text()


def test_the_learning_rate_is_that_of_the_new_length_from_there_on(start):
    assert start("run", 2) == 0
    before = learning_rates("run")
    assert start("run", 4) == start("whole", 4) == 0
    whole = learning_rates("whole")
    assert learning_rates("run") == {step: rate for step, rate in whole.items() if step > 12} | before
    assert before[8] != whole[8]


def test_nothing_of_the_shorter_run_is_lost(start):
    assert start("run", 2, *FLAT) == 0
    with Path("run/README.md").open("a", encoding="utf-8") as card:
        card.write("my own remarks")
    # With other settings that are free
    for epochs, done, accumulation_steps in ((3, 12, 1), (4, 18, 2)):
        assert [path.name for path in Path("run/state").iterdir()] == [f"step-{done:08d}"]
        before = contents("run", REPORT)
        assert start("run", epochs, *FLAT, f"--train.accumulation_steps={accumulation_steps}") == 0
        for name, content in before.items():
            kept = Path("run", f"{Path(name).stem}.step-{done}{Path(name).suffix}")
            assert kept.read_bytes() == content
    assert [line["step"] for line in evaluations(Path("run"))] == [6, 12, 18, 24]


def test_the_best_checkpoint_so_far_is_the_one_to_beat(start):
    """The learning rate of the second part wrecks the model, so that the first part's stays the best."""
    assert start("run", 4, "--train.best_metric=loss") == 0
    best = min(evaluations(Path("run")), key=lambda line: line["loss"])["step"]
    model = contents("run", ("model.safetensors",))
    with pytest.MonkeyPatch.context() as wrecked:
        wrecked.setattr("app.training.step.learning_rate_factor", lambda *schedule: 1e3)
        assert start("run", 6, "--train.best_metric=loss") == 0
    assert [line["best"] for line in evaluations(Path("run"))[4:]] == [False, False]
    assert f"checkpoint of step {best}," in Path("run/report.txt").read_text(encoding="utf-8")
    assert contents("run", ("model.safetensors",)) == model


def test_what_is_refused_changes_nothing(start, at_step, capsys):
    """The same number of steps, fewer of them, and a finished run without a whole state."""

    def check_refused(error: str, folder: str, epochs: int, *arguments: str) -> None:
        files = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != "train.log"]
        before = {path: path.stat().st_mtime_ns for path in files if "state" not in path.parts}
        capsys.readouterr()
        assert start(folder, epochs, *arguments) == 2
        assert error in capsys.readouterr().err
        assert {path: path.stat().st_mtime_ns for path in before} == before

    assert start("finished", 3) == 0
    at_step(15, terminate)
    assert start("interrupted", 4) == 143
    at_step(None)
    check_refused(FINISHED.format("finished"), "finished", 3)
    # Another setting for the same number of steps, which is seen only when the data is open
    check_refused(FINISHED.format("finished"), "finished", 3, "--train.max_steps=18")
    check_refused(FEWER.format(18), "finished", 2)
    check_refused(FEWER.format(16), "interrupted", 2)
    assert start("interrupted", 4) == 0
    weights = Path("finished/state/step-00000018/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    check_refused("finished has no undamaged training state", "finished", 5)
    shutil.rmtree("interrupted/state")
    check_refused(FINISHED.format("interrupted"), "interrupted", 5)
    assert start("second", 1, "--model.name=interrupted") == 0


def test_a_run_that_stopped_early_trains_on(start, capsys):
    still = ("--train.learning_rate=0", "--train.early_stopping=2")
    assert start("run", 9, *still) == 0
    assert [line["step"] for line in evaluations(Path("run"))] == [6, 12, 18]
    assert start("run", 9, *still) == 2
    assert start("run", 10, *still) == 0
    said = capsys.readouterr().err
    assert "Resuming from step 18." in said
    stopped = "Stopped early after step 30: macro_f1 has not been better than at step 6 in 2 evaluations."
    assert stopped in said
    assert Path("run/report.step-18.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [("0.1", "0.1"), ("0", "0.2")])
@pytest.mark.parametrize(("count", "from_step", "is_changed"), [(2, 12, False), (5, 16, True)])
def test_a_crash_while_training_for_longer(start, at_step, capsys, count, from_step, is_changed, sizes):
    """Until its first new file the run stays finished as it was; after that it is an interrupted one, and
    still listed."""
    flat = (*FLAT, f"--data.dev_size={sizes[0]}", f"--data.test_size={sizes[1]}")
    assert start("runs/one", 2, *flat) == 0
    model = Path("runs/one/model.safetensors").read_bytes()
    at_step(count, crash)
    with pytest.raises(RuntimeError):
        start("runs/one", 4, *flat)
    at_step(None)
    assert choose_run(Path("runs")) == Path("runs/one")
    assert Path("runs/one/model.safetensors").read_bytes() == model
    assert Path("runs/one/report.json").exists() != is_changed
    assert Path("runs/one/report.step-12.json").exists() == is_changed
    assert ("epochs: 4" in Path("runs/one/config.yaml").read_text()) == is_changed
    capsys.readouterr()
    assert start("runs/one", 4, *flat) == 0
    assert f"Resuming from step {from_step}." in capsys.readouterr().err
    assert start("runs/whole", 4, *flat) == 0
    assert contents("runs/one", RESULT) == contents("runs/whole", RESULT)


@pytest.mark.slow
def test_a_better_model_does_not_hide_the_best_of_the_last_state(start, at_step):
    """Killed after a better model but before a new state, the run resumes with the best model as its state
    knows it."""
    rare = (*FLAT, "--train.save_every=100", "--train.eval_every=1", "--train.best_metric=loss")
    names = ("model.safetensors", "report.json")
    assert start("run", 1, *rare) == 0
    before = contents("run", names)
    at_step(12, crash)
    with pytest.raises(RuntimeError):
        start("run", 4, *rare)
    at_step(None)
    model = Path("run/model.safetensors").read_bytes()
    assert model != before["model.safetensors"], "this test needs a better model"
    # The length of before: only the report is missing
    assert start("run", 1, *rare) == 0
    assert contents("run", names) == before
