"""A run folder says truly what trained its model, also after a resume: python -m pytest
tests/checkpoints/test_starts.py"""

import json
import os
import signal
from pathlib import Path

import pytest
import yaml

from app.run.entry import main
from app.strategies.single import Single
from tests.tiny import write_tiny

SMALL = [
    *(
        "--model.config.hidden_size=16",
        "--model.config.num_hidden_layers=1",
        "--model.config.num_attention_heads=2",
    ),
    *(
        "--model.config.intermediate_size=32",
        "--data.max_length=24",
        "--train.batch_size=16",
        "--train.log_every=2",
    ),
    *("--train.device=cpu", "--train.threads=1", "--train.epochs=2", "--output.tensorboard=false"),
    *("--train.save_every=3", "--output.dir=run", "--output.resume=auto"),
]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    folder = tmp_path_factory.mktemp("data")
    return [f"--data.train={write_tiny(folder / 'rows.tsv', 40)}", f"--data.cache_dir={folder / 'cache'}"]


@pytest.fixture
def start(data, monkeypatch, empty_folder):
    """Return a function that runs as run_single.py does and returns the exit status; `action` happens after
    `steps` steps."""
    step = Single.step

    def run(*arguments: str, steps: int = 0, action=None) -> int:
        seen = []

        def disturbed(self, max_norm: float):
            seen.append(1)
            if action and len(seen) == steps + 1:
                action()
            return step(self, max_norm)

        monkeypatch.setattr(Single, "step", disturbed)
        return main("single", "", [*data, *SMALL, *arguments])

    return run


def terminate() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def crash() -> None:
    raise RuntimeError("the machine has failed")


def settings() -> dict:
    return yaml.safe_load(Path("run/config.yaml").read_text(encoding="utf-8"))


def environment() -> dict:
    return json.loads(Path("run/environment.json").read_text(encoding="utf-8"))


def test_a_run_that_starts_over_has_its_own_settings(start):
    """It was killed before its first training state, and continues with other settings: those train the
    model."""
    with pytest.raises(RuntimeError, match="the machine has failed"):
        start(steps=1, action=crash)
    before = environment()
    assert settings()["data"]["max_length"] == 24
    with pytest.raises(RuntimeError, match="the machine has failed"):
        start("--data.max_length=20", steps=1, action=crash)
    assert settings()["data"]["max_length"] == 24, "nothing was written with the new settings yet"
    assert start("--data.max_length=20", "--train.learning_rate=1e-3") == 0
    assert settings()["data"]["max_length"] == 20
    assert settings()["train"]["learning_rate"] == 1e-3
    assert "resumed" not in environment()
    assert "--data.max_length=20" in environment()["command"] or environment()["started"] >= before["started"]


def test_a_resumed_run_lists_its_starts_and_what_has_changed(start, caplog):
    assert start(steps=3, action=terminate) == 143
    first = environment()
    assert start("--train.eval_batch_size=8", steps=0, action=terminate) == 143
    assert start("--train.eval_batch_size=8") == 0
    now = environment()
    resumed = now.pop("resumed")
    assert now == first
    assert [entry["step"] for entry in resumed] == [5, 7]
    assert [entry["changed"] for entry in resumed] == [{"train.eval_batch_size": [64, 8]}, {}]
    assert {"command", "started", "mode", "processes", "torch", "code"} <= set(resumed[0])
    assert settings()["train"]["eval_batch_size"] == 8


@pytest.mark.parametrize("content", ["", "[]", "{", '{"started": 1}'])
def test_a_damaged_environment_is_no_obstacle(start, content, capsys):
    assert start(steps=3, action=terminate) == 143
    Path("run/environment.json").write_text(content)
    assert start("--train.eval_batch_size=8") == 0
    assert environment()["resumed"][0]["step"] == 5
    assert ("is damaged and begins with this start" in capsys.readouterr().err) == (
        not content.startswith('{"')
    )
