"""A run folder says truly what trained its model, also after a resume: python -m pytest
tests/checkpoints/test_run_history.py"""

import json
import os
import signal
from pathlib import Path
from shlex import split

import pytest
import yaml

from app.run.entry import main
from app.strategies.single import Single
from tests.tiny import write_tiny

SMALL = [
    *split("--model.config.hidden_size=16 --model.config.num_hidden_layers=1"),
    *split("--model.config.num_attention_heads=2 --model.config.intermediate_size=32"),
    *split("--data.max_length=24 --train.batch_size=16 --train.log_every=2"),
    *split("--train.device=cpu --train.threads=1 --train.precision=fp32 --train.epochs=2"),
    *split("--output.trackers=[] --train.save_every=3 --output.dir=run"),
    *split("--output.resume=auto"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    return [f"--data.train={write_tiny(folder / 'rows.tsv', 40)}", f"--data.cache_dir={folder / 'cache'}"]


@pytest.fixture
def start(data, monkeypatch, empty_folder):
    """Return a function that runs as run_single.py does and returns the exit status; `action` happens after
    `steps` steps."""
    unscale = Single.unscale

    def run(*arguments: str, steps: int = 0, action=None) -> int:
        seen = []

        def disturbed(self):
            seen.append(1)
            if action and len(seen) == steps + 1:
                action()
            return unscale(self)

        monkeypatch.setattr(Single, "unscale", disturbed)
        return main("single", "", [*data, *SMALL, *arguments])

    return run


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def crash() -> None:
    raise RuntimeError("the machine has failed")


def settings() -> dict:
    return yaml.safe_load(Path("run/config.yaml").read_text(encoding="utf-8"))


def starts() -> list[dict]:
    return json.loads(Path("run/run_history.json").read_text(encoding="utf-8"))["starts"]


def test_a_run_that_starts_over_has_its_own_settings(start):
    """It was killed before its first training state, and continues with other settings: those train the
    model."""
    with pytest.raises(RuntimeError, match="the machine has failed"):
        start(steps=1, action=crash)
    assert settings()["data"]["max_length"] == 24
    with pytest.raises(RuntimeError, match="the machine has failed"):
        start("--data.max_length=20", steps=1, action=crash)
    assert settings()["data"]["max_length"] == 24, "nothing was written with the new settings yet"
    assert start("--data.max_length=20", "--train.learning_rate=1e-3") == 0
    assert settings()["data"]["max_length"] == 20
    assert settings()["train"]["learning_rate"] == 1e-3
    assert len(starts()) == 1


def test_a_resumed_run_lists_its_starts_and_what_has_changed(start, caplog):
    assert start(steps=3, action=terminate) == 143
    first = starts()
    assert start("--train.log_every=8", steps=0, action=terminate) == 143
    assert start("--train.log_every=8") == 0
    assert starts()[:1] == first
    resumed = starts()[1:]
    assert [entry["step"] for entry in resumed] == [5, 7]
    assert [entry["changed"] for entry in resumed] == [{"train.log_every": [2, 8]}, {}]
    assert {"command", "started", "mode", "processes", "torch", "code"} <= set(resumed[0])
    assert settings()["train"]["log_every"] == 8


@pytest.mark.parametrize("content", ["", "[]", "{", '{"starts": [1]}'])
def test_a_damaged_history_is_no_obstacle(start, content, capsys):
    assert start(steps=3, action=terminate) == 143
    Path("run/run_history.json").write_text(content)
    assert start("--train.log_every=8") == 0
    assert [entry["step"] for entry in starts()] == [5]
    assert "is damaged and begins with this start" in capsys.readouterr().err
