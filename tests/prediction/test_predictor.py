"""The predictor and saved models: python -m pytest tests/prediction. The command line:
tests/commands/test_predict_verb.py"""

import numpy as np
import pytest
import torch

from app.errors import InputError, TrainingError
from app.prediction import saved_model
from app.prediction.torch_runtime import load_predictor
from tests.saved_classifier import LABELS, VOCABULARY, as_rows, of_pipeline, random_texts, save_checkpoint


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


def test_weights_that_are_cut_short_change_no_loaded_model_and_are_not_loaded(tmp_path, monkeypatch):
    folder, rows = save_checkpoint(tmp_path), as_rows(random_texts(5))
    predictor = load_predictor(folder, device="cpu")
    wanted = [one.probabilities.tolist() for one in predictor.predict(rows)]
    load_weights = saved_model.load_weights

    def and_cut_short(*arguments, **options):
        loaded = load_weights(*arguments, **options)
        with (folder / "model.safetensors").open("r+b") as file:
            file.truncate(2000)
        return loaded

    monkeypatch.setattr(saved_model, "load_weights", and_cut_short)
    with pytest.raises(InputError, match="a file of the checkpoint changed while it was read"):
        load_predictor(folder, device="cpu")
    assert [one.probabilities.tolist() for one in predictor.predict(rows)] == wanted
