"""A run writes only into an empty folder, or its own, one run at a time; which run a new start resumes; the
folder says truly what trained its model."""

import errno
import fcntl
import json
import os
import signal
from datetime import datetime, timedelta
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.checkpoints.run_files import LOCK
from app.checkpoints.run_folder import check_run_folder, lock_folder, open_run_folder, run_to_resume
from app.config.schema import OutputConfig
from app.errors import InputError
from app.prediction.load_checkpoint import load_checkpoint
from app.run import main
from tests.ranks import settings

NOW = datetime.now().astimezone()
LAUNCHER = "/tmp/torchelastic_x/exp_1"
OTHER_BITS = "they may compute other bits"
NEW = OutputConfig(dir="run")
AUTO = OutputConfig(dir="run", resume="auto")
pytestmark = pytest.mark.usefixtures("empty_folder")


def make_run(folder: str, age: int = 0, **details) -> Path:
    """Make an interrupted run that was started `age` seconds ago."""
    path = Path(folder)
    path.mkdir(parents=True)
    (path / "run_history.json").write_text(json.dumps({"starts": [details]}))
    (path / "train.log").write_text("step 1")
    moment = NOW.timestamp() - age
    os.utime(path / "run_history.json", (moment, moment))
    return path


def started(seconds_ago: int) -> str:
    return (NOW - timedelta(seconds=seconds_ago)).isoformat(timespec="seconds")


def open_folder(folder: str | None = "run", **settings) -> bool:
    """Open a folder as rank 0 does; return whether a run in it is resumed."""
    opened = open_run_folder(OutputConfig(dir=folder, **settings))
    opened.lock.release()
    return opened.is_resumed


@pytest.mark.parametrize("present", ["notes.txt", "src/config.yaml", "report.json", ".gitkeep"])
@pytest.mark.parametrize("resume", ["never", "auto"])
def test_folder_that_is_no_run_is_never_touched(write, present, resume):
    """Many projects have a config.yaml; that does not make them ours."""
    path = write(f"run/{present}", "mine")
    with pytest.raises(InputError, match="is not empty and holds no run; choose another output.dir"):
        open_folder(resume=resume)
    assert [entry for entry in Path("run").resolve().rglob("*") if entry.is_file()] == [path]
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "settings",
    [{"folder": "file"}, {"folder": "file/run"}, {"folder": None, "name": "run"}, {"folder": "checkpoints"}],
    ids=["a file", "below a file", "below a dead link", "a dead link"],
)
def test_a_folder_that_cannot_be_made(settings):
    Path("file").write_text("")
    Path("checkpoints").symlink_to("no-such-disk")
    with pytest.raises(InputError, match=r"output\.dir"):
        open_folder(**settings)


def test_a_run_that_was_killed_in_its_first_write_starts_again():
    Path("run").mkdir()
    # The rest of a dead run is no obstacle
    Path("run", LOCK).write_text('{"pid": 1, "host": "gone"}')
    Path("run/.run_history.json").write_text("{")
    assert not open_folder()
    Path("run/run_history.json").write_text("{")
    with pytest.raises(InputError, match="not finished; continue it with"):
        open_folder()
    assert open_folder(resume="auto")


def test_what_a_run_reads_is_never_written(data):
    """Its data or its pretrained model are in the folder of a run."""
    first = settings(data, Path("run"), train__max_steps=1)
    assert main("single", "", first) == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    for resume in ("never", "auto"):
        for reads in ("--model.name=run", "--data.train=run/predictions.csv"):
            assert main("single", "", [*first, f"--output.resume={resume}", reads]) == 2
    assert {path: path.read_bytes() for path in before} == before


OTHERS = ("exp-2-001", "exp-001-001", "exp-20", "exp-1x1", "a1-001", "aa-001", "other-001", "exp")


@pytest.mark.parametrize("name", ["exp", "train[1]", "a*", "a?", "情感", "exp-2", "exp-001", "sub/exp"])
def test_resume_auto_takes_the_newest_run_of_this_very_name(name):
    config = OutputConfig(name=name, resume="auto")
    for number, other_name in enumerate(OTHERS):
        if not other_name.startswith(f"{name}-0"):
            make_run(f"checkpoints/{other_name}", launcher=str(number))
    if name not in ("exp-2", "exp-001"):
        assert run_to_resume(config) is None
    first = make_run(f"checkpoints/{name}-1000" if name != "exp" else "checkpoints/exp-001", age=-20)
    assert run_to_resume(config) == first
    second = make_run(f"checkpoints/{name}-002", age=-30)
    assert run_to_resume(config) == second
    (second / "report.json").write_text("{}")
    assert run_to_resume(config) == first


@pytest.fixture
def restarted(monkeypatch):
    """Be a process that torchrun has started again."""
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", f"{LAUNCHER}/attempt_1/0/error.json")


# The first is of yesterday, with the same rdzv_id
@pytest.mark.parametrize("details", [{"launcher": "/tmp/torchelastic_x/exp_2"}, {"launcher": None}, {}])
def test_a_restarted_job_resumes_no_other_job(restarted, details):
    run = make_run("checkpoints/a-001", **details)
    in_folder = OutputConfig(dir=str(run))
    assert run_to_resume(OutputConfig(name="a")) is run_to_resume(in_folder) is None
    with pytest.raises(InputError, match="holds a run that is not finished"):
        check_run_folder(in_folder)
    # Asked for
    assert run_to_resume(OutputConfig(name="a", resume="auto")) == run
    assert run_to_resume(OutputConfig(name="b", resume="auto")) is None
    assert run_to_resume(OutputConfig(dir=str(run), resume="auto")) == run


def test_a_restarted_job_resumes_its_own_run(restarted, monkeypatch):
    make_run("checkpoints/a-001", age=-9, launcher=LAUNCHER, started=started(86400))
    own_run = make_run("checkpoints/a-002", launcher=LAUNCHER, started=started(50))
    make_run("checkpoints/a-003", launcher="other", started=started(20))
    for config in (
        OutputConfig(name="a"),
        OutputConfig(name="a", resume="auto"),
        OutputConfig(dir=str(own_run)),
    ):
        assert run_to_resume(config) == own_run
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    make_run("checkpoints/b-001", launcher=None, started=started(20))
    assert run_to_resume(OutputConfig(name="b")) is None, "without a launcher no run is its own"


def hold(folder: Path, ready) -> None:
    with lock_folder(folder):
        ready.set()
        signal.pause()


@pytest.mark.parametrize("config", [NEW, AUTO, OutputConfig(name="exp", resume="auto")])
@pytest.mark.parametrize("call", [check_run_folder, open_run_folder])
def test_a_second_run_is_refused_until_the_first_is_dead(config, call):
    folder = make_run(config.dir or "checkpoints/exp-001", launcher=None)
    context = get_context("fork")
    ready = context.Event()
    first = context.Process(target=hold, args=(folder, ready))
    first.start()
    try:
        assert ready.wait(20)
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        error = f"for one run at a time: {folder} is in use by another one; wait until"
        with pytest.raises(InputError, match=error):
            call(config)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    finally:
        first.kill()
        first.join()
    check_run_folder(OutputConfig(dir=str(folder), resume="auto"))
    assert open_folder(str(folder), resume="auto")


@pytest.mark.parametrize("number", ["ENOLCK", "EOPNOTSUPP"])
def test_where_there_are_no_locks_a_warning_says_so(monkeypatch, caplog, number):
    def refuse(*_):
        raise OSError(getattr(errno, number), "no locks")

    monkeypatch.setattr(fcntl, "flock", refuse)
    assert not open_folder()
    assert f"run cannot be locked ([Errno {getattr(errno, number)}] no locks): start no second" in caplog.text


@pytest.fixture
def start(data, at_step):
    """Return a function that runs as run_single.py does and returns the exit status; after `steps` steps
    SIGTERM or another action happens."""

    def run(*arguments: str, steps: int | None = None, action=None) -> int:
        at_step(steps, action)
        small = settings(data, Path("run"), train__log_every=2, train__save_every=3, train__epochs=2)
        return main("single", "", [*small, *arguments])

    return run


def saved_settings() -> dict:
    return yaml.safe_load(Path("run/config.yaml").read_text(encoding="utf-8"))


def starts() -> list[dict]:
    return json.loads(Path("run/run_history.json").read_text(encoding="utf-8"))["starts"]


def test_a_run_that_starts_over_has_its_own_settings(start):
    """It was killed before its first training state; the settings of its next start train the model."""
    crash = RuntimeError("the machine has failed")
    for words in ((), ("--data.max_length=20",)):
        with pytest.raises(RuntimeError, match="the machine has failed"):
            start(*words, steps=1, action=crash)
        assert saved_settings()["data"]["max_length"] == 24, "nothing is written with the new settings yet"
    assert start("--data.max_length=20", "--train.learning_rate=1e-3") == 0
    assert saved_settings()["data"]["max_length"] == 20
    assert saved_settings()["train"]["learning_rate"] == 1e-3
    assert len(starts()) == 1


def test_a_resumed_run_lists_its_starts_and_what_has_changed(start):
    assert start(steps=3) == 143
    first = starts()
    assert start("--train.log_every=8", steps=0) == 143
    assert start("--train.log_every=8") == 0
    assert starts()[:1] == first
    resumed = starts()[1:]
    assert [entry["step"] for entry in resumed] == [4, 5]
    assert [entry["changed"] for entry in resumed] == [{"train.log_every": [2, 8]}, {}]
    assert {"command", "started", "mode", "processes", "torch", "code"} <= set(resumed[0])
    assert ["finished" in entry for entry in starts()] == [False, False, True]
    assert saved_settings()["train"]["log_every"] == 8


@pytest.mark.parametrize(
    ("earlier", "lines"),
    [
        ("1.0.0", [f"Versions since step 3: numpy was 1.0.0 and is {np.__version__}; {OTHER_BITS}."]),
        # As an older version of this program has written it
        (None, []),
    ],
)
def test_a_run_resumes_under_another_version_of_numpy_and_says_so(start, earlier, lines, capsys):
    assert start(steps=2) == 143
    history = json.loads(Path("run/run_history.json").read_text())
    del history["starts"][0]["numpy"]
    if earlier:
        history["starts"][0]["numpy"] = earlier
    Path("run/run_history.json").write_text(json.dumps(history))
    capsys.readouterr()
    assert start("--output.resume=auto") == 0
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in printed if line.startswith("Versions since")] == lines


def test_weights_that_the_training_did_not_write_are_refused(start):
    assert start() == 0
    weights = Path("run/model.safetensors")
    model = load_checkpoint(Path("run"))[0]
    whole = weights.read_bytes()
    flipped = bytes([whole[-1] ^ 1])
    # Also of the same size, from another place of the file
    for damaged in (whole[:-1] + flipped, whole[:-64] + whole[-128:-64]):
        weights.write_bytes(damaged)
        with pytest.raises(
            InputError, match="must be those that the training wrote .* copy the folder again"
        ):
            load_checkpoint(Path("run"))
    weights.write_bytes(whole)
    again = load_checkpoint(Path("run"))[0].state_dict()
    assert all(weight.equal(again[name]) for name, weight in model.state_dict().items())
    assert start("--train.epochs=3", "--output.resume=auto", steps=1) == 143
    assert "weights" not in starts()[-1]
    load_checkpoint(Path("run"))


@pytest.mark.parametrize("content", ["", '{"starts": [1]}'])
def test_a_damaged_history_is_no_obstacle(start, content, capsys):
    assert start(steps=3) == 143
    Path("run/run_history.json").write_text(content)
    assert start("--train.log_every=8") == 0
    assert [entry["step"] for entry in starts()] == [4]
    assert "is damaged and begins with this start" in capsys.readouterr().err
