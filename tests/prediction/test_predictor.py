"""The predictor and saved models: python -m pytest tests/prediction. The command line:
tests/commands/test_predict_verb.py"""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml

from app.checkpoints.run_folder import add_finish
from app.data.tokens import LongTexts
from app.errors import InputError, TrainingError
from app.prediction.open_model import ComputeOptions, choose_run, open_model
from app.prediction.predictor import Predictor
from app.prediction.torch_runtime import load_predictor
from app.tasks.task import softmax as probabilities
from tests.saved_classifier import LABELS, VOCABULARY, as_rows, of_pipeline, random_texts, save_checkpoint

CPU = ComputeOptions("cpu")
WINDOWS = {"max_length": 20, "long": "windows", "max_windows": 6}


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_predictions_are_those_of_transformers_in_the_order_of_the_rows(tmp_path, architecture, has_pairs):
    folder = save_checkpoint(tmp_path, architecture)
    texts = random_texts(40)
    rows = as_rows(texts, texts[::-1] if has_pairs else None)
    predictor = load_predictor(folder, device="cpu", batch_tokens=200)
    assert predictor.runtime.layout.packed == (architecture == "bert")
    predictions = list(predictor.predict(rows, chunk_rows=16))
    wanted = of_pipeline(
        folder, [{"text": row.text, "text_pair": row.pair} if has_pairs else row.text for row in rows]
    )
    assert [prediction.row for prediction in predictions] == rows
    assert [prediction.answer for prediction in predictions] == [
        LABELS[label] for label in wanted.argmax(axis=1)
    ]
    assert np.ptp(wanted, axis=0).max() > 0.1
    np.testing.assert_allclose([prediction.probabilities for prediction in predictions], wanted, atol=1e-5)


def test_rows_are_read_a_chunk_at_a_time(checkpoint):
    taken, batches = [], []

    def rows():
        for row in as_rows(random_texts(25)):
            taken.append(row.line)
            yield row

    predictions = load_predictor(checkpoint, device="cpu").predict(
        rows(), chunk_rows=10, on_batch=batches.append
    )
    assert next(predictions).row.line == 1
    assert len(taken) == 10
    assert sum(batches) == 10
    assert [prediction.row.line for prediction in predictions] == list(range(2, 26))


def test_bf16_is_near_fp32(checkpoint):
    rows = as_rows(random_texts(20))
    predictors = [
        load_predictor(checkpoint, device="cpu", precision=precision) for precision in ("fp32", "bf16")
    ]
    exact, rough = (predictor.logits(predictor.tokenize(rows)) for predictor in predictors)
    assert 0 < np.abs(exact - rough).max() < 0.2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_logits_that_are_not_finite_name_the_row(checkpoint, value, precision):
    """Only rows that have the character 鼎, which is [UNK], are not finite; the chunk before them is fine."""
    predictor = load_predictor(checkpoint, device="cpu", precision=precision)
    embeddings = predictor.runtime.model.get_submodule("model.bert.embeddings.word_embeddings").weight
    with torch.no_grad():
        embeddings[VOCABULARY.index("[UNK]")] = value
    texts = [*["今天"] * 3, "好鼎", "真好", "鼎"]
    predictions = predictor.predict(as_rows(texts), chunk_rows=3)
    assert [next(predictions).row.line for _ in range(3)] == [1, 2, 3]
    with pytest.raises(TrainingError) as error:
        next(predictions)
    remedy = ", or set --precision fp32" if precision == "bf16" else ""
    assert str(error.value) == (
        "the model's logits must be finite numbers, found nan, nan, nan for row 4: '好鼎'; its "
        f"weights are damaged or too large, choose another checkpoint{remedy}"
    )


def test_predictor_refuses_a_single_label(tmp_path):
    folder = save_checkpoint(tmp_path, num_labels=1, id2label={0: "负面"}, label2id={"负面": 0})
    with pytest.raises(InputError, match="choose from two or more labels"):
        load_predictor(folder, device="cpu")


def add_run(folder: Path, age: int, task: str = "single_label") -> None:
    """Make the folder of a finished run, as far as the choice looks at it."""
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / "report.json").write_text("{}")
    (folder / "config.yaml").write_text(f"data: {{task: {task}}}")
    os.utime(folder / "report.json", (1_790_000_000 - age,) * 2)


def test_a_copy_of_an_older_run_is_not_the_newest(tmp_path):
    for name, age in (("old", 2), ("new", 1)):
        add_run(tmp_path / name, age)
        starts = [{"started": "2026-01-01T08:00:00+08:00"}]
        (tmp_path / name / "run_history.json").write_text(json.dumps({"starts": starts}))
        add_finish(tmp_path / name, "0" * 64)
    shutil.copytree(tmp_path / "old", tmp_path / "backup")
    (tmp_path / "backup" / "report.json").touch()
    assert choose_run(tmp_path) == tmp_path / "new"
    (tmp_path / "backup" / "run_history.json").write_text("[")
    assert choose_run(tmp_path) == tmp_path / "backup"


def test_what_is_no_finished_classifier_is_no_choice(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "model.safetensors").touch()
    with pytest.raises(InputError, match="there is no finished run"):
        choose_run(tmp_path)
    add_run(tmp_path / "without-model", 0)
    (tmp_path / "without-model" / "model.safetensors").unlink()
    # It predicts hidden words, not labels
    add_run(tmp_path / "pretraining", 1, task="masked_language_modelling")
    add_run(tmp_path / "newest", 2)
    add_run(tmp_path / "old", 3)
    assert choose_run(tmp_path) == tmp_path / "newest"


def run_folder(folder: Path, settings: dict) -> Path:
    """Save a classifier with the settings of a run that read long texts in some way."""
    save_checkpoint(folder)
    (folder / "config.yaml").write_text(yaml.safe_dump({"data": settings}))
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return run_folder(tmp_path_factory.mktemp("windows") / "run", WINDOWS)


def by_hand(predictor: Predictor, text: str) -> np.ndarray:
    """Return the probabilities of a text, whose windows are computed one by one."""
    predictor.tokenizer.no_truncation()
    first, *ids, last = predictor.tokenizer.encode(text).ids
    count = min(6, 1 + max(0, -(-(len(ids) - 18) // 13)))
    windows = [torch.tensor([[first, *ids[at * 13 : at * 13 + 18], last]]) for at in range(count)]
    with torch.inference_mode():
        logits = torch.cat([predictor.runtime.model(window) for window in windows]).numpy()
    return probabilities(logits.mean(axis=0, keepdims=True))[0]


def test_logits_are_the_means_of_those_of_the_windows(folder):
    opened = open_model(folder, CPU)
    assert opened.predictor.long == LongTexts("windows", 6)
    texts, done = random_texts(30), []
    found = [
        p.probabilities for p in opened.predictor.predict(as_rows(texts), chunk_rows=13, on_batch=done.append)
    ]
    assert sum(done) == 30
    reference = open_model(folder, CPU).predictor
    np.testing.assert_allclose(found, [by_hand(reference, text) for text in texts], atol=1e-5)
    assert np.ptp(found, axis=0).max() > 0.1


def test_head_and_tail(tmp_path):
    predictor = open_model(
        run_folder(tmp_path / "run", {"max_length": 20, "long": "head_tail"}), CPU
    ).predictor
    text = "今天真开心气死我了不好喜欢讨厌电影手机质量差评快递"
    [ids] = predictor.tokenize(as_rows([text])).rows
    assert "".join(map(predictor.tokenizer.id_to_token, ids[1:-1])) == text[:4] + text[-14:]
    assert len(list(predictor.predict(as_rows([text * 4000, "好"])))) == 2


def test_exported_folders_read_texts_as_the_run_does(folder, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.verbs import export

    (tmp_path / "texts.txt").write_text("\n".join(random_texts(40)), encoding="utf-8")
    output = tmp_path / "exported"
    assert export([str(folder), "--output", str(output), "--rows", str(tmp_path / "texts.txt")]) == 0
    rows = as_rows(random_texts(20))
    wanted, found = (
        [p.probabilities for p in open_model(place, CPU).predictor.predict(rows)]
        for place in (folder, output)
    )
    np.testing.assert_allclose(found, wanted, atol=1e-5)
