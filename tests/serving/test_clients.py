"""Clients that are many, late, or break off; what is computed together; and signals."""

import json
import re
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_for

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.data.tokens import LongTexts
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.prediction.torch_runtime import load_predictor
from app.prediction.trained_model import TrainedModel
from app.serving.options import ServeOptions
from app.serving.server import listen
from tests.processes import wait_until
from tests.saved_classifier import as_rows, random_texts
from tests.serving.running_server import HEAD, HTTP, HeldRuntime, classify, running, send, server_process

MINUTE = 60  # seconds
BODY = json.dumps({"inputs": "今天"}).encode()


def waiting_texts(address: str) -> float:
    text = HTTP.get(f"{address}/metrics").text
    return float(re.search(r"^classifier_waiting_texts (\S+)$", text, re.MULTILINE)[1])


@pytest.fixture
def held(checkpoint) -> OpenedModel:
    """A model whose runtime waits, once it is held, until it is released."""
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    opened.predictor.runtime = HeldRuntime(opened.predictor.runtime)
    return opened


def test_a_full_queue_refuses_and_what_it_took_is_answered(held):
    runtime = held.predictor.runtime
    answers = []
    with running(held, ServeOptions(capacity=3)) as address:
        runtime.hold()
        thread = threading.Thread(target=lambda: answers.append(classify(address, ["今天", "真好"])))
        thread.start()
        assert runtime.started.wait(MINUTE)
        refused = classify(address, ["开心", "生气"])
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert refused.json()["error_type"] == "overloaded"
        runtime.released.set()
        thread.join()
        assert answers[0].json() == classify(address, ["今天", "真好"]).json()
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
        assert waiting_texts(address) == 0


def test_clients_that_break_off(held):
    runtime = held.predictor.runtime
    with running(held, ServeOptions(timeout=60)) as address:
        runtime.hold()
        first = send(address, HEAD % len(BODY) + BODY)
        assert runtime.started.wait(MINUTE)
        send(address, HEAD % len(BODY) + BODY[:5]).close()
        runtime.released.set()
        with first:
            assert first.recv(1000).startswith(b"HTTP/1.1 200")
        assert classify(address).status_code == 200
        assert waiting_texts(address) == 0


@pytest.fixture(scope="module")
def hurried(model):
    """The address of a server that waits half a second for the next request of a client."""
    with running(model, ServeOptions(keep_alive=0.5, connections=8)) as address:
        yield address


def test_a_client_that_asks_nothing_more_is_cut_off(hurried):
    with send(hurried, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n") as connection:
        answer = b""
        while received := connection.recv(1000):
            answer += received
    assert answer.startswith(b"HTTP/1.1 200")


def test_requests_on_more_connections_than_allowed_are_refused_and_later_taken(hurried):
    many = [send(hurried, b"") for _ in range(12)]
    many[-1].sendall(HEAD % len(BODY) + BODY)
    assert many[-1].recv(20) == b"HTTP/1.1 503 Service"
    for connection in many:
        connection.close()
    wait_until(lambda: httpx2.get(f"{hurried}/health", timeout=MINUTE).status_code == 200)


@pytest.mark.parametrize(("wait", "batches"), [(2 * MINUTE, 4), (0.01, 5)])
def test_clients_that_were_answered_together_are_waited_for_no_longer_than_set(checkpoint, wait, batches):
    """The windows of their texts are computed together too."""
    predictor = load_predictor(checkpoint, 20, LongTexts("windows", 6), device="cpu")
    runtime = HeldRuntime(predictor.runtime)
    texts = random_texts(3)
    wanted = [prediction.probabilities.max() for prediction in predictor.predict(as_rows(texts))]
    predictor.runtime = runtime
    opened = OpenedModel(TrainedModel(checkpoint), predictor)
    with running(opened, ServeOptions(wait=wait)) as address, ThreadPoolExecutor(3) as pool:
        runtime.rows.clear()
        # A client that is alone does not wait
        assert classify(address).status_code == 200
        runtime.hold()
        together = [pool.submit(classify, address, texts[0])]
        assert runtime.started.wait(MINUTE)
        together += [pool.submit(classify, address, text) for text in texts[1:]]
        wait_until(lambda: waiting_texts(address) == 3)
        runtime.released.set()
        best = [future.result().json()[0]["score"] for future in together]
        assert best == pytest.approx(wanted, abs=1e-5)
        early = pool.submit(classify, address)
        wait_for([early], timeout=MINUTE if wait < 1 else 0.2)
        assert early.done() == (wait < 1)
        assert classify(address).status_code == early.result().status_code == 200
        assert len(runtime.rows) == batches


def test_answers_are_sent_at_once():
    """Without TCP_NODELAY, which its connections inherit, the second part of an answer waits 40 milliseconds
    for the client's confirmation of the first."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.slow
def test_sigterm_finishes_what_has_arrived(checkpoint):
    texts = ["今天真好" * 10] * 64
    with server_process(checkpoint) as (process, address, _), ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(classify, address, texts) for _ in range(8)]

        def arrived() -> float:
            # The first may be answered before the last arrives; it is counted first, so none is counted twice
            return sum(answer.done() for answer in answers) * len(texts) + waiting_texts(address)

        wait_until(lambda: arrived() >= 8 * len(texts))
        process.send_signal(signal.SIGTERM)
        assert [answer.result().status_code for answer in answers] == [200] * 8
        assert process.wait(MINUTE) == 0


@pytest.mark.slow
def test_control_c_and_the_key_of_the_environment(checkpoint):
    with server_process(checkpoint, key="secret") as (process, address, log):
        for headers, status in (({}, 401), ({"Authorization": "Bearer secret"}, 200)):
            assert HTTP.get(f"{address}/info", headers=headers).status_code == status
        process.send_signal(signal.SIGINT)
        assert process.wait(MINUTE) == 130
        # The address
        assert len(log.read_text().splitlines()) == 1
