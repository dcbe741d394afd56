"""The queue of requests: which of them are computed together, and what waits for what."""

import asyncio
import socket

import numpy as np
import pytest

pytest.importorskip("fastapi")
from prometheus_client import CollectorRegistry

from app.data.rows import Row
from app.data.tokens import LongTexts
from app.prediction.predictor import Prediction, Predictor
from app.prediction.torch_runtime import load_predictor
from app.serving.application import listen
from app.serving.queue import SHORT, BatchQueue
from tests.saved_classifier import as_rows, random_texts
from tests.serving.running_server import HeldRuntime

HOUR, MINUTE = 3600, 60
TOGETHER = ("今天", "真好", "开心")


def computed(plain: Predictor, ask, wait: float = HOUR) -> list[int]:
    """Await `ask(classify)` while a queue is worked off; `classify` takes a text. Return how many rows were
    computed together, in their order."""
    predictor = Predictor(
        HeldRuntime(plain.runtime), plain.tokenizer, plain.task, plain.max_length, long=plain.long
    )

    async def work() -> None:
        queue = BatchQueue(predictor, 512, wait, CollectorRegistry())
        worker = asyncio.create_task(queue.run())

        async def classify(text: str) -> Prediction:
            return (await asyncio.wait_for(queue.classify([Row(1, text, None, None)]), MINUTE))[0]

        try:
            await ask(classify)
        finally:
            worker.cancel()
            queue.thread.shutdown()

    asyncio.run(work())
    return predictor.runtime.rows


def test_a_client_that_is_alone_does_not_wait_for_others(model):
    async def ask(classify) -> None:
        for text in TOGETHER:
            assert (await classify(text)).row.text == text

    assert computed(model.predictor, ask) == [1, 1, 1]


def test_clients_that_were_answered_together_are_waited_for(model):
    async def ask(classify) -> None:
        await asyncio.gather(*map(classify, TOGETHER))
        early = [asyncio.create_task(classify(text)) for text in ("生气", "难过")]
        await asyncio.sleep(0.2)
        assert not any(task.done() for task in early)
        await asyncio.gather(*early, classify("高兴"))

    assert computed(model.predictor, ask) == [3, 3]


def test_who_does_not_come_is_not_waited_for_longer_than_set(model):
    async def ask(classify) -> None:
        await asyncio.gather(*map(classify, TOGETHER))
        await classify("生气")
        await classify("难过")

    assert computed(model.predictor, ask, wait=0.01) == [3, 1, 1]


def test_long_texts_get_the_same_answer_as_short_ones(model):
    text = "今天真开心。" * SHORT

    async def ask(classify) -> None:
        (wanted,) = model.predictor.predict([Row(1, text, None, None)])
        assert (await classify(text)).probabilities.tolist() == wanted.probabilities.tolist()

    computed(model.predictor, ask)


def test_windows_of_several_requests_are_computed_together(checkpoint):
    predictor, texts = load_predictor(checkpoint, 20, LongTexts("windows", 6), device="cpu"), random_texts(9)
    wanted = [prediction.probabilities for prediction in predictor.predict(as_rows(texts))]

    async def ask(classify) -> None:
        answers = await asyncio.gather(*map(classify, texts))
        np.testing.assert_allclose([answer.probabilities for answer in answers], wanted, atol=1e-5)

    assert len(computed(predictor, ask)) == 1


def test_answers_are_sent_at_once():
    """Without TCP_NODELAY, which its connections inherit, the second part of an answer waits 40 milliseconds
    for the client's confirmation of the first."""
    with listen("127.0.0.1", 0) as listener:
        assert listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
