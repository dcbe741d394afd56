"""A class that is added without training: python -m pytest tests/export/test_added_class.py"""

import csv
import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from app.config.command_line import load_config
from app.data.rows import Row
from app.prediction.head_states import head_states
from app.prediction.open_model import ComputeOptions, open_model
from app.run.entry import work
from tests.saved_classifier import save_checkpoint
from tests.tiny import LABELS, SIZES, write_tiny
from tests.verbs import add_class as main
from tests.verbs import export, predict

NAME, MIXED = "物流", "差好坏棒烂美"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run that has learned three classes of 120 rows."""
    folder = tmp_path_factory.mktemp("class")
    sizes = [f"--model.config.{name}={value}" for name, value in SIZES.items()]
    data = write_tiny(folder / "rows.tsv", 40)
    files = [f"--data.train={data}", f"--data.cache_dir={folder / 'cache'}", "--data.dev_size=0.3"]
    output = [f"--output.dir={folder / 'run'}", "--output.tensorboard=false"]
    training = [
        "--train.epochs=8",
        "--train.batch_size=8",
        "--train.learning_rate=3e-3",
        "--data.max_length=32",
    ]
    assert work(load_config([*files, *output, *sizes, *training]), "single") == 0
    return folder / "run"


def texts_of(words: str, count: int, seed: int) -> list[str]:
    generator = random.Random(seed)
    return ["".join(generator.choices(words, k=8)) for _ in range(count)]


@pytest.fixture(scope="module")
def five(run) -> Path:
    """Five texts with the characters of two classes, which none of the run is like."""
    path = run.parent / "five.txt"
    path.write_text("\n".join(texts_of(MIXED, 5, 0)) + "\n", encoding="utf-8")
    return path


def digests(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in folder.iterdir()
        if path.is_file()
    }


@pytest.fixture(scope="module")
def added(run, five) -> Path:
    before, new = digests(run), run.parent / "new"
    options = ["--name", NAME, "--texts", str(five), "--output", str(new), "--may_lose", "0.1"]
    assert main([str(run), *options]) == 0
    assert digests(run) == before
    return new


def test_the_new_class_is_found_and_the_others_are_kept(run, added, tmp_path):
    texts = texts_of(MIXED, 30, 1)
    (tmp_path / "new.txt").write_text("\n".join(texts) + "\n", encoding="utf-8")
    arguments = [
        "--input",
        str(tmp_path / "new.txt"),
        "--output",
        str(tmp_path / "out.csv"),
        "--device",
        "cpu",
    ]
    assert predict(["--checkpoint", str(added), *arguments]) == 0
    with (tmp_path / "out.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [*rows[0]][-4:] == [f"p_{label}" for label in [*LABELS, NAME]]
    assert np.mean([row["label"] == NAME for row in rows]) > 0.8
    report = json.loads((added / "report.json").read_text("utf-8"))
    found = report["added_class"]
    assert found["name"] == NAME
    assert found["lost"] == int(0.1 * found["right"])
    assert report["accuracy"] == (found["right"] - found["lost"]) / found["rows"]


def test_the_weights_of_the_others_are_those_of_the_run(run, added):
    models = [AutoModelForSequenceClassification.from_pretrained(folder) for folder in (run, added)]
    before, after = (model.state_dict() for model in models)
    assert models[1].config.id2label == dict(enumerate([*LABELS, NAME]))
    for key, value in before.items():
        assert torch.equal(after[key][: len(value)], value)
    rows = after["classifier.weight"]
    assert rows[3].norm().item() == pytest.approx(rows[:3].norm(dim=1).mean().item(), rel=1e-5)


def test_it_is_exported_like_a_run(added, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    assert export([str(added), "--output", str(tmp_path / "onnx")]) == 0
    rows = [Row(1, "的一的一", None, None), Row(2, "好棒美赞", None, None)]
    opened = [open_model(folder, ComputeOptions("cpu")) for folder in (added, tmp_path / "onnx")]
    answers = [[one.answer for one in model.predictor.predict(rows)] for model in opened]
    assert answers[0] == answers[1]


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
def test_final_states_times_the_last_layer_are_the_logits(tmp_path, architecture):
    folder = save_checkpoint(tmp_path / "model", architecture)
    predictor = open_model(folder, ComputeOptions("cpu")).predictor
    rows = [
        Row(at, text, None, None) for at, text in enumerate(texts_of("今天真好", 9, 2) + ["好" * 50, "坏"])
    ]
    states, logits = head_states(predictor, rows)
    layer = predictor.runtime.model.model.classifier
    expected = states @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    np.testing.assert_allclose(logits, predictor.logits(predictor.tokenize(rows)), atol=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"--name": LABELS[0]}, "the model has this label"),
        ({"--name": " x"}, "without spaces around it"),
        ({"--may_lose": "1"}, "--may_lose must be a share"),
        ({"--output": "."}, "there is such a folder"),
        ({"--texts": "missing.txt"}, "missing.txt"),
    ],
)
def test_bad_input_leaves_nothing_behind(run, five, tmp_path, capsys, change, message):
    options = {"--name": NAME, "--texts": str(five), "--output": str(tmp_path / "new")} | change
    assert main([str(run), *(word for pair in options.items() for word in pair)]) == 2
    assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == []


def test_a_model_of_several_labels_a_row_is_refused(five, tmp_path, capsys):
    folder = save_checkpoint(tmp_path / "model", problem_type="multi_label_classification")
    options = ["--name", NAME, "--texts", str(five), "--output", str(tmp_path / "new")]
    assert main([str(folder), *options]) == 2
    assert "error:" in capsys.readouterr().err
