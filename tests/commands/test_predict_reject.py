"""predict --reject: texts that are unlike all classes: python -m pytest
tests/commands/test_predict_reject.py"""

import csv
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis
from sklearn.covariance import LedoitWolf

from app.config.command_line import load_config
from app.data.rows import Row
from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.rejection import Rejection
from app.prediction.run_vectors import RunVectors
from app.run.entry import work
from tests.multi_label_runs import write_posts
from tests.tiny import SIZES, tiny_lines, write_tiny
from tests.verbs import predict as main


def trained(folder: Path, data: Path, *options: str) -> Path:
    """Return a run of two epochs on a file."""
    sizes = [f"--model.config.{name}={value}" for name, value in SIZES.items()]
    files = [f"--data.train={data}", f"--data.cache_dir={folder / 'cache'}", "--data.max_length=32"]
    output = [f"--output.dir={folder / 'run'}", "--output.tensorboard=false", "--train.epochs=2"]
    assert work(load_config([*files, *output, *sizes, *options]), "single") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reject")
    return trained(folder, write_tiny(folder / "rows.tsv", 60), "--data.dev_size=0.3")


@pytest.fixture(scope="module")
def rejection(run) -> Rejection:
    return Rejection(RunVectors(open_model(run, ComputeOptions("cpu")), "--reject"), 0.1)


def predict(run: Path, *arguments: str) -> int:
    return main(["--checkpoint", str(run), "--device", "cpu", *arguments])


def test_a_share_of_the_rows_of_the_classes_is_rejected_and_texts_unlike_them_are(run, tmp_path):
    known = [line.split("\t")[0] for line in tiny_lines(60, seed=5)[1:]]
    foreign = ["qwertyuiop" * 3, "??!!??!!??!!"]
    (tmp_path / "texts.txt").write_text("\n".join([*known, *foreign]) + "\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "out.csv")]
    assert predict(run, *files, "--reject", "0.1") == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]][-2:] == ["usual", "rejected"]
    assert all((row["rejected"] == "yes") == (float(row["usual"]) <= 0.1) for row in rows)
    rejected = np.array([row["rejected"] == "yes" for row in rows])
    # 54 dev rows choose it: the share on other rows varies
    assert rejected[: len(known)].mean() < 0.25
    assert rejected[len(known) :].all()


def test_of_the_dev_rows_no_more_than_the_share_is_rejected(rejection):
    split = rejection.vectors.dataset.splits["dev"]
    rows = [Row(at, split.table.text(at), None, None) for at in split.rows.tolist()]
    found = rejection.values(rows, np.empty(0), [])
    # A row is compared with itself too, with rounding in between
    assert 0 < sum(one["rejected"] == "yes" for one in found) <= 0.1 * (len(rows) + 1) + 1
    assert all(0 < one["usual"] <= 1 for one in found)


def test_the_distance_is_that_of_mahalanobis_to_the_nearest_class(rejection):
    split = rejection.vectors.dataset.splits["train"]
    known, labels = np.array(rejection.vectors.of_split(split)), np.asarray(split.labels)
    means = np.stack([known[labels == label].mean(axis=0) for label in range(3)])
    precision = LedoitWolf(assume_centered=True).fit(known - means[labels]).precision_
    expected = [min(mahalanobis(one, mean, precision) for mean in means) for one in known[:7]]
    np.testing.assert_allclose(rejection.distances(known[:7]), expected, rtol=1e-3)


def test_both_options_compute_the_vectors_once(run, monkeypatch, capsys):
    from app.vectors.text_vectors import TextVectors

    computed, compute = [], TextVectors.compute
    monkeypatch.setattr(
        TextVectors, "compute", lambda self, texts: computed.append(texts) or compute(self, texts)
    )
    options = ["--reject", "0.5", "--evidence", "1", "--output_format", "lines"]
    assert predict(run, "好棒美赞", *options) == 0
    assert computed == [["好棒美赞"]]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[-4:]] == ["usual", "rejected", "support", "evidence"]


def test_a_share_that_the_dev_rows_cannot_show_is_an_error(run, capsys):
    assert predict(run, "好", "--reject", "0.001") == 2
    assert "--reject 0.001 needs 999 dev rows of the run, found 54" in capsys.readouterr().err


def test_a_run_of_several_labels_a_row_is_refused(tmp_path, capsys):
    folder = trained(tmp_path, write_posts(tmp_path / "posts.jsonl"), "--data.task=multi_label")
    assert predict(folder, "好", "--reject", "0.5") == 2
    assert "--reject is for runs of one label a row" in capsys.readouterr().err
