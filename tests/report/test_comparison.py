"""Two classifiers on the same rows: python -m pytest tests/report/test_comparison.py"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.config.schema import DataConfig
from app.data.dataset import Split, open_dataset
from app.errors import InputError
from app.report.logits_file import (
    SplitLogits,
    check_same_rows,
    logits_of,
    read_logits,
    write_logits,
    write_predictions,
)
from app.tasks import open_task
from app.tasks.task import Task
from tests.multi_label_runs import NAMES, read_predictions, task_with, write_posts
from tests.tiny import LABELS, open_tiny
from tests.verbs import compare as main


def test_other_rows_are_refused():
    ids = np.arange(40)
    one = SplitLogits(ids, ids % 3, ids.astype(np.uint64), np.zeros((40, 3), np.float32))
    fewer = SplitLogits(one.rows[1:], one.labels[1:], one.hashes[1:], one.logits[1:])
    for changed in (fewer, replace(one, hashes=one.hashes[::-1]), replace(one, labels=(one.labels + 1) % 3)):
        with pytest.raises(InputError, match=f"texts or labels in 40 and {len(changed)} rows"):
            check_same_rows(one, changed)
    check_same_rows(one, one)


def write_run(folder: Path, split: Split, logits: np.ndarray, task: Task) -> Path:
    """Write what a run leaves behind for a comparison."""
    folder.mkdir()
    logits = logits.astype(np.float32)
    of_test = {"test": logits_of(split, logits)}
    write_logits(folder / "logits.safetensors", of_test, task.label_names, 3, task.name)
    task.write(folder, 3, {})
    write_predictions(folder / "predictions.csv", split, logits, task)
    return folder


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    (tmp_path / "data").mkdir()
    split, generator = open_tiny(tmp_path / "data")[0].splits["test"], np.random.default_rng(0)
    return [
        write_run(
            tmp_path / name, split, generator.normal(0, 1, (len(split), 3)), open_task("single_label", LABELS)
        )
        for name in ("one", "other")
    ]


@pytest.fixture
def set_runs(tmp_path) -> list[Path]:
    """Two folders of runs with any number of labels a row; the second is right more often."""
    data = DataConfig(train=str(write_posts(tmp_path / "posts.jsonl")), cache_dir=str(tmp_path / "cache"))
    split = open_dataset(replace(data, task="multi_label")).splits["test"]
    generator, labels = np.random.default_rng(0), np.asarray(split.labels)
    return [
        write_run(
            tmp_path / name,
            split,
            labels * 2.0 - 1 + generator.normal(0, noise, labels.shape),
            task_with(np.full(3, threshold), NAMES),
        )
        for name, noise, threshold in (("first", 2.0, 0.5), ("second", 0.8, 0.4))
    ]


@pytest.mark.parametrize(
    ("of", "label", "said"),
    [
        ("runs", "label", r"accuracy +B - A [+-]0\.\d+"),
        ("set_runs", "labels", r"micro F1 +B - A \+0\.\d+ [^$]*rows with all labels right won by B"),
    ],
)
def test_verb_compares_runs(of, label, said, request, capsys):
    runs = request.getfixturevalue(of)
    assert main(list(map(str, runs))) == 0
    printed = capsys.readouterr().out
    assert re.search(said, printed)
    assert "McNemar's exact test: p = " in printed
    one, other = (
        [row["predicted"] == row[label] for row in read_predictions(run / "predictions.csv")] for run in runs
    )
    won = sum(now and not before for before, now in zip(one, other, strict=True))
    lost = sum(before and not now for before, now in zip(one, other, strict=True))
    assert f" won by B {won}, lost {lost};" in printed


def test_verb_refuses_what_is_no_run_and_other_kinds(runs, set_runs, tmp_path, capsys):
    test = read_logits(set_runs[0] / "logits.safetensors").splits["test"]
    single = replace(test, labels=np.asarray(test.labels).argmax(axis=1), logits=np.array(test.logits))
    (tmp_path / "single").mkdir()
    write_logits(tmp_path / "single" / "logits.safetensors", {"test": single}, NAMES, 3, "single_label")
    for words, message in (
        ([runs[0], tmp_path], "the logits of a finished run are needed"),
        ([runs[0]], "two or more runs are needed"),
        ([set_runs[0], tmp_path / "single"], "must have the same data.task and labels, found multi_label"),
    ):
        assert main(list(map(str, words))) == 2
        assert message in capsys.readouterr().err
    assert main(list(map(str, [*runs, runs[0]]))) == 0
    assert capsys.readouterr().out.count("McNemar") == 2
