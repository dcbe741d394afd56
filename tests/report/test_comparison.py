"""The logits of runs, and two runs on the same rows: python -m pytest tests/report/test_comparison.py"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.report.logits_file import (
    ARRAYS,
    SplitLogits,
    check_same_rows,
    logits_of,
    read_logits,
    write_logits,
    write_predictions,
)
from app.tasks import open_task
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


def two_runs(folder: Path, name: str) -> list[Path]:
    """Leave what two runs with one label a row, or with several, leave for a comparison; the second is right
    more often."""
    folder.mkdir()
    if name == "multi_label":
        posts = str(write_posts(folder / "posts.jsonl"))
        data = DataConfig(task=name, train=posts, cache_dir=str(folder / "cache"))
        split, tasks = open_dataset(data).splits["test"], [task_with([of] * 3, NAMES) for of in (0.5, 0.4)]
        truth = np.asarray(split.labels)
    else:
        split, tasks = open_tiny(folder)[0].splits["test"], [open_task(name, LABELS)] * 2
        truth = np.eye(3)[split.labels]
    generator, runs = np.random.default_rng(0), [folder / "one", folder / "other"]
    for run, task, noise in zip(runs, tasks, (5.0, 1.0), strict=True):
        run.mkdir()
        logits = (truth * 2.0 - 1 + generator.normal(0, noise, truth.shape)).astype(np.float32)
        write_logits(
            run / "logits.safetensors", {"test": logits_of(split, logits)}, task.label_names, 3, name
        )
        task.write(run, 3, {})
        write_predictions(run / "predictions.csv", split, logits, task)
    return runs


@pytest.mark.parametrize(
    ("name", "label", "said"),
    [
        ("single_label", "label", r"accuracy +B - A [+-]0\.\d+"),
        ("multi_label", "labels", r"micro F1 +B - A \+0\.\d+ [^$]*rows with all labels right won by B"),
    ],
)
def test_verb_compares_runs(name, label, said, tmp_path, capsys):
    runs = two_runs(tmp_path / "runs", name)
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


def test_verb_refuses_what_is_no_run_and_other_kinds(tmp_path, capsys):
    runs, set_runs = (two_runs(tmp_path / name, name) for name in ("single_label", "multi_label"))
    test = read_logits(set_runs[0] / "logits.safetensors")[0]["test"]
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


def test_logits_come_back_as_they_were(tmp_path):
    splits, generator = open_tiny(tmp_path)[0].splits, np.random.default_rng(0)
    written = {
        name: logits_of(splits[name], generator.normal(size=(len(splits[name]), 3)).astype(np.float32))
        for name in ("test", "dev")
    }
    write_logits(tmp_path / "logits.safetensors", written, LABELS, 7, "single_label")
    (tmp_path / "other").touch()
    assert (tmp_path / "logits.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode
    found, names, task = read_logits(tmp_path / "logits.safetensors")
    assert (names, task, set(found)) == (LABELS, "single_label", {"test", "dev"})
    for name, split in found.items():
        assert (split.hashes == splits[name].table.hashes[splits[name].rows]).all()
        for key in ARRAYS:
            array, expected = getattr(split, key), getattr(written[name], key)
            assert array.dtype == expected.dtype, key
            assert (array == expected).all(), key
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


@pytest.mark.parametrize("content", [None, b"", b"no logits", b"\x02\0\0\0\0\0\0\0{}"])
def test_other_files_are_an_error_that_names_them(tmp_path, content):
    path = tmp_path / "logits.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="logits.safetensors"):
        read_logits(path)
