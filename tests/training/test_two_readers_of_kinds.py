"""A second reader beside the encoder, for each kind of answer: what a run reports is what it answers."""

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from app.checkpoints.run_files import CARD, PAGE, REPORT, TEXT
from app.explanation.explained_model import ExplainedModel
from app.explanation.explanation import explain
from app.ngrams.second_reader import NGRAMS, read_second_reader
from app.prediction.open_model import ComputeOptions, open_model
from app.report.logits_file import read_run
from app.runtime.disk import read_json
from app.tasks.decision_file import DECISION
from tests.multi_label_runs import predict_again, read_predictions, train
from tests.saved_classifier import as_rows
from tests.verbs import compare, export

NEAR = 1e-4  # a logit of another batch
WORDS = ["好", "差", "天", "地", "玄", "黄"]
TOPICS = {"体育-球类": "球", "体育-跑步": "跑", "财经-基金": "金", "财经-股票": "股"}


class Kind(NamedTuple):
    """The column of the answers, the main metric, and settings."""

    column: str
    metric: str
    settings: dict


HIERARCHY = {"data__label_hierarchy": "-"}
KINDS = {
    "multi_label": Kind("labels", "micro_f1", {}),
    "multi_path": Kind("labels", "micro_f1", HIERARCHY),
    "single_path": Kind("label", "hierarchical_f1", HIERARCHY),
    "ordinal": Kind("label", "kappa", {}),
    "regression": Kind("score", "spearman", {}),
}
SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("ordinal", "multi_path", "single_path")]
ALL = ["multi_label", "regression", *SLOW]


def write_rows(path: Path, kind_of_answer: Kind, num_rows: int = 400) -> Path:
    """Write rows whose answer is in some characters, among others of chance."""
    generator = np.random.default_rng(0)
    lines = []
    for number in range(num_rows):
        if kind_of_answer.column == "score" or kind_of_answer.metric == "kappa":
            often = int(generator.integers(0, 5))
            characters = ["好"] * often + ["差"] * (4 - often)
            answer = float(often) if kind_of_answer.column == "score" else f"{often}"
        else:
            num_topics = 1
            if kind_of_answer.column == "labels":
                num_topics = int(generator.integers(1, 3))
            topics = generator.choice(sorted(TOPICS), num_topics, replace=False).tolist()
            characters = [TOPICS[topic] for topic in topics for _ in range(2)]
            answer = topics
            if kind_of_answer.column == "label":
                [answer] = topics
        characters += generator.choice(["天", "地", "玄", "黄"], 6).tolist()
        text = "".join(generator.permutation(characters)) + str(number)
        lines.append(json.dumps({"text": text, kind_of_answer.column: answer}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def run_of(tmp_path_factory):
    """Return the function that trains the run of a kind, whose encoder has learnt little."""

    @cache
    def trained(name: str) -> Path:
        folder = tmp_path_factory.mktemp(name)
        kind_of_answer = KINDS[name]
        train(
            write_rows(folder / "rows.jsonl", kind_of_answer),
            folder / "run",
            data__task=name,
            data__dev_size=0.3,
            data__test_size=0.2,
            train__epochs=2,
            train__learning_rate=1e-3,
            model__ngrams="auto",
            **kind_of_answer.settings,
        )
        return folder / "run"

    return trained


@pytest.mark.parametrize("name", ALL)
def test_a_run_reports_both_readers_and_answers_so(name, run_of, tmp_path):
    run = run_of(name)
    kind_of_answer = KINDS[name]
    report = read_json(run / REPORT)
    assert report[kind_of_answer.metric] > report["readers"]["encoder"][kind_of_answer.metric]
    assert "Character n-grams answer beside the encoder" in (run / "train.log").read_text(encoding="utf-8")
    assert "the encoder alone" in (run / TEXT).read_text(encoding="utf-8")
    assert "The encoder alone" in (run / PAGE).read_text(encoding="utf-8")
    card = (run / CARD).read_text(encoding="utf-8")
    assert "The pipeline above answers by the encoder alone" in card
    assert "`encoder_decision`" in card
    rows = read_predictions(run / "predictions.csv")
    again = predict_again(run, rows, tmp_path / "again.csv", "--device", "cpu")
    column = kind_of_answer.column
    if column == "score":
        answers = [float(row[column]) for row in again]
        assert answers == pytest.approx([float(row["predicted"]) for row in rows], rel=1e-4)
    else:
        assert [row[column] for row in again] == [row["predicted"] for row in rows]
    texts = [row["text"] for row in rows]
    predictor = open_model(run, ComputeOptions("cpu")).predictor
    _task, splits = read_run(run)
    logits = predictor.logits(predictor.tokenize(as_rows(texts)))
    assert np.abs(logits - splits["test"].logits).max() < NEAR
    assert compare([str(run), str(run)]) == 0


@pytest.mark.parametrize("name", ALL)
def test_an_explanation_adds_up(name, run_of):
    pytest.importorskip("captum", reason="needs captum: pip install -r requirements/explain.txt")
    run = run_of(name)
    text = read_predictions(run / "predictions.csv")[0]["text"]
    model = ExplainedModel(run, "cpu")
    reader = read_second_reader(run, model.task.label_names)
    parts, remainder = reader.parts(text, [(index, index + 1) for index in range(len(text))])
    assert np.allclose(parts.sum(axis=0) + remainder, reader.added([text])[0], atol=1e-5)
    predictor = open_model(run, ComputeOptions("cpu")).predictor
    [prediction] = predictor.predict(as_rows([text]))
    for explanation in explain(model, (text,)):
        total = explanation.log_odds - explanation.neutral
        assert explanation.values.sum() == pytest.approx(total, abs=0.02 * max(1, abs(total)))
        assert explanation.probabilities == pytest.approx(prediction.probabilities, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["multi_label", "regression"])
def test_an_export_carries_both_or_the_encoder_alone(name, run_of, tmp_path):
    """With the thresholds of its own, which are not those of both."""
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install -r requirements/onnx.txt")
    pytest.importorskip("onnx", reason="needs onnx: pip install -r requirements/onnx.txt")
    run = run_of(name)
    texts = as_rows([row["text"] for row in read_predictions(run / "predictions.csv")])
    both = open_model(run, ComputeOptions("cpu")).predictor
    encoder = replace(both, second_reader=None)
    for folder, words, expected in (("both", [], both), ("alone", ["--encoder_alone"], encoder)):
        assert export([str(run), "--output", str(tmp_path / folder), *words]) == 0
        exported = open_model(tmp_path / folder, ComputeOptions()).predictor
        logits = exported.logits(exported.tokenize(texts))
        assert np.abs(logits - expected.logits(expected.tokenize(texts))).max() < 1e-3
    assert exported.task.state() == both.second_reader.encoder_decision
    if name == "multi_label":
        assert exported.task.state() != both.task.state()


def test_a_second_reader_of_an_earlier_version_has_no_scale(run_of, tmp_path):
    run = run_of("multi_label")
    copy = shutil.copytree(run, tmp_path / "copy")
    values = read_json(run / NGRAMS)
    assert set(values.pop("scale").values()) != {1}
    (copy / NGRAMS).write_text(json.dumps(values), encoding="utf-8")
    names = list(read_json(run / DECISION)["thresholds"])
    assert read_second_reader(copy, names).scale.tolist() == [1] * len(names)
