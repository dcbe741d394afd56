"""The linear start of a head: python -m pytest tests/model/test_linear_start.py"""

import json

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from app.config.command_line import load_config
from app.errors import InputError
from app.model.trained_weights import C, add_mean_layer, last_layer
from app.prediction.torch_runtime import load_predictor
from app.run import work
from app.vectors.text_vectors import text_vectors
from tests.multi_label_runs import arguments, write_posts
from tests.saved_classifier import random_texts, save_checkpoint
from tests.tiny import tiny_lines, tiny_model, write_tiny
from tests.verbs import export

FROZEN = ["--model.head=linear", "--train.epochs=1", "--train.learning_rate=1e-9", "--train.precision=fp32"]
FROZEN += ["--train.head_learning_rate=1e-9", "--data.max_length=32", "--output.trackers=[]"]


def states_and_logits(folder, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return what the last layer reads of each text, and the logits, by transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    inputs = tokenizer(texts, padding=True, truncation=True, max_length=32, return_tensors="pt")
    states = []
    last_layer(model)[1].register_forward_pre_hook(lambda _, given: states.append(given[0]))
    with torch.no_grad():
        logits = model(**inputs).logits
    return states[0].numpy(), logits.numpy()


def test_the_head_is_logistic_regression_on_the_means_of_the_encoder(tmp_path):
    """All of it by scikit-learn, on vectors of the encoder as it was before."""
    run, rows = tmp_path / "run", write_tiny(tmp_path / "rows.tsv")
    files = [f"--model.name={save_checkpoint(tmp_path / 'encoder')}", f"--data.train={rows}"]
    files += [f"--data.cache_dir={tmp_path / 'cache'}", f"--output.dir={run}"]
    config = load_config([*files, *FROZEN, "--data.dev_size=0", "--data.test_size=0.2"])
    assert work(config, "single") == 0
    texts = random_texts(30)
    states, logits = states_and_logits(run, texts)
    encoder = load_predictor(tmp_path / "encoder", 32)
    means = text_vectors(encoder.runtime.model, encoder.encoder, texts)
    centred = means - means.mean(axis=1, keepdims=True)
    # The tanh of the pooler bends a little, and bf16 rounds
    wanted = np.tanh(0.1 * centred / centred.std(axis=1, keepdims=True))
    np.testing.assert_allclose(states, wanted, atol=0.02)
    lines = [line.split("\t") for line in tiny_lines(20)[1:]]
    known, _ = states_and_logits(run, [text for text, _ in lines])
    length, centre = np.linalg.norm(known, axis=1).mean(), known.mean(axis=0)
    model = LogisticRegression(C=C, max_iter=1000).fit((known - centre) / length, [name for _, name in lines])
    answers = [load_predictor(run).label_names[label] for label in logits.argmax(axis=1)]
    # A fifth of the rows was for the test, so that weights differ a little
    assert np.mean(model.predict((states - centre) / length) == answers) > 0.8
    assert json.loads((run / "report.json").read_text(encoding="utf-8"))["accuracy"] > 0.8
    pytest.importorskip("onnxruntime", reason="needs ONNX Runtime: pip install -r requirements/onnx.txt")
    assert export([str(run)]) == 0


def test_several_labels_a_row(tmp_path):
    encoder, posts = save_checkpoint(tmp_path / "encoder"), write_posts(tmp_path / "posts.jsonl")
    words = arguments(posts, tmp_path / "run", sizes={}, data__dev_size=0.2, data__test_size=0.2)
    assert work(load_config([*words, f"--model.name={encoder}", *FROZEN]), "single") == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert report["micro_f1"] > report["baselines"]["most frequent set"]["micro_f1"]


def test_the_layer_is_added_once_and_to_a_bert_only():
    model = tiny_model().model
    add_mean_layer(model)
    add_mean_layer(model)
    assert model.config.num_hidden_layers == len(model.bert.encoder.layer) == 3
    assert torch.equal(model.bert.pooler.dense.weight, torch.eye(32))
    with pytest.raises(InputError, match="works with BERT encoders, found roberta"):
        add_mean_layer(tiny_model("roberta").model)
