"""The HTTP application of `label`: its routes, which give texts to people and take their labels."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, JSONResponse, Response

from ..errors import InputError, excerpt, shorten
from ..program import file_here
from ..serving.answers import PAGE, Health
from ..serving.empty_application import empty_application, route_options
from ..serving.error_answers import error_answer
from ..serving.middleware import HeadRequests
from ..serving.options import ServeOptions
from ..serving.page import read_page
from .requests import (
    ERRORS_OF_ROUTES,
    AboutText,
    AnswerToText,
    FromPerson,
    Guess,
    LabelInfo,
    NewLabel,
    NextText,
    ShownText,
    Status,
)
from .session import LabelSession, TextToLabel

PAGE_FILES = Path(__file__).with_name("page_files")


@dataclass(frozen=True)
class LabelPage:
    """What the page says of the job: the name of the file, whether a text may have several labels, and
    whether people may ask for the model's guess before they answer."""

    file: str
    has_several: bool
    asks_guess: bool


def build_label_application(session: LabelSession, page: LabelPage, options: ServeOptions) -> FastAPI:
    """Return the application by which people label the texts of a session."""
    service = LabelService(session, page)
    served_page = read_page(PAGE_FILES)
    route = partial(route_options, options=options, of_routes=ERRORS_OF_ROUTES)
    app = empty_application("label texts", options, lifespan=None, help_page=file_here("docs/labelling.md"))
    app.add_exception_handler(RequestValidationError, _answer_invalid_body)
    app.get(**route("/info"))(service.info)
    app.get(**route("/status"))(service.status)
    app.post(**route("/next"))(service.next)
    app.post(**route("/answer"))(service.answer)
    app.post(**route("/skip"))(service.skip)
    app.post(**route("/back"))(service.back)
    app.post(**route("/guess"))(service.guess)
    app.post(**route("/labels"))(service.add_label)

    @app.get(**route("/health", needs_key=False))
    async def health() -> Health:
        """That the server answers."""
        return {"status": "ok"}

    @app.get(**route("/", needs_key=False, answer=PAGE))
    async def page_for_people() -> Response:
        """The page for people."""
        return HTMLResponse(served_page.html, headers=served_page.headers)

    app.add_middleware(HeadRequests)
    return app


class LabelService:
    """The routes. The session computes and writes in threads, so that other people get answers meanwhile."""

    def __init__(self, session: LabelSession, page: LabelPage) -> None:
        self._session = session
        self._page = page

    async def info(self) -> LabelInfo:
        """The file that is labelled, and what the page may offer."""
        return {
            "file": self._page.file,
            "has_several": self._page.has_several,
            "asks_guess": self._page.asks_guess,
        }

    async def status(self) -> Status:
        """The answers so far, and how good a model would be that learnt from them."""
        return await asyncio.to_thread(self._session.status)

    async def next(self, wanted: FromPerson) -> NextText:
        """The text that this person labels next: the same one until it has an answer or is skipped."""
        return await asyncio.to_thread(self._next_text, wanted.person)

    async def answer(self, wanted: AnswerToText) -> NextText:
        """Keep the labels of a text, and give the next one."""
        return await asyncio.to_thread(self._answer, wanted)

    def _answer(self, wanted: AnswerToText) -> NextText:
        # The guess must be that of a model that has not seen the answer
        guess = self._session.guess(wanted.person, wanted.number)
        self._session.answer(wanted.person, wanted.number, wanted.labels)
        return {**self._next_text(wanted.person), "guess": guess}

    async def skip(self, wanted: AboutText) -> NextText:
        """Give another text in place of this one."""

        def skip_text() -> NextText:
            self._session.skip(wanted.person, wanted.number)
            return self._next_text(wanted.person)

        return await asyncio.to_thread(skip_text)

    async def back(self, wanted: FromPerson) -> NextText:
        """Give the text that this person answered last, to be answered again."""

        def earlier_text() -> NextText:
            text = self._session.back(wanted.person)
            if text is None:
                raise InputError("there is no answer of yours to go back to; answer this text first")
            return {"text": _shown(text), "guess": {}}

        return await asyncio.to_thread(earlier_text)

    async def guess(self, wanted: AboutText) -> Guess:
        """The probabilities of a text by label, before it has an answer."""
        if not self._page.asks_guess:
            raise InputError(
                "the guess is shown after the answer, because it draws answers to itself; to ask for it "
                "before, start the server with --show_guess asked"
            )
        guess = await asyncio.to_thread(self._session.guess, wanted.person, wanted.number)
        return {"guess": guess}

    async def add_label(self, wanted: NewLabel) -> Status:
        """Add a label, and say what /status says."""

        def add() -> Status:
            self._session.add_label(wanted.name)
            return self._session.status()

        return await asyncio.to_thread(add)

    def _next_text(self, person: str) -> NextText:
        text = self._session.next_text(person)
        if text is None:
            return {"text": None, "guess": {}}
        return {"text": _shown(text), "guess": {}}


def _shown(text: TextToLabel) -> ShownText:
    return {"number": text.number, "text": text.text, "pair": text.pair, "labels": list(text.labels)}


async def _answer_invalid_body(_request: Request, error: RequestValidationError) -> JSONResponse:
    problem: dict[str, Any] = error.errors()[-1]
    key = ".".join(map(str, problem["loc"]))
    return error_answer(422, f"{shorten(key)}: {problem['msg']}, found {excerpt(problem['input'])}")
