"""A run folder says truly what trained its model, also after a resume: python -m pytest
tests/checkpoints/test_run_history.py"""

import json
from pathlib import Path

import pytest
import yaml

from app.errors import InputError
from app.prediction.torch_runtime import load_checkpoint
from app.run import main
from tests import ranks
from tests.stopped_run import crash, terminate


@pytest.fixture
def start(data, at_step, empty_folder):
    """Return a function that runs as run_single.py does and returns the exit status; `action` happens after
    `steps` steps."""

    def run(*arguments: str, steps: int | None = None, action=None) -> int:
        at_step(steps, action)
        small = ranks.settings(data, Path("run"), train__log_every=2, train__save_every=3, train__epochs=2)
        return main("single", "", [*small, *arguments])

    return run


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
    assert [entry["step"] for entry in resumed] == [4, 5]
    assert [entry["changed"] for entry in resumed] == [{"train.log_every": [2, 8]}, {}]
    assert {"command", "started", "mode", "processes", "torch", "code"} <= set(resumed[0])
    assert ["finished" in entry for entry in starts()] == [False, False, True]
    assert settings()["train"]["log_every"] == 8


def test_weights_that_the_training_did_not_write_are_refused(start):
    assert start() == 0
    weights, model = Path("run/model.safetensors"), load_checkpoint(Path("run"))[0]
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
    assert start("--train.epochs=3", "--output.resume=auto", steps=1, action=terminate) == 143
    assert "weights" not in starts()[-1]
    load_checkpoint(Path("run"))


@pytest.mark.parametrize("content", ["", "[]", "{", '{"starts": [1]}'])
def test_a_damaged_history_is_no_obstacle(start, content, capsys):
    assert start(steps=3, action=terminate) == 143
    Path("run/run_history.json").write_text(content)
    assert start("--train.log_every=8") == 0
    assert [entry["step"] for entry in starts()] == [4]
    assert "is damaged and begins with this start" in capsys.readouterr().err
