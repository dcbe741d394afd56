"""Files are read as in the run's training: python -m pytest tests/commands/test_predict_recorded_settings.py

The run was trained on titles; its files have a column with a more usual name too, content.
"""

import csv
import json
from pathlib import Path

import pytest

from app.prediction.open_model import ComputeOptions, open_model
from app.run import main as train
from tests.tiny import SIZES, tiny_lines
from tests.verbs import export
from tests.verbs import predict as main


def write_table(path: Path, delimiter: str, encoding: str) -> list[list[str]]:
    """Write rows with the columns content, title, label, and return them; only titles tell the label."""
    rows = [line.split("\t") for line in tiny_lines(20)[1:]]
    table = [["content", "title", "label"], *(["的一", title, label] for title, label in rows)]
    with path.open("w", encoding=encoding, newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows(table)
    return table


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run on titles, in a CSV file named .txt, in GB18030."""
    folder = tmp_path_factory.mktemp("titles")
    write_table(folder / "rows.txt", ",", "gb18030")
    config = {
        "data": {"train": str(folder / "rows.txt"), "test": str(folder / "rows.txt"), "max_length": 16}
        | {"format": "csv", "text_column": "title", "encoding": "gb18030", "cache_dir": str(folder / "c")},
        "model": {"config": SIZES | {"initializer_range": 0.2}},
        "train": {"epochs": 20, "learning_rate": 0.003, "batch_size": 16}
        | {"precision": "fp32", "device": "cpu", "threads": 1},
        "output": {"trackers": [], "dir": str(folder / "checkpoints" / "run")},
    }
    (folder / "config.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert train("single", "", ["--config", str(folder / "config.yaml")]) == 0
    return folder / "checkpoints" / "run"


def accuracy_of(report: Path) -> float:
    return json.loads((report / "report.json").read_text(encoding="utf-8"))["accuracy"]


def test_predict_and_its_report_read_the_file_as_the_newest_run_did(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run.parents[1])
    options = ["--device", "cpu", "--input", "rows.txt"]
    assert main([*options, "--report", str(tmp_path / "out")]) == 0
    assert accuracy_of(tmp_path / "out") == accuracy_of(run)
    assert "model checkpoints/run\n" in capsys.readouterr().err
    assert main([*options, "--output", str(tmp_path / "labels.csv")]) == 0
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        texts = [row["title"].strip() for row in csv.DictReader(file)]
    assert texts == [row[1].strip() for row in write_table(tmp_path / "same.csv", ",", "utf-8")[1:]]


def test_an_exported_folder_reads_files_as_its_run_did(run, tmp_path):
    pytest.importorskip("onnxruntime")
    source, output = run.parents[1] / "rows.txt", tmp_path / "onnx"
    assert export([str(run), "--output", str(output), "--rows", str(source)]) == 0
    options = ["--checkpoint", str(output), "--input", str(source), "--report", str(tmp_path / "out")]
    assert main(options) == 0
    assert accuracy_of(tmp_path / "out") == accuracy_of(run)
    recorded = open_model(output, ComputeOptions()).recorded
    assert (recorded["text_column"], recorded["encoding"], recorded["train"]) == (
        "title",
        "gb18030",
        "rows.txt",
    )


def test_a_column_of_the_run_that_a_file_lacks_is_an_error_that_names_it(run, tmp_path, capsys):
    path = tmp_path / "other.csv"
    path.write_text("content,label\n今天,正面\n", encoding="utf-8")
    options = ["--checkpoint", str(run), "--device", "cpu", "--input", str(path), "--data.encoding", "utf-8"]
    assert main(options) == 2
    assert "there is no text column 'title'" in capsys.readouterr().err
    assert main([*options, "--text_column", "content"]) == 0


def test_single_texts_for_a_model_of_pairs_are_an_error(run, tmp_path, capsys):
    pairs = tmp_path / "pairs"
    pairs.mkdir()
    for path in run.iterdir():
        if path.is_file():
            (pairs / path.name).write_bytes(path.read_bytes())
    config = (run / "config.yaml").read_text(encoding="utf-8")
    (pairs / "config.yaml").write_text(
        config.replace("text_pair_column: null", "text_pair_column: content"), encoding="utf-8"
    )
    (tmp_path / "lines.txt").write_text("今天\n", encoding="gb18030")
    for texts in (["今天"], ["--input", str(tmp_path / "lines.txt"), "--format", "text"]):
        assert main(["--checkpoint", str(pairs), "--device", "cpu", *texts]) == 2
        assert "the model was trained on pairs of texts, found single texts" in capsys.readouterr().err
    options = ["--device", "cpu", "--input", str(run.parents[1] / "rows.txt")]
    assert main(["--checkpoint", str(pairs), *options]) == 0
    assert "text 'title', second text 'content'" in capsys.readouterr().err
    assert main(["--checkpoint", str(run), *options, "--text_pair_column", "content"]) == 2
    assert "the model was trained on single texts, found pairs" in capsys.readouterr().err
