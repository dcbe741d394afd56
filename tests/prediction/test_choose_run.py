"""Which run predictions are made with: python -m pytest tests/prediction/test_choose_run.py"""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from app.checkpoints.run_folder import finished_at
from app.checkpoints.run_history import add_finish
from app.errors import InputError
from app.prediction.choose_run import choose_run, describe_model

TRAINED = {"split": "test", "rows": 302, "accuracy": 0.8}


def add_run(folder: Path, age: int, task: str = "single_label") -> None:
    """Make the folder of a finished run, as far as the choice looks at it."""
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / "report.json").write_text(json.dumps(TRAINED))
    settings = {"data": {"task": task, "train": "/a/posts.csv"}, "model": {"name": "e5-small-zh"}}
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    os.utime(folder / "report.json", (1_790_000_000 - age,) * 2)


def test_a_copy_of_an_older_run_is_not_the_newest(tmp_path):
    for name, age in (("old", 2), ("new", 1)):
        add_run(tmp_path / name, age)
        starts = [{"started": "2026-01-01T08:00:00+08:00"}]
        (tmp_path / name / "run_history.json").write_text(json.dumps({"starts": starts}))
        add_finish(tmp_path / name, "0" * 64)
    shutil.copytree(tmp_path / "old", tmp_path / "backup")
    (tmp_path / "backup" / "report.json").touch()
    assert choose_run(tmp_path) == tmp_path / "new"
    assert finished_at(tmp_path / "old") == finished_at(tmp_path / "backup") < finished_at(tmp_path / "new")
    (tmp_path / "backup" / "run_history.json").write_text("[")
    assert choose_run(tmp_path) == tmp_path / "backup"


def test_what_is_no_finished_classifier_is_no_choice(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "model.safetensors").touch()
    with pytest.raises(InputError, match="there is no finished run"):
        choose_run(tmp_path)
    add_run(tmp_path / "without-model", 0)
    (tmp_path / "without-model" / "model.safetensors").unlink()
    # It predicts hidden words, not labels
    add_run(tmp_path / "pretraining", 1, task="masked_language_modelling")
    add_run(tmp_path / "newest", 2)
    add_run(tmp_path / "old", 3)
    assert choose_run(tmp_path) == tmp_path / "newest"
    said = describe_model(tmp_path / "newest")
    assert said.startswith(f"{tmp_path}/newest: from e5-small-zh, trained on posts.csv, 2026-09-2")
    assert said.endswith(", accuracy 0.8000 on 302 rows of test")
    # Nothing is said of a model without a record
    assert describe_model(tmp_path) is None
