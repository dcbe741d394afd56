"""Servers of models of several labels and of a number: python -m pytest
tests/serving/test_served_tasks.py -m "" """

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("fastapi")
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from tests.multi_label_runs import write_thresholds
from tests.saved_classifier import LABELS, as_rows, random_texts, save_checkpoint
from tests.serving.running_server import ask, classified, downloaded, needs_browser

CPU = ComputeOptions("cpu")
TEXTS = [text.strip() for text in random_texts(12)]
THRESHOLDS = [0.51, 0.45, 0.57]


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> OpenedModel:
    """A model with any number of labels a row."""
    folder = tmp_path_factory.mktemp("sets") / "model"
    save_checkpoint(folder, problem_type="multi_label_classification")
    write_thresholds(folder, THRESHOLDS, LABELS, chosen_on="dev", rows=10)
    return open_model(folder, CPU)


@pytest.fixture(scope="module")
def wanted(several) -> list[set[str]]:
    """The labels of TEXTS: rows with none, one and several."""
    found = [set(prediction.answer) for prediction in several.predictor.predict(as_rows(TEXTS))]
    assert {len(names) for names in found} >= {0, 1, 2}
    return found


def test_answers_say_which_labels_a_row_has(several, wanted):
    answers = ask(several, "predict", {"inputs": TEXTS}).json()
    assert [{entry["label"] for entry in answer if entry["chosen"]} for answer in answers] == wanted
    assert all(answer == sorted(answer, key=lambda entry: -entry["score"]) for answer in answers)
    rule = ask(several, "info", None).json()["label_rule"]
    assert rule["thresholds"] == dict(zip(LABELS, THRESHOLDS, strict=True))


@pytest.mark.slow
@needs_browser
def test_the_page_shows_label_lists_and_marks_those_that_are_not_sure_enough(several, wanted):
    probabilities = np.stack([row.probabilities for row in several.predictor.predict(as_rows(TEXTS))])
    confidence = several.predictor.task.confidence(probabilities)
    # Between two rows: six of twelve are sure enough
    threshold = float(np.sort(confidence)[5:7].mean())
    decisions = ["accept" if value >= threshold else "abstain" for value in confidence]
    assert decisions.count("accept") == 6
    with classified(replace(several, threshold=threshold), TEXTS) as page:
        items = page.locator("#results li").all()
        assert [set(item.locator(".first").all_inner_texts()) for item in items] == wanted
        notes = [item.locator(".abstain").all_inner_texts() for item in items]
        assert ["no label" in of_item for of_item in notes] == [not names for names in wanted]
        assert ["not sure enough" in of_item for of_item in notes] == [one == "abstain" for one in decisions]
        counts = page.inner_text("#counts")
        assert counts.endswith(f"no label {wanted.count(set())}")
        numbers = {name: sum(name in names for names in wanted) for name in set().union(*wanted)}
        assert all(f"{name} {number}" in counts for name, number in numbers.items())
        rows = downloaded(page)
    order = [[name for name in LABELS if name in names] for names in wanted]
    assert [row["labels"] for row in rows] == [json.dumps(names, ensure_ascii=False) for names in order]
    assert [row["decision"] for row in rows] == decisions


@pytest.fixture(scope="module")
def number(tmp_path_factory) -> OpenedModel:
    names = {"num_labels": 1, "id2label": {0: "score"}, "label2id": {"score": 0}}
    folder: Path = tmp_path_factory.mktemp("numbers") / "model"
    save_checkpoint(folder, problem_type="regression", **names)
    (folder / "decision.json").write_text(json.dumps({"mean": 50.0, "scale": 20.0}), encoding="utf-8")
    return open_model(folder, CPU)


def test_numbers_are_in_the_unit_of_the_data(number):
    wanted = [prediction.answer for prediction in number.predictor.predict(as_rows(TEXTS))]
    assert all(0 < abs(value - 50) < 200 for value in wanted)
    answers = ask(number, "predict", {"inputs": TEXTS}).json()
    assert [[entry["label"] for entry in answer] for answer in answers] == [["score"]] * len(TEXTS)
    assert [answer[0]["score"] for answer in answers] == pytest.approx(wanted, rel=1e-5)
    assert ask(number, "info", None).json()["labels"] == ["score"]


@pytest.mark.slow
@needs_browser
def test_the_page_shows_numbers(number):
    wanted = [prediction.answer for prediction in number.predictor.predict(as_rows(TEXTS))]
    with classified(number, TEXTS) as page:
        shown = [float(text) for text in page.locator("#results .first").all_inner_texts()]
        rows = downloaded(page)
    assert shown == pytest.approx(wanted, rel=1e-5)
    assert list(rows[0]) == ["text", "score"]
    assert [float(row["score"]) for row in rows] == pytest.approx(wanted, rel=1e-5)


def test_several_labels_and_a_number_are_explained(several, number):
    pytest.importorskip("captum")
    chosen = [entry for entry in ask(several, "predict", {"inputs": TEXTS[0]}).json() if entry["chosen"]]
    assert len(ask(several, "explain", {"inputs": TEXTS[0]}).json()) == max(1, len(chosen))
    [score] = ask(number, "predict", {"inputs": TEXTS[0]}).json()
    [found] = ask(number, "explain", {"inputs": TEXTS[0]}).json()
    assert found["heading"] == f"score: {score['score']:.4g}"
    assert "label" not in found["verdict"]
