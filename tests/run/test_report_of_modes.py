"""The whole path in every mode: training, report.html, calibration, card and logits: -m slow
tests/run/test_report_of_modes.py"""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import ModelCard

from app.modes import load_mode, mode_names
from app.modes.launch import Launcher, Torchrun
from app.report.logits_file import SplitLogits, read_logits
from app.runs.series import child_environment
from tests.processes import finish
from tests.ranks import run as run_ranks
from tests.ranks import settings
from tests.report.test_page import Checker
from tests.tiny import write_tiny
from tests.verbs import predict

EXACT = ("accuracy", "macro_f1", "weighted_f1", "classes", "confusion_matrix")
EXACT += ("rows", "split", "step", "data", "baselines")
NEAR = ("loss", "brier", "ece")
NUMBER = re.compile(r"\d+\.\d+")
pytestmark = pytest.mark.slow


def run(mode: str, place: Path) -> Path:
    """Train a few steps in a mode, with two processes where it has several; return the run folder. Where no
    launcher or torchrun starts them, they are forked with what it sets."""
    folder = place / mode / "run"
    folder.parent.mkdir()
    files = ["--data.train", str(place / "rows.tsv"), "--data.cache_dir", str(place / "cache")]
    changes = {"train__max_steps": 8, "train__eval_every": 4, "model__dropout": 0}
    words = settings(files, folder, output__trackers="[tensorboard]", **changes)
    launcher, log = load_mode(mode).launcher, place / f"{mode}.log"
    if type(launcher) in (Launcher, Torchrun):
        world_size = 1 if launcher.one_process else 2
        assert run_ranks(mode, world_size, words, log=log) == [0] * world_size, log.read_text()
        return folder
    command = launcher.command(["-m", "app.run", mode, *words], 2)
    done = finish(command, folder.parent, **child_environment())
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("modes")
    write_tiny(folder / "rows.tsv", 40)
    return folder


@pytest.fixture(scope="module")
def single(place) -> Path:
    return run("single", place)


def read_report(folder: Path) -> dict:
    return json.loads((folder / "report.json").read_text(encoding="utf-8"))


def logits_of(folder: Path) -> dict[str, SplitLogits]:
    return read_logits(folder / "logits.safetensors")[0]


def numbers(text: str) -> list[float]:
    return [float(number) for number in NUMBER.findall(text)]


@pytest.mark.parametrize("mode", [mode for mode in mode_names() if mode != "single"])
def test_every_mode_leaves_the_same_behind(mode, place, single):
    if lacks := load_mode(mode).unavailable_reason():
        pytest.skip(lacks)
    folder = run(mode, place)
    assert {path.name for path in folder.iterdir()} == {path.name for path in single.iterdir()}
    expected, report = read_report(single), read_report(folder)
    assert set(report) == set(expected)
    assert {key: report[key] for key in EXACT} == {key: expected[key] for key in EXACT}
    for key in NEAR:
        assert report[key] == pytest.approx(expected[key], abs=1e-3)
        assert report["intervals"][key] == pytest.approx(expected["intervals"][key], abs=1e-2)
    assert report["intervals"]["accuracy"] == expected["intervals"]["accuracy"]
    # The dev rows are too few for a temperature
    assert "calibration" not in report
    for name, found in logits_of(folder).items():
        other = logits_of(single)[name]
        assert (found.rows == other.rows).all()
        assert (found.labels == other.labels).all()
        assert (found.hashes == other.hashes).all()
        np.testing.assert_allclose(found.logits, other.logits, atol=1e-3)
    card, card_of_single = (ModelCard.load(path / "README.md") for path in (folder, single))
    values = [[result.metric_value for result in of.data.eval_results] for of in (card, card_of_single)]
    assert values[0] == values[1]
    assert NUMBER.sub("", card.text) == NUMBER.sub("", card_of_single.text)
    assert numbers(card.text) == pytest.approx(numbers(card_of_single.text), abs=0.02)
    pages = [Checker((path / "report.html").read_text(encoding="utf-8")) for path in (folder, single)]
    assert pages[0].tags == pages[1].tags


def test_single_is_a_model_for_predict(single, capsys):
    assert predict(["--checkpoint", str(single), "好棒美"]) == 0
    assert "正面" in capsys.readouterr().out
