"""The queue of requests: which of them are computed together, and what waits for what."""

import asyncio
import gc
import socket

import numpy as np
import pytest

pytest.importorskip("fastapi")
from prometheus_client import CollectorRegistry
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from app.data.long_texts import LongTexts
from app.data.rows import Row
from app.prediction.predictor import Prediction, Predictor
from app.prediction.torch_runtime import load_predictor
from app.serving.application import ServeOptions
from app.serving.queue import SHORT, BatchQueue
from tests.saved_classifier import as_rows, random_texts
from tests.serving.running_server import HeldRuntime, running

HOUR, MINUTE = 3600, 60


@pytest.fixture
def counted(model) -> Predictor:
    plain = model.predictor
    return Predictor(HeldRuntime(plain.runtime), plain.tokenizer, plain.task, plain.max_length)


async def in_queue(predictor: Predictor, ask, wait: float = HOUR) -> None:
    """Await `ask(classify)` while a queue is worked off; `classify` takes a text."""
    queue = BatchQueue(predictor, 512, wait, CollectorRegistry())
    worker = asyncio.create_task(queue.run())

    async def classify(text: str) -> Prediction:
        return (await asyncio.wait_for(queue.classify([Row(1, text, None, None)]), MINUTE))[0]

    try:
        await ask(classify)
    finally:
        worker.cancel()
        queue.thread.shutdown()


def test_a_client_that_is_alone_does_not_wait_for_others(counted):
    async def ask(classify) -> None:
        for text in ("今天", "真好", "开心"):
            assert (await classify(text)).row.text == text

    asyncio.run(in_queue(counted, ask))
    assert counted.runtime.rows == [1, 1, 1]


def test_clients_that_were_answered_together_are_waited_for(counted):
    async def ask(classify) -> None:
        await asyncio.gather(*map(classify, ("今天", "真好", "开心")))
        early = [asyncio.create_task(classify(text)) for text in ("生气", "难过")]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in early)
        await asyncio.gather(*early, classify("高兴"))

    asyncio.run(in_queue(counted, ask))
    assert counted.runtime.rows == [3, 3]


def test_who_does_not_come_is_not_waited_for_longer_than_set(counted):
    async def ask(classify) -> None:
        await asyncio.gather(*map(classify, ("今天", "真好", "开心")))
        await classify("生气")
        await classify("难过")

    asyncio.run(in_queue(counted, ask, wait=0.01))
    assert counted.runtime.rows == [3, 1, 1]


def test_long_texts_get_the_same_answer_as_short_ones(counted):
    text = "今天真开心。" * SHORT

    async def ask(classify) -> None:
        (wanted,) = counted.predict([Row(1, text, None, None)])
        assert (await classify(text)).probabilities.tolist() == wanted.probabilities.tolist()

    asyncio.run(in_queue(counted, ask))


def test_windows_of_several_requests_are_computed_together(checkpoint):
    predictor, texts = load_predictor(checkpoint, 20, LongTexts("windows", 6), device="cpu"), random_texts(9)
    wanted = [prediction.probabilities for prediction in predictor.predict(as_rows(texts))]
    predictor.runtime = HeldRuntime(predictor.runtime)

    async def ask(classify) -> None:
        answers = await asyncio.gather(*map(classify, texts))
        np.testing.assert_allclose([answer.probabilities for answer in answers], wanted, atol=1e-5)

    asyncio.run(in_queue(predictor, ask))
    assert len(predictor.runtime.rows) == 1


def test_answers_are_sent_at_once(model):
    """Without TCP_NODELAY the second part of an answer waits 40 milliseconds for the client's confirmation of
    the first."""
    with running(model, ServeOptions()) as address:
        client = socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2])))
        client.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert client.recv(1000).startswith(b"HTTP/1.1 200")
        served = [entry for entry in gc.get_objects() if isinstance(entry, HttpToolsProtocol)]
        sockets = [connection.transport.get_extra_info("socket") for connection in served]
        still_open = [one for one in sockets if one is not None and one.fileno() >= 0]
        assert still_open
        assert all(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for one in still_open)
        client.close()
