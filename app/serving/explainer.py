"""Requests for explanations: one text at a time, in a limited time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from ..errors import InputError, TrainingError
from ..prediction.open_model import OpenedModel
from ..words import in_language
from .answers import row_texts
from .requests import Question, Refusal

if TYPE_CHECKING:
    from ..explanation.explanation import ExplainedModel

# Random orders of the deletion test: the fewest with which it can pass, as people wait
DRAWS = 19


class Explainer:
    """Explains the answers of a model with a copy of its weights, which is loaded when it is first needed. An
    explanation may take `seconds`; 0: there is none."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.lock = asyncio.Lock()
        # The model that was opened, and the one that explains it
        self.plain: tuple[OpenedModel, ExplainedModel] | None = None

    async def explain(self, model: OpenedModel, wanted: Question) -> list[dict]:
        """Return what `explanation_shown` does for each label; raises Refusal."""
        if not self.seconds:
            raise Refusal(422, "validation", "this server gives no explanations (--explain_seconds 0)")
        if self.lock.locked():
            raise Refusal(429, "overloaded", "another text is being explained; try again later")
        async with self.lock:
            try:
                # Not in the thread of the model, so that others get their labels meanwhile
                return await asyncio.to_thread(self._explanations, model, wanted)
            except TimeoutError as error:
                message = f"it takes more than {self.seconds:g} seconds (--explain_seconds)"
                raise Refusal(504, "timeout", f"{message}; a shorter text takes less") from error
            except InputError as error:
                raise Refusal(422, "validation", str(error)) from error
            except TrainingError as error:
                raise Refusal(424, "backend", str(error)) from error

    def _explanations(self, model: OpenedModel, wanted: Question) -> list[dict]:
        from ..explanation.explanation import ExplainedModel, explain
        from ..explanation.shown import explanation_shown

        if self.plain is None or self.plain[0] is not model:
            device = model.predictor.runtime.description["device"]
            self.plain = model, ExplainedModel(model.folder, device)
        plain = self.plain[1]
        plain.deadline = time.monotonic() + self.seconds
        explanations = explain(plain, row_texts(wanted.row), model.remove_spaces, wanted.label, DRAWS)
        with in_language(wanted.language):
            return [explanation_shown(one) for one in explanations]
