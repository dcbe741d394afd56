"""Folds, seeds and learning curves: python -m pytest tests/runs/test_folds.py"""

import csv
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from sklearn.metrics import f1_score

from app.config.data_settings import VerbArguments
from app.config.schema import Config, DataConfig, TrainConfig
from app.data.dataset import Dataset, open_dataset
from app.report.logits_file import logits_of, write_logits
from app.runs.folds import (
    FLAT,
    OutOfFold,
    fold_figures,
    gather_folds,
    list_issues,
    train_seeds,
    write_oof,
)
from app.runs.series import Series, rendered
from tests.multi_label_runs import NAMES, write_posts, write_thresholds
from tests.spoken import spoken_in

FOLDS = 3
# Of each fold's run
THRESHOLDS = ([0.3, 0.5, 0.7], [0.6, 0.4, 0.5], [0.5, 0.5, 0.5])


def finished_run(
    run: Path, dataset: Dataset, splits: tuple[str, ...], thresholds: list[float], seed: int
) -> None:
    """Leave in a folder what a run leaves there: the logits of a model that is right more often than not, and
    thresholds."""
    generator = np.random.default_rng(seed)
    run.mkdir(parents=True)
    found = {}
    for name in splits:
        split = dataset.splits[name]
        logits = generator.normal(0, 1.5, split.labels.shape) + 2.0 * split.labels - 1
        found[name] = logits_of(split, logits.astype(np.float32))
    write_logits(run / "logits.safetensors", found, NAMES, 5, "multi_label")
    write_thresholds(run, thresholds, NAMES, chosen_on="dev", rows=30)


@pytest.fixture(scope="module")
def posts(tmp_path_factory) -> DataConfig:
    folder = tmp_path_factory.mktemp("folds")
    rows = write_posts(folder / "posts.jsonl")
    return DataConfig(task="multi_label", train=str(rows), cache_dir=str(folder / "cache"), dev_size=0.2)


@pytest.fixture(scope="module")
def datasets(posts) -> list[Dataset]:
    verbs = [VerbArguments(folds=FOLDS, fold=fold) for fold in range(FOLDS)]
    return [open_dataset(replace(posts, verb=verb)) for verb in verbs]


@pytest.fixture(scope="module")
def runs(datasets, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    for fold, dataset in enumerate(datasets):
        finished_run(folder / f"fold-{fold}", dataset, ("test", "dev"), THRESHOLDS[fold], fold)
    return [folder / f"fold-{fold}" for fold in range(FOLDS)]


@pytest.fixture(scope="module")
def found(runs, datasets) -> OutOfFold:
    return gather_folds(runs, datasets[0].splits["test"].table)


def expected_sets(found: OutOfFold) -> np.ndarray:
    """Return what the thresholds of each row's fold make of its logits."""
    thresholds = np.array(THRESHOLDS)[found.folds]
    return 1 / (1 + np.exp(-found.split.logits.astype(float))) >= thresholds


def parquet_rows(found: OutOfFold, folder: Path) -> list[dict]:
    write_oof(folder / "oof.parquet", found)
    return parquet.read_table(folder / "oof.parquet").to_pylist()


def test_each_row_is_decided_by_the_thresholds_of_the_run_that_did_not_see_it(found, datasets):
    assert found.split.rows.tolist() == list(range(150))
    assert np.array_equal(found.predicted, expected_sets(found))
    for fold, dataset in enumerate(datasets):
        assert np.flatnonzero(found.folds == fold).tolist() == dataset.splits["test"].rows.tolist()


def test_figures_are_those_of_sklearn(found):
    figures, text = fold_figures(found)
    labels, predicted = found.split.labels, expected_sets(found)
    for one in figures["folds"]:
        rows = found.folds == one["fold"]
        assert one["rows"] == rows.sum()
        assert one["micro_f1"] == pytest.approx(f1_score(labels[rows], predicted[rows], average="micro"))
        assert one["subset_accuracy"] == pytest.approx((labels[rows] == predicted[rows]).all(axis=1).mean())
    of_folds = [one["macro_f1"] for one in figures["folds"]]
    assert figures["mean"]["macro_f1"] == pytest.approx(np.mean(of_folds))
    assert figures["standard_deviation"]["macro_f1"] == pytest.approx(np.std(of_folds, ddof=1))
    pooled = figures["all_rows"]
    assert pooled["samples_f1"] == pytest.approx(
        f1_score(labels, predicted, average="samples", zero_division=1)
    )
    low, high = pooled["intervals"]["micro_f1"]
    assert low < pooled["micro_f1"] < high
    assert f"{pooled['micro_f1']:.4f}   {low:.4f} to {high:.4f}" in text
    chinese = spoken_in("zh", lambda: fold_figures(found)[1])
    assert f"{pooled['micro_f1']:.4f}   {low:.4f} 到 {high:.4f}" in chinese
    assert "standard" not in chinese
    assert "fold" not in chinese


def test_the_file_of_logits_has_label_lists(found, tmp_path):
    rows = parquet_rows(found, tmp_path)
    assert json.loads(parquet.read_schema(tmp_path / "oof.parquet").metadata[b"label_names"]) == NAMES
    lines = Path(found.table.source).read_text(encoding="utf-8").splitlines()
    assert [row["labels"] for row in rows] == [sorted(json.loads(line)["labels"]) for line in lines]
    shown = [[name in row["predicted"] for name in NAMES] for row in rows]
    assert np.array_equal(shown, expected_sets(found))
    assert np.array_equal([row["logits"] for row in rows], found.split.logits)
    assert [row["fold"] for row in rows] == found.folds.tolist()


def test_the_list_of_issues_becomes_fixes_where_it_is_filled_in(found, posts, tmp_path):
    pytest.importorskip(
        "cleanlab", reason="cleanlab is not installed: pip install -r requirements/labels.txt"
    )
    figures = list_issues(tmp_path / "label_issues.csv", found)
    with (tmp_path / "label_issues.csv").open(encoding="utf-8", newline="") as file:
        issues = list(csv.DictReader(file))
    wrong = (expected_sets(found) != found.split.labels).any(axis=1)
    assert {int(issue["row_id"]) for issue in issues} == set(np.flatnonzero(wrong).tolist())
    assert figures["ranked"] == len(issues)
    rows = parquet_rows(found, tmp_path)
    for issue in issues:
        row = rows[int(issue["row_id"])]
        assert (json.loads(issue["given"]), json.loads(issue["suggested"])) == (
            row["labels"],
            row["predicted"],
        )
        assert (issue["text_hash"], int(issue["line"])) == (row["text_hash"], row["line"])
    scores = [float(issue["score"]) for issue in issues]
    assert scores == sorted(scores)
    assert "are flagged by confident learning" in rendered("label_issues", found=figures, kind="labels")

    for issue in issues[:3]:
        issue["label"] = issue["suggested"]
    with (tmp_path / "label_issues.csv").open("w", encoding="gb18030", newline="") as file:
        writer = csv.DictWriter(file, list(issues[0]))
        writer.writeheader()
        writer.writerows(issues)
    # What is filled in stays when the list is written again
    filled = (tmp_path / "label_issues.csv").read_bytes()
    assert list_issues(tmp_path / "label_issues.csv", found) == figures
    assert (tmp_path / "label_issues.csv").read_bytes() == filled
    fixes = str(tmp_path / "label_issues.csv")
    fixed = open_dataset(replace(posts, dev_size=0, test_size=0, relabel=fixes))
    expected = np.array(found.split.labels)
    for issue in issues[:3]:
        expected[int(issue["row_id"])] = [name in json.loads(issue["suggested"]) for name in NAMES]
    assert np.array_equal(fixed.splits["train"].labels, expected)


@pytest.mark.parametrize("split", ["test", "dev"])
def test_the_spread_of_seeds_is_at_the_thresholds_of_each_seed(split, datasets, posts, tmp_path):
    """The runs have finished before."""
    config = replace(Config(data=posts), train=TrainConfig(seed=7))
    series = Series(tmp_path / "runs", "2 seeds", "single", 1, [], config)
    series.open()
    for seed in (7, 8):
        run = series.folder / f"seed-{seed}"
        finished_run(run, datasets[0], (split,), THRESHOLDS[seed - 7], seed)
        (run / "report.json").touch()
    assert "samples F1: another seed moves it by" in train_seeds(series, 2)
    figures = json.loads((series.folder / "cross_validation.json").read_text(encoding="utf-8"))
    labels = np.asarray(datasets[0].splits[split].labels)
    for at, seed in enumerate((7, 8)):
        generator = np.random.default_rng(seed)
        logits = (generator.normal(0, 1.5, labels.shape) + 2.0 * labels - 1).astype(np.float32).astype(float)
        predicted = 1 / (1 + np.exp(-logits)) >= THRESHOLDS[at]
        micro_f1 = f1_score(labels, predicted, average="micro")
        assert figures["micro_f1"]["values"][at] == pytest.approx(micro_f1)


@pytest.mark.parametrize(
    ("change", "low", "high", "said"),
    [
        (0.05, 0.01, 0.09, "more rows help. Twice as many would give about 0.80"),
        (0.0, -0.01, 0.009, "more rows of this kind hardly help"),
        (0.02, -0.03, 0.07, "302 rows it is tested on are too few"),
    ],
)
def test_what_a_learning_curve_says(change, low, high, said):
    points = [{"macro_f1": 0.7 + change}]
    figures = {
        "metric": "macro_f1",
        "split": "test",
        "rows": 302,
        "points": points,
        "table": "",
        "flat": FLAT,
    }
    figures |= {"last_change": change, "last_change_interval": [low, high]}
    assert said in rendered("curve", **figures)
    assert "302" in spoken_in("zh", lambda: rendered("curve", **figures))
