"""What the routes of a server answer: labels of texts and of files, explanations, and what the model is."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

from fastapi import Query, Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CollectorRegistry
from starlette.exceptions import HTTPException

from ..data.rows import Row
from ..errors import InputError, excerpt, listed, nearest
from ..prediction.open_model import OpenedModel
from ..prediction.predictor import Prediction
from ..tasks.columns import prediction_columns, ranked_labels
from ..words import in_language
from .answers import Info, InputRead, Label, TextRead
from .file_classifier import FileClassifier
from .options import MAX_BODY, MAX_FILE, MAX_TEXT, MAX_TEXTS, ServeOptions
from .queue import BatchQueue
from .requests import FileQuery, Inputs, Question, rows_of

if TYPE_CHECKING:
    from ..explanation.explained_model import ExplainedModel

DRAWS = 19  # random orders of the deletion test; fewer than explain has by itself, as people wait


class Service:
    """One model that answers requests. Its public methods are routes; /openapi.json has their docstrings."""

    def __init__(self, model: OpenedModel, options: ServeOptions, registry: CollectorRegistry) -> None:
        self._model = model
        self._options = options
        self._queue = BatchQueue(model.predictor, options.capacity, options.wait, registry)
        self._files = FileClassifier(model, self._queue)
        self._explaining = asyncio.Lock()
        # A copy of the weights, once it is needed
        self._explained: ExplainedModel | None = None

    async def predict(self, wanted: Inputs) -> Response:
        """The labels of texts with their scores, the most probable first; of several labels also whether each
        is in the answer. With `read` an object of them, of what was read, and of the decision."""
        rows = rows_of(wanted.inputs, self._model)
        seconds = self._options.timeout
        try:
            async with asyncio.timeout(seconds):
                predictions = await self._queue.classify(rows)
        except TimeoutError as error:
            message = f"there was no answer within {seconds:g} seconds; try again later"
            raise HTTPException(504, message) from error
        answers: list[Any] = [self._labels(prediction, wanted.top_k) for prediction in predictions]
        if wanted.read:
            parts_read = await asyncio.to_thread(self._parts_read, rows)
            for number, prediction in enumerate(predictions):
                answers[number] = {
                    "labels": answers[number],
                    "read": parts_read[number],
                    **self._decision(prediction),
                }
        if not isinstance(wanted.inputs, list):
            return JSONResponse(answers[0])
        return JSONResponse(answers)

    def _labels(self, prediction: Prediction, top_k: int | None) -> list[Label]:
        """Return the labels of a row with their scores, the most probable first."""
        task = self._model.predictor.task
        labels = []
        for label_id in ranked_labels(task, prediction.probabilities)[:top_k]:
            name = task.label_names[label_id]
            score = round(float(prediction.probabilities[label_id]), 6)
            if task.predicts_number:
                score = prediction.answer
            label = {"score": score, "label": name}
            if isinstance(prediction.answer, list):
                label["chosen"] = name in prediction.answer
            labels.append(label)
        return labels

    def _decision(self, prediction: Prediction) -> dict[str, Any]:
        """Return what follows from the threshold of the model; nothing without one."""
        threshold = self._model.threshold
        if threshold is None:
            return {}
        columns = prediction_columns(self._model.predictor.task, prediction.probabilities, threshold)
        names = ("decision", "sure_label", "sure_probability")
        return {name: columns[name] for name in names if name in columns}

    def _parts_read(self, rows: list[Row]) -> list[InputRead]:
        """Return what the model reads of each row: the number of tokens, with the special ones, and of
        windows; and for each text the number of its characters, and the ranges of those that are read, from
        the first, counted from 0, to the last (exclusive)."""
        predictor = self._model.predictor
        parts: list[InputRead] = []
        for row in rows:
            tokens = predictor.tokenize([row])
            ranges_of_texts = predictor.encoder.characters_read(row.texts)
            texts_read: list[TextRead] = []
            for text, ranges in zip(row.texts, ranges_of_texts, strict=True):
                texts_read.append({"characters": len(text), "ranges": ranges})
            parts.append(
                {
                    "tokens": sum(map(len, tokens.windows)),
                    "windows": len(tokens.windows),
                    "cut": bool(tokens.cut[0]),
                    "texts": texts_read,
                }
            )
        return parts

    async def predict_file(self, request: Request, query: Annotated[FileQuery, Query()]) -> Response:
        """A file of texts, as the body, with its predictions, as CSV. It is read as in the run's training,
        but for `text_column`, `text_pair_column` and `encoding`, where they are given; its format is that of
        `name`. The header X-Summary counts rows and labels."""
        if request.headers.get("content-type", "").startswith("multipart/"):
            raise HTTPException(415, "the file itself must be the body, as of curl --data-binary @FILE")
        asked = query.model_dump(exclude={"name"})
        return await self._files.answer(request, query.name, asked)

    async def explain(self, wanted: Question) -> Response:
        """Why a text gets its labels. While another text is explained, the answer is 429."""
        # A list is one input here: a pair of texts, or a single text
        [row] = rows_of([wanted.inputs], self._model)
        if self._explaining.locked():
            raise HTTPException(429, "another text is being explained; try again later", {"Retry-After": "1"})
        async with self._explaining:
            # The thread of the model stays free, so that others get their labels meanwhile
            return JSONResponse(await asyncio.to_thread(self._explanations, row, wanted))

    def _explanations(self, row: Row, wanted: Question) -> list[dict[str, Any]]:
        from ..explanation.explained_model import ExplainedModel
        from ..explanation.explanation import explain
        from ..explanation.page import explanation_parts

        label_names = self._model.predictor.task.label_names
        if wanted.label is not None and wanted.label not in label_names:
            raise InputError(
                f"label must be a label of the model, found {excerpt(wanted.label)}"
                f"{nearest(wanted.label, label_names)} (known: {listed(label_names)})"
            )
        if self._explained is None:
            # It explains the model in memory: the files may be those of another one by now
            self._explained = ExplainedModel(self._model.folder, opened=self._model)
        explanations = explain(self._explained, row.texts, wanted.label, DRAWS)
        with in_language(wanted.language):
            return [explanation_parts(explanation) for explanation in explanations]

    async def info(self) -> Info:
        """The model, its labels and the limits of a request."""
        model = self._model
        predictor = model.predictor
        task = predictor.task
        label_rule = None
        if task.form.has_several:
            label_rule = task.state()
        second_reader = None
        if predictor.second_reader is not None:
            second_reader = predictor.second_reader.characters.method
        return {
            "model": model.folder.resolve().name,
            "labels": task.label_names,
            "pairs": model.trained.has_pairs,
            "max_length": predictor.max_length,
            "long": predictor.long.way,
            "threshold": model.threshold,
            "label_rule": label_rule,
            "label_hierarchy": task.tree and task.tree.separator,
            "second_reader": second_reader,
            **predictor.runtime.description,
            "max_body_bytes": MAX_BODY,
            "max_file_bytes": MAX_FILE,
            "max_texts": MAX_TEXTS,
            "max_characters": MAX_TEXT,
            "max_waiting_texts": self._options.capacity,
            "timeout_seconds": self._options.timeout,
        }

    async def run(self) -> None:
        """Compute what requests ask for, until cancelled."""
        try:
            await self._queue.run()
        finally:
            self._queue.thread.shutdown()
