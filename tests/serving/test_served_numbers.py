"""A server of a model that gives numbers: python -m pytest tests/serving/test_served_numbers.py"""

import json

import pytest

pytest.importorskip("fastapi")
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from tests.saved_classifier import as_rows, random_texts, save_checkpoint
from tests.serving.running_server import ask, classified, downloaded, needs_browser

TEXTS = [text.strip() for text in random_texts(6)]


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> OpenedModel:
    names = {"num_labels": 1, "id2label": {0: "score"}, "label2id": {"score": 0}}
    folder = save_checkpoint(tmp_path_factory.mktemp("numbers") / "model", problem_type="regression", **names)
    (folder / "decision.json").write_text(json.dumps({"mean": 50.0, "scale": 20.0}), encoding="utf-8")
    return open_model(folder, ComputeOptions("cpu"))


def test_answers_are_in_the_unit_of_the_data(model):
    wanted = [prediction.answer for prediction in model.predictor.predict(as_rows(TEXTS))]
    assert all(0 < abs(number - 50) < 200 for number in wanted)
    answers = ask(model, "predict", {"inputs": TEXTS}).json()
    assert [[entry["label"] for entry in answer] for answer in answers] == [["score"]] * len(TEXTS)
    assert [answer[0]["score"] for answer in answers] == pytest.approx(wanted, rel=1e-5)
    assert ask(model, "info", None).json()["labels"] == ["score"]


@pytest.mark.slow
@needs_browser
def test_the_page_shows_numbers(model):
    wanted = [prediction.answer for prediction in model.predictor.predict(as_rows(TEXTS))]
    with classified(model, TEXTS) as page:
        shown = [float(text) for text in page.locator("#results .first").all_inner_texts()]
        rows = downloaded(page)
    assert shown == pytest.approx(wanted, rel=1e-5)
    assert list(rows[0]) == ["text", "score"]
    assert [float(row["score"]) for row in rows] == pytest.approx(wanted, rel=1e-5)
