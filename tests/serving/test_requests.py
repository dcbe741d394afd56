"""The body of a request, why a text gets its label, how it was read, and models of several labels and of a
number: python -m pytest tests/serving/test_requests.py"""

import json
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
from starlette.exceptions import HTTPException

from app.data.tokens import LongTexts
from app.prediction.open_model import OpenedModel
from app.prediction.torch_runtime import load_predictor
from app.serving.application import Inputs, rows_of
from tests.saved_classifier import LABELS, as_rows, random_texts
from tests.serving.running_server import ask

TEXT = "今天真开心，手机质量不好"
LONG = "今天真开心，手机质量不好。\n" * 600
TEXTS = [text.strip() for text in random_texts(12)]


def test_a_label_is_explained_with_the_words_and_the_test(client):
    pytest.importorskip("captum")
    [best, *_] = client.post("/predict", json={"inputs": TEXT}).json()
    [found] = client.post("/explain", json={"inputs": TEXT}).json()
    assert found["heading"].startswith(f"{best['label']} (predicted), probability {best['score']:.3f}")
    assert "".join(piece["text"] for piece in found["texts"][0]) == TEXT
    assert "deleting" in found["verdict"]
    least = min(LABELS, key=lambda name: name == best["label"])
    [other] = client.post("/explain", json={"inputs": TEXT, "label": least, "language": "zh"}).json()
    assert other["heading"].startswith(f"{least} (所解释的标签")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"inputs": [TEXT] * 3}, "inputs"),
        ({"inputs": TEXT, "label": "正正面"}, "did you mean '正面'"),
        ({"inputs": TEXT, "label": 3}, "label: Input should be a valid string"),
        ({"inputs": TEXT, "language": "fr"}, "language: Input should be 'en' or 'zh'"),
        ({"inputs": TEXT, "top_k": 1}, "top_k: Extra inputs are not permitted"),
        ({"inputs": " "}, "text 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(client, body, message):
    answer = client.post("/explain", json=body)
    assert answer.status_code == 422
    assert message in answer.json()["error"]


def read(model: OpenedModel, text: str) -> dict:
    answer = ask(model, "predict", {"inputs": text, "read": True}).json()
    assert len(answer["labels"]) == len(LABELS)
    return answer["read"]


def test_a_text_of_8000_characters_says_what_was_read_of_it(checkpoint, model):
    num_characters = len(" ".join(LONG.split()))
    whole = {"characters": len(TEXT), "ranges": [[0, len(TEXT)]]}
    assert read(model, TEXT) == {"tokens": len(TEXT) + 2, "windows": 1, "cut": False, "texts": [whole]}
    [cut] = read(model, LONG)["texts"]
    assert cut["characters"] == num_characters
    [[first, last]] = cut["ranges"]
    assert first == 0
    assert 30 <= last <= 70
    for long, num_ranges in ((LongTexts("head_tail"), 2), (LongTexts("windows", max_windows=3), 1)):
        predictor = load_predictor(checkpoint, 32, long, device="cpu")
        found = read(OpenedModel(checkpoint, predictor), LONG)
        ranges = found["texts"][0]["ranges"]
        assert found["cut"]
        assert len(ranges) == num_ranges
        assert ranges[0][0] == 0
        assert (ranges[-1][1] == num_characters) == (long.way == "head_tail")
        assert found["windows"] == (3 if long.way == "windows" else 1)


def test_the_server_says_whether_it_is_sure_enough(client, model):
    [best, *_] = client.post("/predict", json={"inputs": TEXT}).json()
    for threshold, decision in ((best["score"] - 1e-3, "accept"), (best["score"] + 1e-3, "abstain")):
        sure = replace(model, threshold=threshold)
        assert ask(sure, "predict", {"inputs": TEXT, "read": True}).json()["decision"] == decision
        assert ask(sure, "predict", {"inputs": TEXT}).json()[0] == best


def test_answers_say_which_labels_a_row_has(several):
    wanted = [set(prediction.answer) for prediction in several.predictor.predict(as_rows(TEXTS))]
    assert {len(names) for names in wanted} >= {0, 1, 2}
    answers = ask(several, "predict", {"inputs": TEXTS}).json()
    assert [{entry["label"] for entry in answer if entry["chosen"]} for answer in answers] == wanted
    assert all(answer == sorted(answer, key=lambda entry: -entry["score"]) for answer in answers)
    rule = ask(several, "info", None).json()["label_rule"]
    assert rule["thresholds"] == dict(zip(LABELS, [0.51, 0.45, 0.57], strict=True))


def test_numbers_are_in_the_unit_of_the_data(number):
    wanted = [prediction.answer for prediction in number.predictor.predict(as_rows(TEXTS))]
    assert all(0 < abs(value - 50) < 200 for value in wanted)
    answers = ask(number, "predict", {"inputs": TEXTS}).json()
    assert [[entry["label"] for entry in answer] for answer in answers] == [["score"]] * len(TEXTS)
    assert [answer[0]["score"] for answer in answers] == pytest.approx(wanted, rel=1e-5)
    assert ask(number, "info", None).json()["labels"] == ["score"]


def test_several_labels_and_a_number_are_explained(several, number):
    pytest.importorskip("captum")
    chosen = [entry for entry in ask(several, "predict", {"inputs": TEXTS[0]}).json() if entry["chosen"]]
    assert len(ask(several, "explain", {"inputs": TEXTS[0]}).json()) == max(1, len(chosen))
    [score] = ask(number, "predict", {"inputs": TEXTS[0]}).json()
    [found] = ask(number, "explain", {"inputs": TEXTS[0]}).json()
    assert found["heading"] == f"score: {score['score']:.4g}"
    assert "label" not in found["verdict"]


@pytest.mark.parametrize(
    ("inputs", "texts"),
    [
        ("今天", [("今天", None)]),
        ({"text": " 今天 "}, [("今天", None)]),
        ({"text": "今天", "text_pair": "真好"}, [("今天", "真好")]),
        (["今天", "真好"], [("今天", None), ("真好", None)]),
        ([["今天"], {"text": "真好"}], [("今天", None), ("真好", None)]),
        ([["今天", "真好"], {"text": "a", "text_pair": "b"}], [("今天", "真好"), ("a", "b")]),
    ],
)
def test_inputs(model, inputs, texts):
    wanted = Inputs.model_validate({"inputs": inputs, "top_k": 2})
    assert [(row.text, row.pair) for row in rows_of(wanted.inputs, model)] == texts


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "the body: Field required"),
        (b"\xff", 400, "error parsing the body"),
        (b"[" * 5000, 400, "error parsing the body"),
        (b"9" * 5000, 400, "error parsing the body"),
        (["今天"], 422, "the body: "),
        ({"input": "今天"}, 422, "input: Extra inputs are not permitted, found '今天'"),
        ({"top_k": 1}, 422, "inputs must be a text"),
        ({"inputs": []}, 422, "inputs must be a text"),
        ({"inputs": None}, 422, "inputs must be a text"),
        ({"inputs": [1]}, 422, "found [1]"),
        ({"inputs": ["a", ["b", "c", "d"]]}, 422, "inputs must be a text"),
        ({"inputs": {"text": 1}}, 422, 'found {"text": 1}'),
        ({"inputs": {"text": "a", "label": "b"}}, 422, "inputs must be a text"),
        ({"inputs": ["a", ["b", "c"]]}, 422, "text 2: single texts are needed"),
        ({"inputs": "a", "top_k": 0}, 422, "top_k: Input should be greater than or equal to 1, found 0"),
        ({"inputs": "a", "top_k": True}, 422, "top_k: Input should be a valid integer"),
        ({"inputs": ["好", " \u200b"]}, 422, "text 2: the text is empty"),
        ({"inputs": "\ud800"}, 422, "inputs must be a text"),
        ({"inputs": ["a"] * 129}, 422, "a list of up to 128 texts"),
        ({"inputs": ["a", "好" * 100_001]}, 422, "of up to 100,000 characters"),
    ],
)
def test_what_is_refused(client, body, status, message):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"}
    answer = client.post("/predict", content=raw, headers=headers)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert len(answer.json()["error"]) < 500


@pytest.mark.parametrize(("column", "inputs"), [("other", ["a", "b"]), (None, [["a", "b"]])])
def test_inputs_of_another_kind_than_the_model_was_trained_on(model, column, inputs):
    trained = replace(model, recorded={"text_pair_column": column})
    with pytest.raises(HTTPException) as refused:
        rows_of(inputs, trained)
    assert "as in the model's training" in refused.value.detail
