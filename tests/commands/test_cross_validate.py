"""`python -m app cross-validate` and `learning-curve` with real runs: python -m pytest
tests/commands/test_cross_validate.py -m "slow or not slow" """

import csv
import json
import sys
from pathlib import Path
from shlex import split

import numpy as np
import pytest

from app.commands import run_verb
from tests.processes import finish
from tests.tiny import LABELS, write_tiny

TINY = split(
    "--model.config.hidden_size=64 --model.config.num_hidden_layers=1 --model.config.intermediate_size=64 "
    "--model.config.num_attention_heads=4 --train.learning_rate 0.003 --train.device cpu --train.epochs 10 "
    "--train.batch_size 16 --model.dropout 0 --output.trackers [] --train.threads 1 --train.precision fp32"
)


def run(verb: str, folder: Path, *words: str) -> tuple[str, str]:
    """Run a verb on a file in `folder`, into its folder out; return what it printed."""
    data = [f"--data.train={folder / 'rows.tsv'}", f"--data.cache_dir={folder / 'cache'}"]
    data.append(f"--output.dir={folder / 'out'}")
    done = finish([sys.executable, "-m", "app", verb, *TINY, *data, *words], timeout=500)
    assert done.returncode == 0, done.stderr
    return done.stdout, done.stderr


def read(path: Path) -> dict:
    return json.loads(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--folds", "1"], "--folds must be from 2 to 1,000, found 1"),
        (["--seeds", "1"], "--seeds must be from 2 to 100, found 1"),
        (["--mode", "ddpp"], "there is no mode ddpp"),
        (["--data.task", "masked_language_modelling", "--data.train", "a.txt"], "labels are needed, found"),
        (["--train.epoch", "3"], "there is no setting 'train.epoch'"),
    ],
)
def test_what_cannot_be_done_is_refused(capsys, words, message):
    assert run_verb("cross-validate", words) == 2
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_folds_from_the_first_command_to_fixed_labels(tmp_path):
    """Some labels of the file are wrong; the list finds them; a finished command is quick and equal."""
    pytest.importorskip("cleanlab", reason="needs cleanlab: pip install -r requirements/labels.txt")
    from pyarrow import parquet

    lines = write_tiny(tmp_path / "rows.tsv", rows_per_label=80).read_text(encoding="utf-8").splitlines()
    noisy = range(5, 240, 24)
    for at in noisy:
        text, label = lines[at].split("\t")
        lines[at] = f"{text}\t{LABELS[(LABELS.index(label) + 1) % 3]}"
    (tmp_path / "rows.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    printed, _ = run("cross-validate", tmp_path, "--folds", "2")

    out = tmp_path / "out"
    table = parquet.read_table(out / "oof.parquet")
    rows = table.to_pylist()
    assert [row["row_id"] for row in rows] == list(range(240))
    assert [row["line"] for row in rows] == list(range(2, 242))
    assert [row["label"] for row in rows] == [line.split("\t")[1] for line in lines[1:]]
    names = json.loads(table.schema.metadata[b"label_names"])
    assert names == sorted(LABELS)
    assert all(row["predicted"] == names[int(np.argmax(row["logits"]))] for row in rows)
    figures = read(out / "cross_validation.json")
    assert figures["all_rows"]["accuracy"] == pytest.approx(
        np.mean([row["predicted"] == row["label"] for row in rows])
    )
    for one in figures["folds"]:
        part = [row["predicted"] == row["label"] for row in rows if row["fold"] == one["fold"]]
        assert (one["rows"], one["accuracy"]) == (len(part), pytest.approx(np.mean(part)))

    with (out / "label_issues.csv").open(encoding="utf-8", newline="") as file:
        issues = list(csv.DictReader(file))
    first = {int(issue["line"]) - 1 for issue in issues[: len(noisy)]}
    assert len(first & set(noisy)) >= 5
    assert [float(issue["score"]) for issue in issues] == sorted(float(issue["score"]) for issue in issues)
    assert len([path for path in (tmp_path / "cache").glob("tokens-*") if path.is_dir()]) == 1
    again, said = run("cross-validate", tmp_path, "--folds", "2")
    assert again == printed
    assert said.count("finished before") == 2


@pytest.mark.slow
def test_seeds_in_two_processes(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=20)
    words = split("--seeds 2 --mode mp --processes 2 --train.epochs 1")
    printed, _ = run("cross-validate", tmp_path, *words)
    figures = read(tmp_path / "out" / "cross_validation.json")
    assert figures["seeds"] == [42, 43]
    for at, seed in enumerate((42, 43)):
        report = read(tmp_path / "out" / f"seed-{seed}" / "report.json")
        for metric in ("accuracy", "macro_f1"):
            assert figures[metric]["values"][at] == pytest.approx(report[metric])
        (start,) = read(tmp_path / "out" / f"seed-{seed}" / "run_history.json")["starts"]
        assert (start["mode"], start["processes"]) == ("mp", 2)
    assert "another seed moves it by" in printed


@pytest.mark.slow
def test_a_curve_from_the_first_command_and_again(tmp_path):
    write_tiny(tmp_path / "rows.tsv", rows_per_label=80)
    printed, _ = run("learning-curve", tmp_path)
    written = read(tmp_path / "out" / "learning_curve.json")
    assert [point["train_rows"] for point in written["points"]] == [24, 48, 96, 192]
    assert written["rows"] == 24
    assert (tmp_path / "out" / "learning_curve.txt").is_file()
    again, said = run("learning-curve", tmp_path)
    assert again == printed
    assert said.count("finished before") == 4
