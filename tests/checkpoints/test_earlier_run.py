"""A run that an earlier version started: python -m pytest tests/checkpoints/test_earlier_run.py

earlier_run/ holds the run folder as that version left it, stopped by SIGTERM after step 14 of 30, and its
data file. Its training state names the caches of that data; what they are named after must not change either.
"""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.run.entry import main

EARLIER = Path(__file__).parent / "earlier_run"
JOB = [
    *(
        "--data.train=rows.tsv",
        "--model.vocab_file=vocab.txt",
        "--data.max_length=16",
        "--train.batch_size=8",
    ),
    *("--train.epochs=6", "--train.learning_rate=0.02", "--train.warmup=0.2", "--model.dropout=0.1"),
    *("--train.eval_every=3", "--train.save_every=4", "--train.log_every=4", "--train.early_stopping=20"),
    *(
        "--model.config.hidden_size=8",
        "--model.config.num_hidden_layers=1",
        "--model.config.num_attention_heads=2",
    ),
    *("--model.config.intermediate_size=16", "--model.config.max_position_embeddings=16"),
    *("--train.device=cpu", "--train.threads=1", "--output.tensorboard=false"),
]


@pytest.fixture(autouse=True)
def _place(tmp_path, monkeypatch):
    """Work in a copy of the earlier run's folder, whose paths are relative."""
    shutil.copytree(EARLIER, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)


def run(folder: str, *arguments: str) -> int:
    return main("single", "", [*JOB, f"--output.dir={folder}", "--output.resume=auto", *arguments])


def evaluations(folder: str) -> list[dict]:
    lines = Path(folder, "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key != "seconds"} for line in lines]


def test_it_resumes_and_ends_as_if_it_had_not_been_stopped(capsys):
    """Best checkpoint, evaluations without improvement and losses not logged yet come from the earlier state
    too."""
    assert run("run") == 0
    assert "Resuming from step 14." in capsys.readouterr().err
    assert run("whole") == 0
    # Other machines round differently than the one of the earlier run.
    stopped, whole = (load_file(Path(folder, "model.safetensors")) for folder in ("run", "whole"))
    assert set(stopped) == set(whole)
    assert max(float((stopped[name] - whole[name]).abs().max()) for name in whole) < 1e-4
    assert [(line["step"], line["best"]) for line in evaluations("run")] == [
        (line["step"], line["best"]) for line in evaluations("whole")
    ]
    for one, other in zip(evaluations("run"), evaluations("whole"), strict=True):
        assert one["loss"] == pytest.approx(other["loss"], abs=1e-4)
    lines = [Path(folder, "train.log").read_text(encoding="utf-8") for folder in ("run", "whole")]
    losses = [line.split("step 16/30  loss ")[1].split()[0] for line in lines]
    assert float(losses[0]) == pytest.approx(float(losses[1]), abs=1e-4)


def test_it_stops_early_where_it_would_have(capsys):
    """Its third evaluation without improvement was at step 12; the fourth is at 15."""
    assert run("run", "--train.early_stopping=4") == 0
    assert (
        "Stopped early after step 15: macro_f1 has not been better than at step 3 in 4"
        in capsys.readouterr().err
    )


def test_it_trains_for_longer():
    assert run("run", "--train.epochs=7") == 0
    assert evaluations("run")[-1]["step"] == 35


def test_another_job_is_still_refused(capsys):
    assert run("run", "--train.learning_rate=0.01") == 2
    assert "train.learning_rate was 0.02 and is 0.01; change them back" in capsys.readouterr().err


def test_another_place_of_its_data_is_refused_with_the_reason(capsys):
    """Its state has no digest of the file, only names that depend on the path."""
    Path("rows.tsv").rename("moved.tsv")
    assert run("run", "--data.train=moved.tsv") == 2
    said = capsys.readouterr().err
    assert "data.train was rows.tsv and is moved.tsv (" in said
    assert "this state of an earlier version resumes only with the same paths" in said
    Path("moved.tsv").rename("rows.tsv")
    assert run("run", "--data.split_seed=7") == 2
    assert "data.split_seed was 42 and is 7" in capsys.readouterr().err
