"""The body of a request: what is taken and what is refused, and why: python -m pytest
tests/serving/test_requests.py"""

import json

import pytest

from app.serving.requests import Limits, Refusal, parse_request

LIMITS = Limits(body_bytes=1000, texts=3, characters=20)


def parse(body: object, has_pairs: bool | None = None):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return parse_request(raw, LIMITS, has_pairs, remove_spaces=False)


@pytest.mark.parametrize(
    ("inputs", "texts", "is_list"),
    [
        ("今天", [("今天", None)], False),
        ({"text": " 今天 "}, [("今天", None)], False),
        ({"text": "今天", "text_pair": "真好"}, [("今天", "真好")], False),
        (["今天", "真好"], [("今天", None), ("真好", None)], True),
        ([["今天"], {"text": "真好"}], [("今天", None), ("真好", None)], True),
        ([["今天", "真好"], {"text": "a", "text_pair": "b"}], [("今天", "真好"), ("a", "b")], True),
    ],
)
def test_inputs(inputs, texts, is_list):
    request = parse({"inputs": inputs, "top_k": 2})
    assert [(row.text, row.pair) for row in request.rows] == texts
    assert (request.is_list, request.top_k) == (is_list, 2)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (b"", 422, "the body is not valid JSON"),
        (b"\xff", 422, "the body must be UTF-8, found byte 0xff at 0"),
        (b"[" * 5000, 422, "the body is not valid JSON"),
        (b"9" * 5000, 422, "the body is not valid JSON"),
        (["今天"], 422, "the body must be a JSON object"),
        ({"input": "今天"}, 422, "there is no key 'input'; did you mean 'inputs'?"),
        ({"top_k": 1}, 422, "the key inputs is missing"),
        (b'{"inputs": "a", "inputs": "b"}', 422, "found 'inputs' twice; remove one"),
        (b'{"inputs": [{"text": "a", "text": "b"}]}', 422, "found 'text' twice"),
        ({"inputs": []}, 422, "inputs is an empty list"),
        ({"inputs": None}, 422, "found null"),
        ({"inputs": [1]}, 422, "found 1"),
        ({"inputs": ["a", ["b", "c", "d"]]}, 422, "inputs must be a text"),
        ({"inputs": {"text": 1}}, 422, "inputs must be a text"),
        ({"inputs": {"text": "a", "label": "b"}}, 422, "inputs must be a text"),
        ({"inputs": ["a", ["b", "c"]]}, 422, "text 2: single texts are needed"),
        ({"inputs": "a", "top_k": 0}, 422, "top_k must be a whole number of at least 1, found 0"),
        ({"inputs": "a", "top_k": True}, 422, "top_k must be"),
        ({"inputs": ["好", " \u200b"]}, 422, "text 2: the text is empty"),
        ({"inputs": "\ud800"}, 422, "unpaired surrogate U+D800"),
        ({"inputs": ["a"] * 4}, 413, "a request may have 3 texts, found 4"),
        ({"inputs": ["a", "好" * 21]}, 413, "text 2: a text may have 20 characters, found 21"),
    ],
)
def test_what_is_refused(body, status, message):
    with pytest.raises(Refusal) as refusal:
        parse(body)
    assert refusal.value.status == status
    assert message in refusal.value.message


@pytest.mark.parametrize(("has_pairs", "inputs"), [(True, ["a", "b"]), (False, [["a", "b"]])])
def test_inputs_of_another_kind_than_the_model_was_trained_on(has_pairs, inputs):
    with pytest.raises(Refusal, match="the model was trained on them"):
        parse({"inputs": inputs}, has_pairs)
