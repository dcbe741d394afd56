"""An encoder with a linear model of character n-grams beside it: what a run reports is what it answers,
wherever it is opened, and the encoder alone is still there."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.api import load
from app.checkpoints.run_files import CARD, PAGE, REPORT, TEXT
from app.config.command_line import load_config
from app.errors import InputError
from app.ngrams.second_reader import FILES, NGRAM_WEIGHTS, NGRAMS, read_second_reader
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.report.logits_file import read_run
from app.run import work
from app.runtime.disk import read_json
from app.tasks.decision_file import DECISION
from tests.multi_label_runs import read_predictions
from tests.ranks import settings
from tests.saved_classifier import as_rows
from tests.tiny import LABELS, write_tiny
from tests.verbs import explain, export

NEAR = 1e-4  # a logit of another batch


def train(folder: Path, out: Path, **changes) -> int:
    data = ["--data.train", str(folder / "rows.tsv"), "--data.cache_dir", str(folder / "cache")]
    usual = {
        "train__epochs": 2,
        "train__learning_rate": 1e-3,
        "data__dev_size": 0.25,
        "output__resume": "never",
    }
    return work(load_config(settings(data, out, **usual | changes)), "single")


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("readers")
    write_tiny(folder / "rows.tsv", 160)
    return folder


@pytest.fixture(scope="module")
def run(folder) -> Path:
    """A run whose encoder has learnt little, so that n-grams help."""
    assert train(folder, folder / "run", model__ngrams="auto") == 0
    return folder / "run"


@pytest.fixture(scope="module")
def rows(run) -> list[dict]:
    return read_predictions(run / "predictions.csv")


def logits_of(opened: OpenedModel, texts: list[str]) -> np.ndarray:
    predictor = opened.predictor
    return predictor.logits(predictor.tokenize(as_rows(texts)))


def test_the_report_has_the_encoder_alone_and_by_how_much_both_are_better(run):
    report = read_json(run / REPORT)
    readers = report["readers"]
    assert report["macro_f1"] > readers["encoder"]["macro_f1"] + 0.05
    change = readers["changes"]["macro_f1"]
    assert change["change"] == pytest.approx(report["macro_f1"] - readers["encoder"]["macro_f1"])
    low, high = change["interval"]
    assert low < change["change"] < high
    text = (run / TEXT).read_text(encoding="utf-8")
    assert f"the encoder alone: accuracy {readers['encoder']['accuracy']:.4f}" in text
    assert "The encoder alone" in (run / PAGE).read_text(encoding="utf-8")
    card = (run / CARD).read_text(encoding="utf-8")
    assert "macro F1 of the encoder alone" in card
    assert "The pipeline above answers by the encoder alone" in card
    assert "Character n-grams answer beside the encoder" in (run / "train.log").read_text(encoding="utf-8")


def test_a_run_answers_as_it_has_reported(run, rows):
    texts = [row["text"] for row in rows]
    assert list(load(run, device="cpu").predict(texts)) == [row["predicted"] for row in rows]
    _task, splits = read_run(run)
    logits = logits_of(open_model(run, ComputeOptions("cpu")), texts)
    assert np.abs(logits - splits["test"].logits).max() < NEAR
    assert np.mean([row["predicted"] == row["label"] for row in rows]) == read_json(run / REPORT)["accuracy"]


def test_the_checkpoint_of_transformers_is_the_encoder_alone(run, rows, tmp_path):
    texts = [row["text"] for row in rows]
    opened = open_model(run, ComputeOptions("cpu"))
    encoder = replace(opened, predictor=replace(opened.predictor, second_reader=None))
    added = opened.predictor.second_reader.added(texts)
    assert np.abs(logits_of(encoder, texts) + added - logits_of(opened, texts)).max() < NEAR
    # Only what transformers knows
    names = ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json")
    for name in names:
        shutil.copy(run / name, tmp_path / name)
    plain = open_model(tmp_path, ComputeOptions("cpu"))
    assert np.abs(logits_of(plain, texts) - logits_of(encoder, texts)).max() < NEAR


def test_requests_that_are_computed_together_keep_their_parts(run, rows):
    pytest.importorskip("fastapi", reason="needs fastapi: pip install -r requirements/serve.txt")
    from app.serving.queue import joined

    predictor = open_model(run, ComputeOptions("cpu")).predictor
    texts = [row["text"] for row in rows[:5]]
    requests = [predictor.tokenize(as_rows([text])) for text in texts]
    together = predictor.logits(joined(requests))
    alone = np.concatenate([predictor.logits(request) for request in requests])
    assert np.abs(together - alone).max() < NEAR


def test_a_server_says_that_there_are_two(run, rows):
    pytest.importorskip("fastapi", reason="needs fastapi: pip install -r requirements/serve.txt")
    from tests.serving.running_server import HTTP, OPTIONS, running

    opened = open_model(run, ComputeOptions("cpu"))
    text = rows[0]["text"]
    with running(opened, OPTIONS) as address:
        info = HTTP.get(f"{address}/info").json()
        [answer] = HTTP.post(f"{address}/predict", json={"inputs": text, "top_k": 1}).json()
    assert info["second_reader"] == opened.predictor.second_reader.characters.method
    assert answer["label"] == rows[0]["predicted"]


def test_an_export_carries_both_or_the_encoder_alone(run, rows, tmp_path, capsys):
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -r requirements/onnx.txt")
    pytest.importorskip("onnx", reason="needs onnx: pip install -r requirements/onnx.txt")
    texts = [row["text"] for row in rows]
    opened = open_model(run, ComputeOptions("cpu"))
    assert export([str(run), "--output", str(tmp_path / "both")]) == 0
    assert "--encoder_alone" in capsys.readouterr().err
    both = open_model(tmp_path / "both", ComputeOptions())
    assert np.abs(logits_of(both, texts) - logits_of(opened, texts)).max() < 1e-3

    assert export([str(run), "--output", str(tmp_path / "alone"), "--encoder_alone"]) == 0
    assert not any((tmp_path / "alone" / name).exists() for name in FILES)
    encoder = replace(opened, predictor=replace(opened.predictor, second_reader=None))
    alone = open_model(tmp_path / "alone", ComputeOptions())
    assert np.abs(logits_of(alone, texts) - logits_of(encoder, texts)).max() < 1e-3
    # It has the temperature of its own
    assert alone.predictor.task.state() == opened.predictor.second_reader.encoder_decision


def test_an_explanation_has_the_exact_part_of_the_ngrams(run, rows):
    pytest.importorskip("captum", reason="needs captum: pip install -r requirements/explain.txt")
    from app.explanation.explained_model import ExplainedModel
    from app.explanation.explanation import explain as explain_texts

    text = rows[0]["text"]
    reader = read_second_reader(run, LABELS)
    ranges = [(index, index + 1) for index in range(len(text))]
    parts, remainder = reader.parts(text, ranges)
    assert np.allclose(parts.sum(axis=0) + remainder, reader.added([text])[0], atol=1e-5)
    # Everything but the shift and the bias comes from characters
    assert np.allclose(remainder, reader.shift + reader.weight * reader.characters.bias, atol=1e-5)
    model = ExplainedModel(run, "cpu")
    for explanation in explain_texts(model, (text,)):
        total = explanation.log_odds - explanation.neutral
        assert explanation.values.sum() == pytest.approx(total, abs=0.02 * max(1, abs(total)))
        assert explanation.label_names[explanation.label] == rows[0]["predicted"]
    assert explain([str(run), text, "--device", "cpu"]) == 0


def test_without_its_files_a_run_is_refused(run, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    (copy / NGRAM_WEIGHTS).unlink()
    with pytest.raises(InputError, match=NGRAM_WEIGHTS):
        open_model(copy, ComputeOptions("cpu"))
    shutil.copy(run / NGRAM_WEIGHTS, copy)
    values = read_json(run / NGRAMS)
    (copy / NGRAMS).write_text(json.dumps(values | {"weight": 9.0}), encoding="utf-8")
    with pytest.raises(InputError, match=NGRAMS):
        open_model(copy, ComputeOptions("cpu"))


@pytest.mark.parametrize("change", [{"shift": {}}, {"weight": "much"}, {"ngrams": ["天"]}])
def test_damaged_files_are_named(run, tmp_path, change):
    for name in FILES:
        shutil.copy(run / name, tmp_path / name)
    values = read_json(run / NGRAMS)
    (tmp_path / NGRAMS).write_text(json.dumps(values | change), encoding="utf-8")
    with pytest.raises(InputError, match="ngrams"):
        read_second_reader(tmp_path, LABELS)


def test_training_for_longer_chooses_again(run, folder, tmp_path):
    copy = shutil.copytree(run, tmp_path / "copy")
    first = read_json(copy / NGRAMS)
    assert train(folder, copy, model__ngrams="auto", train__epochs=3, output__resume="auto") == 0
    report = read_json(copy / REPORT)
    assert report["step"] > first["step"]
    if (copy / NGRAMS).exists():
        assert read_json(copy / NGRAMS)["step"] == report["step"]
    else:
        assert "readers" not in report


def test_off_leaves_the_encoder_alone(run, folder, tmp_path):
    assert train(folder, tmp_path / "off", model__ngrams="off") == 0
    assert not any((tmp_path / "off" / name).exists() for name in FILES)
    report = read_json(tmp_path / "off" / REPORT)
    assert "readers" not in report
    alone = read_json(run / REPORT)["readers"]["encoder"]
    assert report["macro_f1"] == pytest.approx(alone["macro_f1"])
    assert read_json(tmp_path / "off" / DECISION)["temperature"] == pytest.approx(
        read_json(run / NGRAMS)["encoder_decision"]["temperature"]
    )


def test_on_needs_single_texts_and_rows_of_dev(folder, tmp_path, capsys):
    assert train(folder, tmp_path / "few", model__ngrams="on", data__dev_size=0.1) == 2
    assert re.search(r"at least 100 rows of dev.*found 48", capsys.readouterr().err)
    write_tiny(tmp_path / "rows.tsv", 60, pairs=True)
    pairs = {"data__text_pair_column": "other", "train__max_steps": 1}
    assert train(tmp_path, tmp_path / "pairs", model__ngrams="on", **pairs) == 2
    assert "single texts, found pairs" in capsys.readouterr().err
    assert train(tmp_path, tmp_path / "auto", model__ngrams="auto", **pairs) == 0
    assert "The encoder answers alone" in (tmp_path / "auto" / "train.log").read_text(encoding="utf-8")
    with pytest.raises(InputError, match="model.ngrams must be left out unless data.task is single_label"):
        train(folder, tmp_path / "masked", model__ngrams="on", data__task="masked_language_modelling")
