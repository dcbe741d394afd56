"""One model that answers requests: loading it, its queue, and each request from its body to its labels."""

from __future__ import annotations

import asyncio
import gc
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest

from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.open_model import OpenedModel
from ..prediction.predictor import Prediction
from ..prediction.recorded_settings import settings_of_reading
from .answers import how_read, how_sure, ranked
from .explainer import Explainer
from .hosts import LOCAL_HOSTS
from .queue import BatchQueue
from .request_metrics import Metrics
from .requests import Limits, Refusal, parse_question, parse_request

logger = logging.getLogger(__name__)
# Bytes above the limit that are read and dropped: a client that still sends may not read the answer
READ_ON = 16 << 20
# No client sees this status; it is counted
CLIENT_GONE = 499
# Settings with which the run read its files; the page reads files with them
READING = ("train", "format", "text_column", "text_pair_column", "header", "encoding", "quoting")
Result = TypeVar("Result")


@dataclass(frozen=True)
class ServeOptions:
    """How a server answers: `timeout` and `wait` in seconds, `capacity` in texts; with an `api_key`, requests
    must have it.

    `receive_timeout`, in seconds, is for the body of a request, and for the next request of a connection; at
    most `connections` are answered at a time. `allowed_hosts` are the names that the header Host may have.
    An explanation may take `explain_seconds`; 0: there is none.
    """

    limits: Limits = field(default_factory=Limits)
    capacity: int = 512
    timeout: float = 30.0
    wait: float = 0.003
    api_key: str | None = None
    receive_timeout: float = 15.0
    connections: int = 512
    allowed_hosts: frozenset[str] = LOCAL_HOSTS
    explain_seconds: float = 60.0


class Service:
    """One model and its queue. `load` returns the model, and is called again for each reload."""

    def __init__(self, load: Callable[[], OpenedModel], options: ServeOptions) -> None:
        self.load = load
        self.options = options
        self.metrics = Metrics()
        self.model = self._load()
        self.queue = BatchQueue(options.capacity, options.wait, self.metrics)
        self.reloading = asyncio.Lock()
        self.explainer = Explainer(options.explain_seconds)
        set_aside()

    def _load(self) -> OpenedModel:
        """Return a model that has classified a row; raises InputError or TrainingError for a broken one."""
        model = self.load()
        list(model.predictor.predict([Row(1, "好", "好" if model.has_pairs else None, None)]))
        return model

    async def reload(self) -> None:
        """Load the model again, and use it from the next request on; a broken one changes nothing."""
        async with self.reloading:
            try:
                self.model = await asyncio.to_thread(self._load)
            except Exception as error:  # noqa: BLE001 - whatever it is, the model that works stays
                self.metrics.reloads.labels("failed").inc()
                logger.error("the model was not loaded again, the one before still answers: %s", error)
            else:
                set_aside()
                self.metrics.reloads.labels("done").inc()
                logger.info("loaded %s again", self.model.folder)

    async def counted(self, request: HttpRequest, answer: Callable[[HttpRequest], Awaitable[list]]) -> list:
        """Return `answer(request)`, and count the request, its time, and how it ended."""
        started, status = time.perf_counter(), 500
        try:
            answered = await answer(request)
            status = 200
            return answered
        except Refusal as refusal:
            status = refusal.status
            raise
        finally:
            self.metrics.requests.labels(str(status)).inc()
            self.metrics.seconds.observe(time.perf_counter() - started)

    async def answer(self, request: HttpRequest) -> list:
        """Return the labels that a request asks for; raises Refusal."""
        options = self.options
        body = await self._json_body(request)
        model = self.model
        wanted = parse_request(body, options.limits, model.has_pairs, model.remove_spaces, model.text_columns)
        if wanted.evidence and model.nearest is None:
            raise Refusal(422, "validation", "evidence needs a server that was started with --evidence")
        work = unless_gone(request, self._classify(model, wanted.rows))
        predictions = await self._in_time(work, options.timeout, 504, "there was no answer")
        labels = [ranked(prediction, model.predictor.task, wanted.top_k) for prediction in predictions]
        if wanted.evidence:
            answers = [prediction.answer for prediction in predictions]
            # In the thread of the model, as all that computes
            finding = asyncio.get_running_loop().run_in_executor(
                self.queue.thread, model.nearest.find, wanted.rows, answers, wanted.evidence
            )
            evidence = await self._in_time(finding, options.timeout, 504, "there was no answer")
            labels = [{"labels": of_row} | beside for of_row, beside in zip(labels, evidence, strict=True)]
        if wanted.read:
            read = await asyncio.to_thread(lambda: [how_read(model, row) for row in wanted.rows])
            objects = labels if wanted.evidence else [{"labels": of_row} for of_row in labels]
            labels = [shown | {"read": one} for shown, one in zip(objects, read, strict=True)]
        if model.threshold is not None and (wanted.evidence or wanted.read):
            task = model.predictor.task
            decided = [how_sure(prediction, task, model.threshold) for prediction in predictions]
            labels = [shown | decision for shown, decision in zip(labels, decided, strict=True)]
        return labels if wanted.is_list else labels[0]

    async def explain(self, request: HttpRequest) -> list[dict]:
        """Return why a text gets its labels; raises Refusal."""
        body = await self._json_body(request)
        model = self.model
        wanted = parse_question(
            body, self.options.limits, model.has_pairs, model.remove_spaces, model.text_columns
        )
        return await self.explainer.explain(model, wanted)

    async def _classify(self, model: OpenedModel, rows: list[Row]) -> list[Prediction]:
        try:
            predictions = await self.queue.classify(model.predictor, rows)
        except (InputError, TrainingError) as error:
            raise Refusal(424, "backend", str(error)) from error
        self.metrics.texts.inc(len(predictions))
        return predictions

    async def _in_time(self, work: Awaitable[Result], seconds: float, status: int, problem: str) -> Result:
        """Return the result of `work`; raises Refusal with `status` where it takes longer than `seconds`."""
        try:
            return await asyncio.wait_for(work, seconds)
        except TimeoutError as error:
            message = f"{problem} within {seconds:g} seconds; try again later, or send fewer texts"
            raise Refusal(status, "timeout", message) from error

    async def _json_body(self, request: HttpRequest) -> bytes:
        """Return a body that is announced as JSON; raises Refusal, also where it does not arrive in time."""
        _check_type(request.headers.get("content-type", ""))
        work = self._body(request)
        return await self._in_time(work, self.options.receive_timeout, 408, "the body did not arrive")

    async def _body(self, request: HttpRequest) -> bytes:
        """Return the body; raises Refusal where it is too long, and where the client breaks off."""
        most, body, size = self.options.limits.body_bytes, bytearray(), 0
        too_long = Refusal(
            413, "validation", f"the body may have {most:,} bytes; send fewer or shorter texts"
        )
        announced = request.headers.get("content-length", "0")
        if announced.isdecimal() and int(announced[:20]) > most + READ_ON:
            raise too_long
        try:
            async for chunk in request.stream():
                size += len(chunk)
                body += chunk if size <= most else b""
                if size > most + READ_ON:
                    break
        except ClientDisconnect as error:
            raise gone() from error
        if size > most:
            raise too_long
        return bytes(body)

    def info(self) -> dict:
        """Return what a client may want to know about the model and the limits."""
        model, limits = self.model, self.options.limits
        return {
            "model": model.folder.resolve().name,
            "labels": model.predictor.label_names,
            "pairs": model.has_pairs,
            "max_length": model.predictor.max_length,
            "long": model.predictor.long.way,
            "reading": {name: settings_of_reading(model.recorded).get(name) for name in READING},
            "threshold": model.threshold,
            "label_rule": model.predictor.task.label_rule(),
            "label_hierarchy": model.predictor.task.separator,
            "examples": model.examples,
            "explain_seconds": self.options.explain_seconds,
            "evidence": model.nearest is not None,
            **model.predictor.runtime.description,
            "max_body_bytes": limits.body_bytes,
            "max_texts": limits.texts,
            "max_characters": limits.characters,
            "max_waiting_texts": self.options.capacity,
            "timeout_seconds": self.options.timeout,
            "receive_timeout_seconds": self.options.receive_timeout,
            "max_connections": self.options.connections,
        }


def set_aside() -> None:
    """Collect garbage, also of a model before, and let later collections leave out all objects that are alive
    now.

    Requests make so much garbage that the collector runs all the time; with the libraries' and the model's
    objects to look through, it takes a tenth of the server's time.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _check_type(header: str) -> None:
    """Raise Refusal unless a body is announced as JSON: a page of another site may not send that without
    asking first."""
    content_type = header.partition(";")[0].strip().lower()
    if content_type != "application/json":
        problem = f"found {content_type[:80]}" if content_type else "there is none"
        raise Refusal(415, "validation", f"the header Content-Type must be application/json; {problem}")


def gone() -> Refusal:
    """Return what ends a request whose client has left."""
    return Refusal(CLIENT_GONE, "disconnected", "the client has left")


async def unless_gone(request: HttpRequest, work: Awaitable[Result]) -> Result:
    """Return the result of `work`, or cancel it and raise Refusal when the client leaves before that."""

    async def leaves() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass

    tasks = asyncio.ensure_future(work), asyncio.ensure_future(leaves())
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if not tasks[0].done():
            raise gone()
        return tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
