"""A config.yaml of the user stays as it is: python -m pytest tests/checkpoints/test_run_config.py"""

import dataclasses
import json
from pathlib import Path

import pytest
import yaml

from app.checkpoints.find_run import holds_run
from app.checkpoints.run_config import CONFIG, ENVIRONMENT, RESOLVED, write_config
from app.checkpoints.run_folder import create_run_folder
from app.config.schema import Config, OutputConfig, TrainConfig
from app.prediction.saved_model import run_settings

CONFIG_A, CONFIG_B = (Config(train=TrainConfig(epochs=epochs)) for epochs in (3, 4))
OVERWRITE = OutputConfig(dir="run", overwrite=True)
MINE = "data: {max_length: 77}\n# my notes\n"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()


def start(config: Config) -> None:
    """Do what a run does at its start, and a little more."""
    create_run_folder(OVERWRITE)
    write_config(Path("run"), config)
    Path("run", ENVIRONMENT).write_text("{}")
    Path("run/train.log").write_text("step 1")


def epochs(name: str) -> int:
    return yaml.safe_load(Path("run", name).read_text())["train"]["epochs"]


def test_a_file_of_the_user_is_kept_through_all_runs():
    path = Path("run", CONFIG)
    path.write_text(MINE)
    for config in (CONFIG_A, CONFIG_B):
        start(config)
        assert path.read_text() == MINE
        assert epochs(RESOLVED) == config.train.epochs
        assert holds_run(Path("run"))
        assert run_settings(Path("run"))["max_length"] == config.data.max_length != 77
    # As a run that trains for longer does
    write_config(Path("run"), CONFIG_A)
    assert path.read_text() == MINE
    assert epochs(RESOLVED) == 3


def test_a_copy_of_another_runs_file_is_the_users():
    start(CONFIG_A)
    text = Path("run", CONFIG).read_text()
    Path("run").rename("first")
    Path("run").mkdir()
    Path("run", CONFIG).write_text(text)
    start(CONFIG_B)
    assert Path("run", CONFIG).read_text() == text
    assert epochs(RESOLVED) == 4


def test_the_file_of_a_run_is_replaced_unless_it_was_changed():
    start(CONFIG_A)
    start(CONFIG_B)
    assert epochs(CONFIG) == 4
    write_config(Path("run"), CONFIG_A)
    assert epochs(CONFIG) == 3
    changed = Path("run", CONFIG).read_text().replace("epochs: 3", "epochs: 9")
    Path("run", CONFIG).write_text(changed)
    start(CONFIG_B)
    assert Path("run", CONFIG).read_text() == changed
    assert epochs(RESOLVED) == 4


@pytest.mark.parametrize("note", ["", "# mine\n"])
def test_a_file_of_an_earlier_version_is_the_runs(note):
    start(CONFIG_A)
    text = yaml.safe_dump(dataclasses.asdict(CONFIG_A), allow_unicode=True, sort_keys=False) + note
    Path("run", CONFIG).write_text(text)
    start(CONFIG_B)
    assert Path("run", RESOLVED).exists() == bool(note)
    assert (Path("run", CONFIG).read_text() == text) == bool(note)


def test_what_a_run_killed_at_its_start_has_left_beside_it_is_replaced():
    Path("run", CONFIG).write_text(MINE)
    write_config(Path("run"), CONFIG_A)
    start(CONFIG_B)
    assert Path("run", CONFIG).read_text() == MINE
    assert epochs(RESOLVED) == 4
    assert json.loads(Path("run", ENVIRONMENT).read_text()) == {}
