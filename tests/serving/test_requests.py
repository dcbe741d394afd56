"""The body of a request: what is taken and what is refused, and why: python -m pytest
tests/serving/test_requests.py"""

import json
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
from starlette.exceptions import HTTPException

from app.serving.requests import Inputs, rows_of


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
        ({"input": "今天"}, 422, "there is no key 'input' (known: inputs, top_k, read; to explain: "),
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
