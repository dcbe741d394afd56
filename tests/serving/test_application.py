"""The server in this process, asked over a socket: python -m pytest tests/serving/test_application.py"""

import asyncio
import csv
import io
import json
import os
import socket
import threading
from dataclasses import replace

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.prediction.predictor import Predictor
from app.serving.application import ServeOptions, allowed_hosts
from tests.saved_classifier import LABELS, as_rows, random_texts, save_checkpoint
from tests.serving.running_server import HEAD, HeldRuntime, ask, running

CPU = ComputeOptions("cpu")
HTTP = httpx2.Client(timeout=60)


def expected(predictor: Predictor, texts: list[str], pairs: list[str] | None = None) -> list[list[dict]]:
    """Return what `predict` says about the texts, in the form of a server's answer."""
    answers = []
    for prediction in predictor.predict(as_rows(texts, pairs)):
        scores = zip(prediction.probabilities, predictor.label_names, strict=True)
        ranked = sorted(scores, key=lambda pair: -pair[0])
        answers.append([{"score": round(float(score), 6), "label": label} for score, label in ranked])
    return answers


def classify(address: str, inputs: object = "今天", **options) -> httpx2.Response:
    return HTTP.post(f"{address}/predict", json={"inputs": inputs}, **options)


def test_one_text_many_texts_and_pairs_get_the_answers_of_predict_to_the_last_digit(client, model):
    texts = random_texts(20)
    one = client.post("/predict", json={"inputs": texts[0]})
    assert one.status_code == 200
    assert one.json() == expected(model.predictor, texts[:1])[0]
    assert client.post("/predict", json={"inputs": texts}).json() == expected(model.predictor, texts)
    pairs = [list(pair) for pair in zip(texts, texts[::-1], strict=True)]
    of_pairs = client.post("/predict", json={"inputs": pairs}).json()
    assert of_pairs == expected(model.predictor, texts, texts[::-1])
    assert client.post("/predict", json={"inputs": texts[:1], "top_k": 1}).json() == [one.json()[:1]]


def test_health_info_and_metrics(client, model):
    assert client.get("/health").json() == {"status": "ok"}
    info = client.get("/info").json()
    known = {
        "labels": LABELS,
        "model": model.folder.name,
        "runtime": "torch",
        "max_length": 60,
        "long": "cut",
    }
    assert info.items() >= (known | {"threshold": None, "max_length": 60}).items()
    client.post("/predict", json={"inputs": 1})
    client.post("/predict", json={"inputs": ["今天", "真好"]})
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'http_requests_total{handler="/predict",method="POST",status="4xx"}' in metrics.text
    assert "\nclassifier_waiting_texts 0.0" in metrics.text
    texts, batches = (
        float(metrics.text.split(f"classifier_batch_texts_{end} ")[1].split()[0]) for end in ("sum", "count")
    )
    assert texts > batches


def test_what_is_refused_has_a_status_and_a_reason(client):
    def post(content: object, kind: str = "application/json") -> tuple[int, str]:
        answer = client.post("/predict", content=content, headers={"Content-Type": kind})
        assert set(answer.json()) == {"error", "error_type"}
        return answer.status_code, answer.json()["error"]

    assert post(b'{"inputs": "a"}', "text/plain")[0] == 422
    too_long = (413, "the body may have 1,048,576 bytes; send fewer or shorter texts")
    assert post(b" " * ((1 << 20) + 1)) == too_long
    assert post(iter([b" " * 600_000] * 2)) == too_long
    assert send(str(client.base_url), HEAD % (1 << 40)).recv(1000).startswith(b"HTTP/1.1 413")
    assert client.get("/predict").status_code == 405
    assert client.get("/nothing").status_code == 404


def test_the_pages_load_nothing_from_a_network(client):
    assert {"/predict", "/predict_file", "/explain"} <= set(client.get("/openapi.json").json()["paths"])
    page = client.get("/docs")
    assert "POST /predict" in page.text
    assert "top_k" in page.text
    assert "http" not in page.text
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", "")
    assert "innerHTML" not in page.text


def test_a_file_comes_back_with_its_columns_and_predictions(client, model):
    texts = random_texts(300)
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    content = f"id,内容\n{rows}300, \n".encode("gb18030")
    answer = client.post("/predict_file", params={"name": "帖子.csv"}, content=content)
    assert answer.status_code == 200
    found = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["id"] for row in found] == [str(number) for number in range(301)]
    labels = [prediction.answer for prediction in model.predictor.predict(as_rows(texts))]
    assert [row["label"] for row in found] == [*labels, ""]
    assert "the text is empty" in found[-1]["reason"]
    summary = json.loads(answer.headers["x-summary"])
    assert (summary["rows"], summary["invalid"]) == (301, 1)
    chosen, content = {"name": "a.csv"}, "甲,乙\n一,二\n".encode()
    refused = client.post("/predict_file", params=chosen, content=content)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("a.csv, line 1: cannot tell which column is the text")
    answer = client.post("/predict_file", params=chosen | {"text_column": "乙"}, content=content)
    assert answer.text.startswith("甲,乙,label,")


def test_other_sites_may_not_read_answers(client):
    origin = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    assert client.options("/predict", headers=origin).status_code == 405
    answer = client.post("/predict", json={"inputs": "今天"}, headers=origin)
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize(
    ("host", "status"),
    [(host, 200) for host in ("localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000")]
    + [(host, 400) for host in ("evil.com", "localhost.evil.com", "evil.com@localhost", "192.168.0.7", "")],
)
def test_a_page_that_points_its_own_name_here_gets_no_answer(client, host, status):
    """A browser sends that name in the header Host."""
    answers = [client.get(path, headers={"Host": host}) for path in ("/", "/health", "/info", "/metrics")]
    answers.append(client.post("/predict", json={"inputs": "今天"}, headers={"Host": host}))
    assert {answer.status_code for answer in answers} == {status}


def test_the_allowed_hosts_of_an_address():
    listening = allowed_hosts("10.0.0.5", ["classifier.example.com"])
    assert {"10.0.0.5", "classifier.example.com", "localhost"} <= set(listening)
    everywhere = allowed_hosts("0.0.0.0", [])
    assert "evil.com" not in everywhere
    assert {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)} <= set(everywhere)


def test_a_key_is_needed_where_there_is_one(model):
    with running(model, ServeOptions(api_key="a key")) as address:
        for key, status in [(None, 401), ("Bearer k", 401), ("Basic a key", 401), ("Bearer a key", 200)]:
            headers = {"Authorization": key} if key else {}
            assert HTTP.get(f"{address}/info", headers=headers).status_code == status
            assert classify(address, headers=headers).status_code == status
        assert HTTP.get(f"{address}/health").status_code == 200
        assert HTTP.get(f"{address}/").status_code == 200


@pytest.fixture
def held(checkpoint) -> OpenedModel:
    """A model whose runtime waits, once it is held, until it is released."""
    opened = open_model(checkpoint, CPU)
    opened.predictor.runtime = HeldRuntime(opened.predictor.runtime)
    return opened


def test_a_full_queue_refuses_and_what_it_took_is_answered(held):
    runtime, answers = held.predictor.runtime, []
    with running(held, ServeOptions(capacity=3)) as address:
        runtime.hold()
        thread = threading.Thread(target=lambda: answers.append(classify(address, ["今天", "真好"])))
        thread.start()
        assert runtime.started.wait(60)
        refused = classify(address, ["开心", "生气"])
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error_type"] == "overloaded"
        runtime.released.set()
        thread.join()
        assert answers[0].json() == expected(held.predictor, ["今天", "真好"])
        assert classify(address, ["开心", "生气"]).status_code == 200


def test_late_answers_are_504_and_what_nobody_waits_for_is_not_computed(held):
    runtime = held.predictor.runtime
    with running(held, ServeOptions(timeout=0.2)) as address:
        runtime.hold()
        runtime.rows.clear()
        for _ in range(3):
            answer = classify(address)
            assert (answer.status_code, answer.json()["error_type"]) == (504, "timeout")
        runtime.released.set()
        assert classify(address).status_code == 200
        assert runtime.rows == [1, 1]
        assert "\nclassifier_waiting_texts 0.0" in HTTP.get(f"{address}/metrics").text


def send(address: str, raw: bytes) -> socket.socket:
    host, port = address.removeprefix("http://").rstrip("/").split(":")
    connection = socket.create_connection((host, int(port)))
    connection.sendall(raw)
    return connection


def test_clients_that_break_off(held):
    runtime, body = held.predictor.runtime, json.dumps({"inputs": "今天"}).encode()
    with running(held, ServeOptions(timeout=60)) as address:
        runtime.hold()
        first = send(address, HEAD % len(body) + body)
        assert runtime.started.wait(60)
        send(address, HEAD % len(body) + body[:5]).close()
        runtime.released.set()
        with first:
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert classify(address).status_code == 200
        assert "\nclassifier_waiting_texts 0.0" in HTTP.get(f"{address}/metrics").text


def test_a_model_that_gives_no_numbers_is_424_for_its_text_only(checkpoint):
    import torch

    opened = open_model(checkpoint, CPU)
    with torch.no_grad():
        embeddings = opened.predictor.runtime.model.get_submodule("model.bert.embeddings.word_embeddings")
        embeddings.weight[1] = torch.nan  # [UNK]

    async def ask(address: str) -> list[int]:
        async with httpx2.AsyncClient(base_url=address, timeout=60) as session:
            posts = [session.post("/predict", json={"inputs": text}) for text in ("今天", "鼎", "真好")]
            return [answer.status_code for answer in await asyncio.gather(*posts)]

    with running(opened, ServeOptions(wait=0.2)) as address:
        assert asyncio.run(ask(address)) == [200, 424, 200]


def test_replaced_and_truncated_weights_change_nothing(tmp_path):
    folder = save_checkpoint(tmp_path / "model")
    weights = folder / "model.safetensors"
    opened = open_model(folder, CPU)
    wanted = expected(opened.predictor, ["今天"])[0]
    with running(opened, ServeOptions()) as address:
        # In place, as cp and a full disk do it
        with weights.open("r+b") as file:
            file.seek(-1000, 2)
            file.write(b"\x3f" * 1000)
        assert classify(address).json() == wanted
        os.truncate(weights, 1000)
        assert classify(address).json() == wanted


def test_the_spaces_of_texts_are_removed_as_in_training(model):
    joined = replace(model, recorded={"remove_spaces": True})
    answers = [ask(joined, "predict", {"inputs": text}).json() for text in ("a b", "a\tb", "ab")]
    assert answers[0] == answers[1] == answers[2] != expected(model.predictor, ["a b"])[0]
