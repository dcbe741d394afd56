"""A server of a multi-label model: python -m pytest
tests/serving/test_served_multi_label.py"""

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

TEXTS = [text.strip() for text in random_texts(12)]
THRESHOLDS = [0.51, 0.45, 0.57]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    folder = save_checkpoint(
        tmp_path_factory.mktemp("sets") / "model", problem_type="multi_label_classification"
    )
    write_thresholds(folder, THRESHOLDS, LABELS, chosen_on="dev", rows=10)
    return folder


def wanted_labels(model: OpenedModel) -> list[set[str]]:
    """Return the labels of TEXTS; a good example has rows with none, one and several."""
    found = [set(prediction.answer) for prediction in model.predictor.predict(as_rows(TEXTS))]
    assert {len(names) for names in found} >= {0, 1, 2}
    return found


def test_answers_say_which_labels_a_row_has(checkpoint):
    model = open_model(checkpoint, ComputeOptions("cpu"))
    answers = ask(model, "predict", {"inputs": TEXTS}).json()
    chosen = [{entry["label"] for entry in answer if entry["chosen"]} for answer in answers]
    assert chosen == wanted_labels(model)
    assert all(answer == sorted(answer, key=lambda entry: -entry["score"]) for answer in answers)
    rule = ask(model, "info", None).json()["label_rule"]
    assert rule["thresholds"] == dict(zip(LABELS, THRESHOLDS, strict=True))


@pytest.mark.slow
@needs_browser
def test_the_page_shows_label_lists(checkpoint):
    model = open_model(checkpoint, ComputeOptions("cpu"))
    wanted = wanted_labels(model)
    with classified(model, TEXTS) as page:
        items = page.locator("#results li").all()
        assert [set(item.locator(".first").all_inner_texts()) for item in items] == wanted
        assert page.locator("#results .abstain").all_inner_texts() == ["no label"] * wanted.count(set())
        counts = page.inner_text("#counts")
        assert counts.endswith(f"no label {wanted.count(set())}")
        assert all(
            f"{name} {sum(name in names for names in wanted)}" in counts for name in set().union(*wanted)
        )
        rows = downloaded(page)
    order = [[name for name in LABELS if name in names] for names in wanted]
    assert [row["labels"] for row in rows] == [json.dumps(names, ensure_ascii=False) for names in order]


@pytest.mark.slow
@needs_browser
def test_the_page_marks_label_lists_that_are_not_sure_enough(checkpoint):
    model = open_model(checkpoint, ComputeOptions("cpu"))
    probabilities = np.stack([row.probabilities for row in model.predictor.predict(as_rows(TEXTS))])
    confidence = model.predictor.task.confidence(probabilities)
    # Between two rows: six of twelve are sure enough
    threshold = float(np.sort(confidence)[5:7].mean())
    wanted = ["accept" if value >= threshold else "abstain" for value in confidence]
    assert wanted.count("accept") == 6
    with classified(replace(model, threshold=threshold), TEXTS) as page:
        items = page.locator("#results li").all()
        marked = ["not sure enough" in item.locator(".abstain").all_inner_texts() for item in items]
        assert marked == [decision == "abstain" for decision in wanted]
        assert [row["decision"] for row in downloaded(page)] == wanted
