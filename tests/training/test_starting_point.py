"""The model before the first step is a candidate for the best checkpoint, where it knows the labels."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from app.checkpoints.run_files import PAGE, REPORT, TEXT
from app.run import main
from app.runtime.disk import read_json
from app.training.metrics_file import METRICS_FILE, read_evaluations
from tests.ranks import check_run, largest_difference, need, settings
from tests.saved_classifier import save_checkpoint

SPOILED = {"train__learning_rate": 1.0, "train__warmup": 0, "train__schedule": "constant"}
LENGTH = {"train__epochs": 2, "train__save_every": 2}
RESULTS = ("model.safetensors", REPORT, "predictions.csv")


@pytest.fixture(scope="module")
def good(data, tmp_path_factory) -> Path:
    """A finished run that knows the labels."""
    folder = tmp_path_factory.mktemp("good") / "run"
    learns = {"model__config__initializer_range": 0.2, "train__learning_rate": 0.03, "train__epochs": 3}
    assert main("single", "", settings(data, folder, **learns)) == 0
    return folder


@pytest.fixture
def spoil(good, data, at_step):
    """Return a function that goes on from the good run at a rate that spoils it, and returns the exit status;
    after `steps` steps the run is stopped."""

    def train(folder: Path, steps: int | None = None, **changes) -> int:
        at_step(steps)
        from_good = {"sizes": {}, "model__name": good}
        return main("single", "", settings(data, folder, **from_good, **SPOILED, **LENGTH, **changes))

    return train


def dev_evaluations(folder: Path) -> list[dict]:
    return [line for line in read_evaluations(folder / METRICS_FILE) if line["split"] == "dev"]


def test_the_start_stays_where_no_step_makes_it_better(good, spoil, tmp_path):
    assert spoil(tmp_path / "run") == 0
    first, *later = dev_evaluations(tmp_path / "run")
    assert (first["step"], first["best"], "train_loss" in first) == (0, True, False)
    assert len(later) == 2
    assert not any(line["best"] for line in later)
    start = load_file(good / "model.safetensors")
    for name, weight in load_file(tmp_path / "run" / "model.safetensors").items():
        assert torch.equal(weight, start[name])
    report = read_json(tmp_path / "run" / REPORT)
    assert report["step"] == 0
    assert report["accuracy"] == read_json(good / REPORT)["accuracy"]
    title = (tmp_path / "run" / TEXT).read_text(encoding="utf-8").splitlines()[0]
    assert "checkpoint of step 0, chosen by macro_f1" in title
    assert title.endswith("; no step of the training made it better")
    assert "no step" not in (good / TEXT).read_text(encoding="utf-8")


def test_a_stopped_run_still_has_its_start(spoil, tmp_path):
    assert spoil(tmp_path / "whole") == 0
    assert spoil(tmp_path / "stopped", steps=3) == 143
    assert spoil(tmp_path / "stopped") == 0
    for name in RESULTS:
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    steps = [line["step"] for line in dev_evaluations(tmp_path / "stopped")]
    assert steps == [line["step"] for line in dev_evaluations(tmp_path / "whole")]


def test_early_stopping_counts_from_the_start(spoil, tmp_path):
    assert spoil(tmp_path, train__early_stopping=1) == 0
    assert [line["step"] for line in dev_evaluations(tmp_path)][0] == 0
    assert len(dev_evaluations(tmp_path)) == 2
    assert "has not been better than at step 0 in 1 evaluation" in (tmp_path / "train.log").read_text()


def test_a_random_head_is_no_candidate(good):
    """It knows no label, so the time for an evaluation is saved."""
    assert min(line["step"] for line in dev_evaluations(good)) > 0


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp", "deepspeed"])
def test_all_ranks_begin_with_the_head_of_rank_0_and_evaluate_it(mode, data, checkpoint, tmp_path):
    need(mode)
    changes = {"sizes": {}, "model__name": checkpoint, "model__head": "linear", "train__epochs": 1}
    changes |= {"model__dropout": 0, "train__learning_rate": 1e-3}
    assert main("single", "", settings(data, tmp_path / "single", **changes)) == 0
    check_run(mode, 2, settings(data, tmp_path / mode, **changes), log=tmp_path / "log")
    first, *later = dev_evaluations(tmp_path / "single")
    first_of_mode, *_ = dev_evaluations(tmp_path / mode)
    assert (first["step"], len(later)) == (0, 1)
    assert first_of_mode["loss"] == pytest.approx(first["loss"], rel=1e-5)
    assert largest_difference(tmp_path / "single", tmp_path / mode) < 1e-4


def test_the_report_says_what_the_training_added(good, data, tmp_path):
    """To a linear head, or to a run that knew the labels; the figures are those of dev in metrics.jsonl."""
    run = tmp_path / "run"
    learns = {"model__head": "linear", "train__learning_rate": 1e-3, "train__best_metric": "loss"}
    encoder = save_checkpoint(tmp_path / "encoder")
    changes = {"sizes": {}, "model__name": encoder, "output__language": "en"}
    assert main("single", "", settings(data, run, **changes, **learns)) == 0
    report = read_json(run / REPORT)
    by_step = {line["step"]: line for line in dev_evaluations(run)}
    assert report["step"] > 0
    for name, step in (("before", 0), ("after", report["step"])):
        expected = {key: by_step[step][key] for key in ("accuracy", "macro_f1")}
        assert report["start_on_dev"][name] == expected
    sentence = "On dev the linear head that the training started from has accuracy "
    assert sentence in (run / TEXT).read_text(encoding="utf-8")
    assert sentence in (run / PAGE).read_text(encoding="utf-8")
    assert "start_on_dev" not in read_json(good / REPORT)
