"""Why a text gets its label, how it was read, and examples: python -m pytest
tests/serving/test_explain_requests.py"""

import csv
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("captum")
from app.data.long_texts import LongTexts
from app.prediction.choose_run import example_inputs
from app.prediction.open_model import OpenedModel
from app.prediction.torch_runtime import load_predictor
from tests.saved_classifier import LABELS
from tests.serving.running_server import ask

TEXT = "今天真开心，手机质量不好"
LONG = "今天真开心，手机质量不好。\n" * 600


def test_a_label_is_explained_with_the_words_and_the_test(client):
    [best, *_] = client.post("/predict", json={"inputs": TEXT}).json()
    [found] = client.post("/explain", json={"inputs": TEXT}).json()
    assert found["heading"].startswith(f"{best['label']} (predicted), probability {best['score']:.3f}")
    assert "".join(piece["text"] for piece in found["texts"][0]) == TEXT
    assert "deleting" in found["verdict"]
    least = min(LABELS, key=lambda name: name == best["label"])
    [other] = client.post("/explain", json={"inputs": TEXT, "label": least, "language": "zh"}).json()
    assert other["heading"].startswith(f"{least} (所解释的标签")


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        ({"inputs": [TEXT] * 3}, 422, "inputs"),
        ({"inputs": TEXT, "label": "正正面"}, 422, "did you mean '正面'"),
        ({"inputs": TEXT, "label": 3}, 422, "label: Input should be a valid string"),
        ({"inputs": TEXT, "language": "fr"}, 422, "language: Input should be 'en' or 'zh'"),
        ({"inputs": TEXT, "top_k": 1}, 422, "there is no key 'top_k'"),
        ({"inputs": " "}, 422, "text 1"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(client, body, status, message):
    answer = client.post("/explain", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]


def read(model: OpenedModel, text: str) -> dict:
    answer = ask(model, "predict", {"inputs": text, "read": True}).json()
    assert len(answer["labels"]) == len(LABELS)
    return answer["read"]


def test_a_text_of_8000_characters_says_what_was_read_of_it(checkpoint, model):
    num_characters = len(" ".join(LONG.split()))
    whole = read(model, TEXT)
    assert whole == {
        "tokens": len(TEXT) + 2,
        "windows": 1,
        "cut": False,
        "texts": [{"characters": len(TEXT), "ranges": [[0, len(TEXT)]]}],
    }
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


def test_examples_are_test_rows_of_each_label(tmp_path):
    assert example_inputs(tmp_path, 6) == []
    with (tmp_path / "predictions.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["row_id", "line", "text", "label", "predicted", "p_好", "p_差"])
        for number, (text, label) in enumerate(
            [("长" * 200, "差"), ("一", "好"), ("二", "好"), ("三", "差")]
        ):
            writer.writerow([number, number, text, label, "好", 1, 0])
    assert example_inputs(tmp_path, 6) == ["一", "三", "二"]
    assert example_inputs(tmp_path, 2) == ["一", "三"]
    assert example_inputs(tmp_path, 0) == []
