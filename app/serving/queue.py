"""One queue of requests for one model: requests that wait together are computed together."""

import asyncio
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.predictor import Prediction, Predictor, Tokens

TOGETHER = (
    1024  # tokens that are taken together where a batch has fewer: sorted by length, there is less padding
)
SHORT = 2000  # characters that are tokenised in about a millisecond
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass
class Entry:
    """The rows of one request, their tokens, and where the answer goes."""

    predictor: Predictor
    rows: list[Row]
    tokens: Tokens
    num_tokens: int
    answer: asyncio.Future


class BatchQueue:
    """Classifies the rows of many requests with one model in one thread, in the order in which they came.

    The thread takes whole requests until they have `most_tokens`, at least one request. Where they are fewer
    than last time, it waits up to `wait_seconds` for more: clients that were answered together ask again
    together, and a client that is alone does not wait. A request whose client is gone is not computed.
    `capacity` is the most rows that wait or are computed at any time.
    """

    def __init__(self, capacity: int, wait_seconds: float, registry: CollectorRegistry) -> None:
        self.capacity = capacity
        self.wait_seconds = wait_seconds
        self.waiting = Gauge("classifier_waiting_texts", "texts that wait or are computed", registry=registry)
        self.computed = Histogram(
            "classifier_batch_texts", "texts that were computed together", buckets=TEXTS, registry=registry
        )
        self.tokens = Counter(
            "classifier_tokens", "tokens of the texts that were computed", registry=registry
        )
        self.admitted = 0
        self.last_taken = 1  # requests
        self.entries: deque[Entry] = deque()
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def classify(self, predictor: Predictor, rows: list[Row]) -> list[Prediction]:
        """Return the predictions of a request's rows, in their order; raises HTTPException for a full queue.

        Cancelling it takes the request out of the queue. Raises TrainingError for logits that are not finite,
        and InputError where the device has no memory for a batch.
        """
        if self.admitted + len(rows) > self.capacity:
            message = f"the queue is full ({self.capacity:,} texts); try again later"
            raise HTTPException(429, message, {"Retry-After": "1"})
        self.admitted += len(rows)
        self.waiting.set(self.admitted)
        try:
            tokens = await _tokens(predictor, rows)
            answer = asyncio.get_running_loop().create_future()
            entry = Entry(predictor, rows, tokens, sum(map(len, tokens.rows)), answer)
            self.entries.append(entry)
            self.arrived.set()
            return await entry.answer
        finally:
            self.admitted -= len(rows)
            self.waiting.set(self.admitted)

    async def run(self) -> None:
        """Compute what is in the queue, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await self._some_entries()
            batch = self._take()
            if not batch:
                continue
            self.last_taken = len(batch)
            self.computed.observe(sum(len(entry.rows) for entry in batch))
            answers = await loop.run_in_executor(self.thread, _compute, batch)
            for entry, answer in zip(batch, answers, strict=True):
                # Its client is gone
                if entry.answer.done():
                    continue
                if isinstance(answer, Exception):
                    entry.answer.set_exception(answer)
                else:
                    entry.answer.set_result(answer)

    async def _some_entries(self) -> None:
        """Wait for the first request, then a moment for as many as last time, unless there are enough for a
        batch."""
        while not self.entries:
            self.arrived.clear()
            await self.arrived.wait()
        loop = asyncio.get_running_loop()
        end = loop.time() + self.wait_seconds
        most = most_tokens(self.entries[0].predictor)
        while len(self.entries) < self.last_taken and sum(entry.num_tokens for entry in self.entries) < most:
            self.arrived.clear()
            try:
                await asyncio.wait_for(self.arrived.wait(), end - loop.time())
            except TimeoutError:
                return

    def _take(self) -> list[Entry]:
        """Remove the next requests from the queue, and those whose clients are gone."""
        batch: list[Entry] = []
        num_tokens = 0
        while self.entries:
            entry = self.entries[0]
            if not entry.answer.done():
                if batch and num_tokens + entry.num_tokens > most_tokens(entry.predictor):
                    break
                batch.append(entry)
                num_tokens += entry.num_tokens
            self.entries.popleft()
        self.tokens.inc(num_tokens)
        return batch


def most_tokens(predictor: Predictor) -> int:
    """Return the most tokens of requests that are computed together."""
    return max(predictor.runtime.batch_tokens, TOGETHER)


async def _tokens(predictor: Predictor, rows: list[Row]) -> Tokens:
    """Return the tokens of a request's rows; long texts take time in which the server answers others."""
    if sum(len(row.text) + len(row.pair or "") for row in rows) <= SHORT:
        # Sooner done than given to a thread
        return predictor.tokenize(rows)
    return await asyncio.to_thread(predictor.tokenize, rows)


def _compute(batch: list[Entry]) -> list[list[Prediction] | Exception]:
    """Return the predictions of each request, or what went wrong with it."""
    predictor = batch[0].predictor
    try:
        logits = predictor.logits(_joined([entry.tokens for entry in batch]))
    except Exception as error:  # noqa: BLE001 - whatever it is, the server continues, and each client gets the error
        return [error] * len(batch)
    answers: list[list[Prediction] | Exception] = []
    ends = np.cumsum([len(entry.rows) for entry in batch])
    for entry, end in zip(batch, ends, strict=True):
        try:
            answers.append(predictor.predictions(entry.rows, logits[end - len(entry.rows) : end]))
        except (InputError, TrainingError) as error:
            answers.append(error)
    return answers


def _joined(tokens: list[Tokens]) -> Tokens:
    """Return the rows of several requests as one; a single text is a pair with an empty second one."""
    rows = [row for some in tokens for row in some.rows]
    # Of single texts; all of them are of one model
    if tokens[0].window_ends is not None:
        return Tokens(rows, None, [ends for some in tokens for ends in some.window_ends])
    if all(some.second_starts is None for some in tokens):
        return Tokens(rows, None)
    ends = [np.array([len(row) for row in some.rows]) for some in tokens]
    starts = [
        end if some.second_starts is None else some.second_starts
        for some, end in zip(tokens, ends, strict=True)
    ]
    return Tokens(rows, np.concatenate(starts))
