"""Explanations of multi-label models: python -m pytest tests/explanation"""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("captum")

from app.explanation.explanation import ExplainedModel, Explanation, explain
from app.explanation.shown import heading
from app.prediction.open_model import ComputeOptions, open_model
from tests.multi_label_runs import write_thresholds
from tests.report.test_page import Checker
from tests.saved_classifier import LABELS, as_rows, of_pipeline, save_checkpoint
from tests.spoken import spoken_in
from tests.verbs import explain as main

TEXT = "今天真开心，手机质量abc不好鼎"


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A model that gives TEXT two of its three labels."""
    folder = save_checkpoint(tmp_path_factory.mktemp("sets"), problem_type="multi_label_classification")
    write_thresholds(folder, [0.01, 0.01, 1.0], LABELS)
    return folder


@pytest.fixture(scope="module")
def model(folder) -> ExplainedModel:
    return ExplainedModel(folder, "cpu")


@pytest.fixture(scope="module")
def found(model) -> list[Explanation]:
    return explain(model, (TEXT,))


def test_each_predicted_label_is_explained(folder, found):
    [prediction] = open_model(folder, ComputeOptions("cpu")).predictor.predict(as_rows([TEXT]))
    assert len(found) == 2
    assert {LABELS[one.label] for one in found} == set(prediction.answer)
    assert [one.label for one in found] == found[0].predicted
    for one in found:
        np.testing.assert_allclose(one.probabilities, of_pipeline(folder, [TEXT])[0], atol=1e-5)
        assert f"{LABELS[one.label]} (predicted), probability" in heading(one)


def test_attributions_add_up_to_the_difference_from_a_masked_text(folder, found):
    masked = of_pipeline(folder, ["[MASK]" * len(found[0].text.units)])[0]
    for one in found:
        whole, neutral = (np.log(p / (1 - p)) for p in (one.probabilities[one.label], masked[one.label]))
        assert one.values.sum() == pytest.approx(whole - neutral, abs=0.02)
        assert one.p_value is not None


def test_a_label_that_is_not_predicted_can_be_explained(model, found):
    [other] = set(range(3)) - set(found[0].predicted)
    [one] = explain(model, (TEXT,), label=LABELS[other])
    assert one.label == other
    names = ", ".join(LABELS[label] for label in found[0].predicted)
    assert f"{LABELS[other]} (explained label; the model predicts {names})" in heading(one)


def test_without_a_predicted_label_the_most_probable_one_is_explained(folder, model, tmp_path):
    model = ExplainedModel(folder, "cpu")
    model.task.thresholds = np.full(3, 2.0)
    [one] = explain(model, (TEXT,))
    assert one.label == one.probabilities.argmax()
    assert "the model predicts no label" in heading(one)
    assert "模型预测的是：没有标签" in spoken_in("zh", heading, one)


def test_the_verb_prints_and_shows_every_label(folder, found, tmp_path, capsys):
    page = tmp_path / "why.html"
    assert main([str(folder), TEXT, "--html", str(page), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert said.count("convergence delta") == 2
    checked = Checker(page.read_text(encoding="utf-8"))
    assert checked.tags.count("h1") == 2
    for one in found:
        assert heading(one) in said
        assert heading(one) in checked.text
