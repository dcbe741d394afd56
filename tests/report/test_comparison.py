"""Two classifiers on the same rows: python -m pytest tests/report/test_comparison.py"""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import bootstrap
from sklearn.metrics import f1_score

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
from app.runs.comparing import Comparison, compare
from app.tasks import open_task
from app.tasks.task import Task
from tests.multi_label_runs import NAMES, read_predictions, task_with, write_posts
from tests.tiny import LABELS, open_tiny
from tests.verbs import compare as main


def two_models(num_rows: int = 400, better: float = 0.4) -> tuple[SplitLogits, SplitLogits]:
    generator = np.random.default_rng(3)
    labels, ids = generator.integers(0, 3, num_rows), np.arange(num_rows)
    logits = generator.normal(0, 1, (num_rows, 3)).astype(np.float32)
    logits[ids, labels] += 1
    other = logits + generator.normal(0, 0.5, logits.shape).astype(np.float32)
    other[ids, labels] += better
    return tuple(SplitLogits(ids, labels, ids.astype(np.uint64), one) for one in (logits, other))


def compare_logits(one: SplitLogits, other: SplitLogits) -> Comparison:
    task = open_task("single_label", LABELS)
    return compare(task, *(task.score(rows.labels, rows.logits) for rows in (one, other)))


def test_intervals_of_differences_are_those_of_scipy():
    one, other = two_models()
    found = compare_logits(one, other)
    labels, first, second = one.labels, one.logits.argmax(1), other.logits.argmax(1)

    def difference(labels, first, second):
        return f1_score(labels, second, average="macro") - f1_score(labels, first, average="macro")

    options = {"method": "percentile", "paired": True, "vectorized": False, "n_resamples": 500, "rng": 1}
    expected = bootstrap((labels, first, second), difference, **options).confidence_interval
    assert found.differences["macro_f1"][1] == pytest.approx(expected, abs=0.008)
    right = np.stack([second == labels, first == labels]).astype(float)
    expected = bootstrap((right[0] - right[1],), np.mean, method="percentile", n_resamples=5000, rng=1)
    assert found.differences["accuracy"][1] == pytest.approx(expected.confidence_interval, abs=0.005)
    assert found.won.tolist() == np.flatnonzero((second == labels) & (first != labels)).tolist()
    assert found.lost.tolist() == np.flatnonzero((second != labels) & (first == labels)).tolist()


def test_other_rows_are_refused():
    one, other = two_models()
    fewer = SplitLogits(one.rows[1:], one.labels[1:], one.hashes[1:], one.logits[1:])
    texts = SplitLogits(one.rows, one.labels, one.hashes[::-1], one.logits)
    labels = SplitLogits(one.rows, (one.labels + 1) % 3, one.hashes, one.logits)
    for changed, message in (
        (fewer, "400 and 399 rows"),
        (texts, "other texts in 400"),
        (labels, "other labels in 400"),
    ):
        with pytest.raises(InputError, match=message):
            check_same_rows(one, changed)


def write_run(folder: Path, split: Split, logits: np.ndarray, task: Task) -> Path:
    """Write what a run leaves behind for a comparison."""
    folder.mkdir()
    path, of_test = folder / "logits.safetensors", {"test": logits_of(split, logits)}
    write_logits(path, of_test, task.label_names, 3, task.name)
    task.write(folder, 3, {})
    write_predictions(folder / "predictions.csv", split, logits, task)
    return folder


@pytest.fixture
def runs(tmp_path) -> list[Path]:
    (tmp_path / "data").mkdir()
    dataset, _, _ = open_tiny(tmp_path / "data")
    split, generator = dataset.splits["test"], np.random.default_rng(0)
    return [
        write_run(
            tmp_path / name,
            split,
            generator.normal(0, 1, (len(split), 3)).astype(np.float32),
            open_task("single_label", LABELS),
        )
        for name in ("one", "other")
    ]


def check_listed(output: Path, runs: list[Path], label: str) -> None:
    """Compare the rows that the verb has written with the predictions of both runs."""
    one, other = ({row["row_id"]: row for row in read_predictions(run / "predictions.csv")} for run in runs)
    rows = {row["row_id"]: row for row in read_predictions(output)}
    assert rows
    for row_id, row in one.items():
        right = row["predicted"] == row[label], other[row_id]["predicted"] == row[label]
        assert (row_id in rows) == (right[0] != right[1])
        if row_id in rows:
            assert rows[row_id]["outcome"] == ("won" if right[1] else "lost")
            assert rows[row_id]["text"] == row["text"]
            assert rows[row_id]["predicted_a"] == row["predicted"]
            assert rows[row_id]["predicted_b"] == other[row_id]["predicted"]


def test_verb_compares_runs_and_lists_the_rows(runs, tmp_path, capsys):
    output = tmp_path / "rows.csv"
    assert main([*map(str, runs), "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert "accuracy  B - A " in said
    assert "McNemar's exact test: p = " in said
    check_listed(output, runs, "label")
    assert main([*map(str, runs), "--output", str(output)]) == 2
    assert "there is such a file" in capsys.readouterr().err
    assert main([*map(str, runs), str(runs[0])]) == 0
    assert capsys.readouterr().out.count("McNemar") == 2


def test_verb_refuses_what_is_no_run(runs, tmp_path, capsys):
    assert main([str(runs[0]), str(tmp_path)]) == 2
    assert "a finished run with logits.safetensors is needed" in capsys.readouterr().err
    assert main([str(runs[0])]) == 2
    assert "two runs are needed" in capsys.readouterr().err
    assert main([*map(str, runs), str(runs[0]), "--output", "x.csv"]) == 2
    assert "for --output, found 3" in capsys.readouterr().err


@pytest.fixture
def set_runs(tmp_path) -> list[Path]:
    """Two folders of runs with any number of labels a row; the second is right more often."""
    data = DataConfig(train=str(write_posts(tmp_path / "posts.jsonl")), cache_dir=str(tmp_path / "cache"))
    split = open_dataset(replace(data, task="multi_label")).splits["test"]
    generator, folders = np.random.default_rng(0), []
    for name, noise, threshold in (("one", 2.0, 0.5), ("other", 0.8, 0.4)):
        labels = np.asarray(split.labels)
        logits = (labels * 2.0 - 1 + generator.normal(0, noise, labels.shape)).astype(np.float32)
        task = task_with(np.full(3, threshold), NAMES)
        folders.append(write_run(tmp_path / name, split, logits, task))
    return folders


def test_verb_compares_runs_of_label_lists(set_runs, tmp_path, capsys):
    output = tmp_path / "rows.csv"
    assert main([*map(str, set_runs), "--output", str(output)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"micro F1 +B - A \+0\.\d+ +95 % interval", said)
    assert "rows with all labels right won by B" in said
    check_listed(output, set_runs, "labels")


def test_a_run_of_one_label_is_not_compared_with_one_of_several(set_runs, tmp_path, capsys):
    test = read_logits(set_runs[0] / "logits.safetensors").splits["test"]
    single = replace(test, labels=np.asarray(test.labels).argmax(axis=1), logits=np.array(test.logits))
    folder = tmp_path / "single"
    folder.mkdir()
    write_logits(folder / "logits.safetensors", {"test": single}, NAMES, 3, "single_label")
    assert main([str(set_runs[0]), str(folder)]) == 2
    assert (
        "the runs must have the same data.task and labels, found multi_label with 3"
        in capsys.readouterr().err
    )
