"""Explanations: one text at a time, in a limited time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from starlette.exceptions import HTTPException

from ..data.rows import Row
from ..errors import InputError, TrainingError
from ..prediction.open_model import OpenedModel
from ..words import in_language
from .answers import row_texts

if TYPE_CHECKING:
    from ..explanation.explanation import ExplainedModel

DRAWS = 19  # random orders of the deletion test: the fewest with which it can pass, as people wait


class Explainer:
    """Explains the answers of a model with a copy of its weights, which is loaded when it is first needed. An
    explanation may take `seconds`."""

    def __init__(self, model: OpenedModel, seconds: float) -> None:
        self.model, self.seconds = model, seconds
        self.lock = asyncio.Lock()
        self.explained: ExplainedModel | None = None

    async def explain(self, row: Row, label: str | None, language: str) -> list[dict]:
        """Return what `explanation_shown` does for each label; raises HTTPException."""
        if self.lock.locked():
            raise HTTPException(429, "another text is being explained; try again later", {"Retry-After": "1"})
        async with self.lock:
            try:
                # Not in the thread of the model, so that others get their labels meanwhile.
                return await asyncio.to_thread(self._explanations, row, label, language)
            except TimeoutError as error:
                message = f"it takes more than {self.seconds:g} seconds; a shorter text takes less"
                raise HTTPException(504, message) from error
            except InputError as error:
                raise HTTPException(422, str(error)) from error
            except TrainingError as error:
                raise HTTPException(424, str(error)) from error

    def _explanations(self, row: Row, label: str | None, language: str) -> list[dict]:
        from ..explanation.explanation import ExplainedModel, explain
        from ..explanation.shown import explanation_shown

        if self.explained is None:
            device = self.model.predictor.runtime.description["device"]
            self.explained = ExplainedModel(self.model.folder, device)
        self.explained.deadline = time.monotonic() + self.seconds
        found = explain(self.explained, row_texts(row), self.model.remove_spaces, label, DRAWS)
        with in_language(language):
            return [explanation_shown(one) for one in found]
