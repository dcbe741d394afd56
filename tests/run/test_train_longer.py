"""Runs that are resumed with more, or fewer, steps."""

import re
import shutil
from pathlib import Path

import pytest

from app.checkpoints.training_state import load_training_state
from app.prediction.trained_model import choose_run
from app.run import main
from tests.checkpoints.test_resume import evaluations
from tests.ranks import settings

# A learning rate that does not depend on the number of steps
FLAT = ("--train.schedule=constant", "--train.warmup=0")
FINISHED = "{0} holds a finished run; choose another output.dir, train it for longer with --resume auto and "
FEWER = "train.epochs and train.max_steps must give more steps than the {} that the run has done, found 12; "
OTHER_JOB = "error: a run can be resumed only with the settings and data it was started with: "
OTHER_JOB += "train.learning_rate was 0.005 and is 0.001; change them back, or choose another output.dir\n"
REPORT = ("report.json", "report.txt", "predictions.csv", "logits.safetensors", "report.html", "README.md")
RESULT = ("model.safetensors", "logits.safetensors", "predictions.csv", "report.json")
STATE = tuple(f"state/step-00000024/{name}.safetensors" for name in ("weights", "optimizer"))


@pytest.fixture
def start(data, at_step, empty_folder):
    """Return a function that runs as run_single.py does, with --resume auto, and returns the exit status;
    after `steps` steps SIGTERM or another action happens."""

    def run(folder: str, epochs: int, *words: str, steps: int | None = None, action=None) -> int:
        at_step(steps, action)
        small = {"model__dropout": 0.1, "train__log_every": 2, "train__save_every": 4}
        return main("single", "", [*settings(data, Path(folder), **small, train__epochs=epochs), *words])

    return run


def contents(folder: str, names: tuple[str, ...]) -> dict[str, bytes]:
    return {name: Path(folder, name).read_bytes() for name in names}


def test_an_interrupted_run_trains_to_another_end(start, capsys):
    for folder, epochs in (("longer", 2), ("shorter", 9)):
        assert start(folder, epochs, *FLAT, steps=7) == 143
    assert start("longer", 4, *FLAT) == start("shorter", 4, *FLAT) == 0
    stderr = capsys.readouterr().err
    longer = "Training to step 24 instead of 12; from here on the learning rate is that of a run of 24 steps."
    assert longer in stderr
    assert "Training to step 24 instead of 54; " in stderr
    assert "epochs: 4" in Path("longer/config.yaml").read_text()
    assert start("whole", 4, *FLAT) == 0
    progress = load_training_state(Path("whole")).progress
    for folder in ("longer", "shorter"):
        assert contents(folder, RESULT + STATE) == contents("whole", RESULT + STATE)
        assert load_training_state(Path(folder)).progress == progress
        assert evaluations(Path(folder)) == evaluations(Path("whole"))


def test_the_learning_rate_is_that_of_the_new_length_from_there_on(start):
    rates = []
    for folder, epochs in (("run", 2), ("run", 4), ("whole", 4)):
        assert start(folder, epochs) == 0
        log = Path(folder, "train.log").read_text(encoding="utf-8")
        rates.append({int(step): rate for step, rate in re.findall(r"step (\d+)/.*  lr (\S+)", log)})
    before, longer, whole = rates
    assert longer == {step: rate for step, rate in whole.items() if step > 12} | before
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
            earlier_file = Path("run", f"{Path(name).stem}.step-{done}{Path(name).suffix}")
            assert earlier_file.read_bytes() == content
    assert [line["step"] for line in evaluations(Path("run"))] == [6, 12, 18, 24]


def test_the_best_checkpoint_so_far_is_the_one_to_beat(start, monkeypatch):
    """The learning rate of the second part wrecks the model, so that the first part's stays the best."""
    assert start("run", 4, "--train.best_metric=loss") == 0
    best = min(evaluations(Path("run")), key=lambda line: line["loss"])["step"]
    model = contents("run", ("model.safetensors",))
    monkeypatch.setattr("app.training.step.learning_rate_factor", lambda *schedule: 1e3)
    assert start("run", 6, "--train.best_metric=loss") == 0
    assert [line["best"] for line in evaluations(Path("run"))[4:]] == [False, False]
    assert f"checkpoint of step {best}," in Path("run/report.txt").read_text(encoding="utf-8")
    assert contents("run", ("model.safetensors",)) == model


def test_what_is_refused_changes_nothing(start, capsys):
    def check_refused(error: str, folder: str, epochs: int, *words: str) -> None:
        files = [path for path in Path(folder).rglob("*") if path.is_file() and path.name != "train.log"]
        before = {path: path.stat().st_mtime_ns for path in files if "state" not in path.parts}
        capsys.readouterr()
        assert start(folder, epochs, *words) == 2
        assert error in capsys.readouterr().err
        assert {path: path.stat().st_mtime_ns for path in before} == before

    assert start("finished", 3) == 0
    assert start("interrupted", 4, steps=15) == 143
    check_refused(FINISHED.format("finished"), "finished", 3)
    # Another setting for the same number of steps, which is seen only when the data is open
    check_refused(FINISHED.format("finished"), "finished", 3, "--train.max_steps=18")
    check_refused(FEWER.format(18), "finished", 2)
    check_refused(FEWER.format(16), "interrupted", 2)
    check_refused(OTHER_JOB, "interrupted", 4, "--train.learning_rate=1e-3")
    assert start("interrupted", 4) == 0
    weights = Path("finished/state/step-00000018/weights.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])
    check_refused("finished has no undamaged training state", "finished", 5)
    shutil.rmtree("interrupted/state")
    check_refused(FINISHED.format("interrupted"), "interrupted", 5)
    assert start("second", 1, "--model.name=interrupted") == 0


def test_a_run_that_stopped_early_trains_on(start, capsys):
    still = ("--train.learning_rate=1e-30", "--train.early_stopping=2")
    assert start("run", 9, *still) == 0
    assert [line["step"] for line in evaluations(Path("run"))] == [6, 12, 18]
    assert start("run", 9, *still) == 2
    assert start("run", 10, *still) == 0
    stderr = capsys.readouterr().err
    assert "Resuming from step 18." in stderr
    stopped = "Stopped early after step 30: macro_f1 has not been better than at step 6 in 2 evaluations."
    assert stopped in stderr
    assert Path("run/report.step-18.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [("0.1", "0.1"), ("0", "0.2")])
@pytest.mark.parametrize(("count", "from_step", "is_changed"), [(2, 12, False), (5, 16, True)])
def test_a_crash_while_training_for_longer(start, capsys, count, from_step, is_changed, sizes):
    """Until its first new file the run stays finished; after that it is an interrupted one, still listed."""
    flat = (*FLAT, f"--data.dev_size={sizes[0]}", f"--data.test_size={sizes[1]}")
    assert start("runs/one", 2, *flat) == 0
    model = Path("runs/one/model.safetensors").read_bytes()
    with pytest.raises(RuntimeError, match="the machine has failed"):
        start("runs/one", 4, *flat, steps=count, action=RuntimeError("the machine has failed"))
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
