"""Which run a new start resumes: python -m pytest tests/checkpoints/test_find_run.py"""

import json
import os
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from app.checkpoints.run_folder import check_run_folder, run_to_resume
from app.config.schema import OutputConfig
from app.errors import InputError

NOW = datetime.now().astimezone()
LAUNCHER = "/tmp/torchelastic_x/exp_1"
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


OTHERS = ("exp-2-001", "exp-001-001", "exp-20", "exp-1x1", "a1-001", "aa-001", "other-001", "exp")
NAMES = ["exp", "train[1]", "a*", "a?", "情感", "exp-2", "exp-001", "a+b", "sub/exp", "[!x]"]


@pytest.mark.parametrize("name", NAMES)
def test_resume_auto_takes_the_newest_run_of_this_very_name(name):
    config = OutputConfig(name=name, resume="auto")
    for number, other in enumerate(OTHERS):
        if not other.startswith(f"{name}-0"):
            make_run(f"checkpoints/{other}", launcher=str(number))
    if name not in ("exp-2", "exp-001"):
        assert run_to_resume(config) is None
    first = make_run(f"checkpoints/{name}-1000" if name != "exp" else "checkpoints/exp-001", age=-20)
    assert run_to_resume(config) == first
    second = make_run(f"checkpoints/{name}-002", age=-30)
    assert run_to_resume(config) == second
    (second / "report.json").write_text("{}")
    assert run_to_resume(config) == first


def test_a_copy_was_started_when_the_run_was():
    make_run("checkpoints/a-001", started=started(60))
    new = make_run("checkpoints/a-002", started=started(30))
    copied = make_run("checkpoints/a-003", age=-20, started=started(60))
    config = OutputConfig(name="a", resume="auto")
    assert run_to_resume(config) == new
    for content in ("", "[]", '{"starts": [1]}', '{"starts": [{"started": 1}]}'):
        (copied / "run_history.json").write_text(content)
        assert run_to_resume(config) == copied


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
    own = make_run("checkpoints/a-002", launcher=LAUNCHER, started=started(50))
    make_run("checkpoints/a-003", launcher="other", started=started(20))
    for config in (OutputConfig(name="a"), OutputConfig(name="a", resume="auto"), OutputConfig(dir=str(own))):
        assert run_to_resume(config) == own
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE")
    make_run("checkpoints/b-001", launcher=None, started=started(20))
    assert run_to_resume(OutputConfig(name="b")) is None, "without a launcher no run is its own"
