"""`python -m app cross-validate` and `learning-curve` with real runs: python -m pytest
tests/commands/test_cross_validate.py -m "slow or not slow" """

import csv
import json
import subprocess
import sys
from pathlib import Path
from shlex import split

import numpy as np
import pytest

from tests.multi_label_runs import write_posts
from tests.tiny import LABELS, write_tiny
from tests.verbs import cross_validate as main
from tests.verbs import learning_curve

ROOT = Path(__file__).resolve().parents[2]
TINY = split(
    "--model.config.hidden_size=64 --model.config.num_hidden_layers=1 --model.config.intermediate_size=64 "
    "--model.config.num_attention_heads=4 --train.learning_rate 0.003 --train.device cpu --train.epochs 10 "
    "--train.batch_size 16 --model.dropout 0 --output.trackers [] --train.threads 1 --train.precision fp32"
)


def cross_validate(folder: Path, *words: str) -> subprocess.CompletedProcess:
    data = ["--data.train", str(folder / "rows.tsv"), "--data.cache_dir", str(folder / "cache")]
    command = [sys.executable, "-m", "app", "cross-validate", *TINY, *data, *words]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=500, check=False)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folds", "1"], "--folds must be from 2 to 1,000, found 1"),
        (["--seeds", "1"], "--seeds must be from 2 to 100, found 1"),
        (["--mode", "ddpp"], "there is no mode ddpp"),
        (
            ["--data.task", "masked_language_modelling", "--data.train", "a.txt"],
            "needs labels, found data.task masked_language_modelling",
        ),
        (["--train.epoch", "3"], "there is no setting 'train.epoch'"),
    ],
)
def test_what_cannot_be_done_is_refused(capsys, words, message):
    assert main(words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_folds_from_the_first_command_to_fixed_labels(tmp_path):
    """Some labels of the file are wrong; the list finds them; a finished command is quick and equal; other
    settings are refused."""
    pytest.importorskip(
        "cleanlab", reason="cleanlab is not installed: pip install -r requirements/labels.txt"
    )
    from pyarrow import parquet

    lines = write_tiny(tmp_path / "rows.tsv", rows_per_label=80).read_text(encoding="utf-8").splitlines()
    noisy = {}
    for at in range(5, 240, 24):
        text, label = lines[at].split("\t")
        noisy[at + 1] = label
        lines[at] = f"{text}\t{LABELS[(LABELS.index(label) + 1) % 3]}"
    (tmp_path / "rows.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    out = tmp_path / "out"
    words = ["--folds", "2", "--output.dir", str(out)]
    done = cross_validate(tmp_path, *words)
    assert done.returncode == 0, done.stderr

    table = parquet.read_table(out / "oof.parquet")
    rows = table.to_pylist()
    assert [row["row_id"] for row in rows] == list(range(240))
    assert [row["line"] for row in rows] == list(range(2, 242))
    assert [row["label"] for row in rows] == [line.split("\t")[1] for line in lines[1:]]
    names = json.loads(table.schema.metadata[b"label_names"])
    assert names == sorted(LABELS)
    assert all(row["predicted"] == names[int(np.argmax(row["logits"]))] for row in rows)
    figures = json.loads((out / "cross_validation.json").read_text(encoding="utf-8"))
    accuracy = np.mean([row["predicted"] == row["label"] for row in rows])
    assert figures["all_rows"]["accuracy"] == pytest.approx(accuracy)
    for one in figures["folds"]:
        part = [row["predicted"] == row["label"] for row in rows if row["fold"] == one["fold"]]
        assert (one["rows"], one["accuracy"]) == (len(part), pytest.approx(np.mean(part)))

    with (out / "label_issues.csv").open(encoding="utf-8", newline="") as file:
        issues = list(csv.DictReader(file))
    first = {int(issue["line"]) for issue in issues[: len(noisy)]}
    assert len(first & set(noisy)) >= 5
    assert [float(issue["score"]) for issue in issues] == sorted(float(issue["score"]) for issue in issues)
    assert len([path for path in (tmp_path / "cache").glob("tokens-*") if path.is_dir()]) == 1

    again = cross_validate(tmp_path, *words)
    assert again.stdout == done.stdout
    assert again.stderr.count("finished before") == 2
    other = cross_validate(tmp_path, *words, "--train.learning_rate", "0.02")
    assert other.returncode == 2
    assert (
        "holds these runs with other settings or data: train.learning_rate was 0.003 and is 0.02"
        in other.stderr
    )


@pytest.mark.slow
def test_folds_of_label_lists(tmp_path):
    pytest.importorskip(
        "cleanlab", reason="cleanlab is not installed: pip install -r requirements/labels.txt"
    )
    write_posts(tmp_path / "rows.tsv").rename(tmp_path / "rows.jsonl")
    out = tmp_path / "out"
    words = ["--folds", "2", "--output.dir", str(out), "--data.task", "multi_label"]
    words += ["--data.train", str(tmp_path / "rows.jsonl"), "--train.epochs", "25"]
    done = cross_validate(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    figures = json.loads((out / "cross_validation.json").read_text(encoding="utf-8"))
    for one in figures["folds"]:
        report = json.loads((out / f"fold-{one['fold']}" / "report.json").read_text(encoding="utf-8"))
        # The report adds up other groups of equal rows, so the last digit may differ
        expected = {name: one[name] for name in figures["mean"]}
        assert {name: report[name] for name in figures["mean"]} == pytest.approx(expected, rel=1e-12)
    assert figures["mean"]["micro_f1"] > 0.6


@pytest.mark.slow
def test_seeds_in_two_processes(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=20)
    out = tmp_path / "out"
    words = [*split("--seeds 2 --mode mp --processes 2 --output.dir"), str(out), "--train.epochs", "1"]
    done = cross_validate(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    figures = json.loads((out / "cross_validation.json").read_text(encoding="utf-8"))
    assert figures["seeds"] == [42, 43]
    for at, seed in enumerate((42, 43)):
        report = json.loads((out / f"seed-{seed}" / "report.json").read_text(encoding="utf-8"))
        assert figures["accuracy"]["values"][at] == pytest.approx(report["accuracy"])
        assert figures["macro_f1"]["values"][at] == pytest.approx(report["macro_f1"])
        (start,) = json.loads((out / f"seed-{seed}" / "run_history.json").read_text(encoding="utf-8"))[
            "starts"
        ]
        assert (start["mode"], start["processes"]) == ("mp", 2)
    assert "another seed moves it by" in done.stdout


@pytest.mark.slow
def test_a_curve_from_the_first_command_and_again(tmp_path, capsys):
    data = ["--data.train", str(write_tiny(tmp_path / "rows.tsv", rows_per_label=80))]
    data += ["--data.cache_dir", str(tmp_path / "cache"), "--output.dir", str(tmp_path / "out")]
    assert learning_curve([*TINY, *data]) == 0
    first = capsys.readouterr()
    written = json.loads((tmp_path / "out/learning_curve.json").read_text(encoding="utf-8"))
    assert [point["train_rows"] for point in written["points"]] == [24, 48, 96, 192]
    assert written["rows"] == 24
    assert (tmp_path / "out/learning_curve.txt").is_file()
    assert learning_curve([*TINY, *data]) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err.count("finished before") == 4
