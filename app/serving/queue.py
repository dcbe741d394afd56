"""One queue of requests for one model: requests that wait together are computed together."""

import asyncio
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.exceptions import HTTPException

from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.predictor import Prediction, Predictor, Tokens

# Many rows, sorted by length, need less padding: more may be taken at once than a batch holds
TOKENS_AT_ONCE = 1024
SHORT = 2000  # characters that are tokenised in about a millisecond
TEXT_BUCKETS = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # texts, of the histogram of batches


@dataclass
class Entry:
    """The rows of one request, their tokens, and where the answer goes."""

    rows: list[Row]
    tokens: Tokens
    num_tokens: int
    answer: asyncio.Future


class BatchQueue:
    """Classifies the rows of many requests with one model in one thread, in the order in which they came.

    The thread takes whole requests up to the tokens of a batch, at least one request. Where there are fewer
    requests than last time, it waits up to `wait_seconds` for more: clients that were answered together ask
    again together, and a client that is alone does not wait. A request whose client is gone is not computed.
    `capacity` is the most rows that wait or are computed at any time.
    """

    def __init__(
        self, predictor: Predictor, capacity: int, wait_seconds: float, registry: CollectorRegistry
    ) -> None:
        self.predictor = predictor
        self.capacity = capacity
        self.wait_seconds = wait_seconds
        self.max_tokens = max(predictor.runtime.batch_tokens, TOKENS_AT_ONCE)
        waiting = Gauge("classifier_waiting_texts", "texts that wait or are computed", registry=registry)
        waiting.set_function(lambda: self.admitted)
        self.computed = Histogram(
            "classifier_batch_texts",
            "texts that were computed together",
            buckets=TEXT_BUCKETS,
            registry=registry,
        )
        self.tokens = Counter(
            "classifier_tokens", "tokens of the texts that were computed", registry=registry
        )
        self.admitted = 0
        self.last_taken = 1  # requests
        self.entries: deque[Entry] = deque()
        self.arrived = asyncio.Event()
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="model")

    async def classify(self, rows: list[Row]) -> list[Prediction]:
        """Return the predictions of a request's rows, in their order. Cancelling it takes the request out of
        the queue. Raises HTTPException: 429 for a full queue; 424 for logits that are not finite, and where
        the device has no memory."""
        with self.admitted_texts(len(rows)):
            if sum(row.num_characters for row in rows) <= SHORT:
                # A thread would need longer to start, but long texts would keep others waiting
                tokens = self.predictor.tokenize(rows)
            else:
                tokens = await asyncio.to_thread(self.predictor.tokenize, rows)
            answer = asyncio.get_running_loop().create_future()
            self.entries.append(Entry(rows, tokens, sum(map(len, tokens.windows)), answer))
            self.arrived.set()
            return await answer

    def check_room(self, num_texts: int) -> None:
        """Raise HTTPException, 429, where the queue is too full for so many texts."""
        if self.admitted + num_texts > self.capacity:
            message = f"the queue is full ({self.capacity:,} texts); try again later"
            raise HTTPException(429, message, {"Retry-After": "1"})

    @contextmanager
    def admitted_texts(self, num_texts: int) -> Iterator[None]:
        """Count texts as those that wait or are computed. Raises HTTPException as `check_room`."""
        self.check_room(num_texts)
        self.admitted += num_texts
        try:
            yield
        finally:
            self.admitted -= num_texts

    async def run(self) -> None:
        """Compute what is in the queue, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            while not self.entries:
                self.arrived.clear()
                await self.arrived.wait()
            end = loop.time() + self.wait_seconds
            # As many as last time may come, or enough for a batch
            while (
                len(self.entries) < self.last_taken
                and sum(entry.num_tokens for entry in self.entries) < self.max_tokens
            ):
                self.arrived.clear()
                try:
                    await asyncio.wait_for(self.arrived.wait(), end - loop.time())
                except TimeoutError:
                    break
            batch: list[Entry] = []
            num_tokens = 0
            while self.entries:
                entry = self.entries[0]
                if not entry.answer.done():  # else its client is gone
                    if batch and num_tokens + entry.num_tokens > self.max_tokens:
                        break
                    batch.append(entry)
                    num_tokens += entry.num_tokens
                self.entries.popleft()
            if not batch:
                continue
            self.last_taken = len(batch)
            self.tokens.inc(num_tokens)
            self.computed.observe(sum(len(entry.rows) for entry in batch))
            answers = await loop.run_in_executor(self.thread, self.compute, batch)
            for entry, answer in zip(batch, answers, strict=True):
                if entry.answer.done():
                    continue
                if isinstance(answer, Exception):
                    entry.answer.set_exception(answer)
                else:
                    entry.answer.set_result(answer)

    def compute(self, batch: list[Entry]) -> list[list[Prediction] | Exception]:
        """Return the predictions of each request, or what went wrong with it."""
        try:
            logits = self.predictor.logits(joined([entry.tokens for entry in batch]))
            rows = list(chain.from_iterable(entry.rows for entry in batch))
            predictions = iter(self.predictor.predictions(rows, logits))
            return [list(islice(predictions, len(entry.rows))) for entry in batch]
        except (InputError, TrainingError) as error:
            if len(batch) == 1:
                return [HTTPException(424, str(error))]
            # The others may do without the one that failed
            return [self.compute([entry])[0] for entry in batch]
        except Exception as error:  # noqa: BLE001 - the server continues, and each client gets the error
            return [error] * len(batch)


def joined(tokens: list[Tokens]) -> Tokens:
    """Return the rows of several requests as one; a single text is a pair with an empty second one."""
    windows = list(chain.from_iterable(part.windows for part in tokens))
    counts = np.concatenate([part.counts for part in tokens])
    added = None
    if tokens[0].added is not None:
        added = np.concatenate([part.added for part in tokens])
    if all(part.second_starts is None for part in tokens):
        return Tokens(windows, None, counts, added=added)
    starts = []
    for part in tokens:
        if part.second_starts is None:
            starts.append([len(window) for window in part.windows])
        else:
            starts.append(part.second_starts)
    return Tokens(windows, np.concatenate(starts), counts, added=added)
