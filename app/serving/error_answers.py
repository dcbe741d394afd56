"""Errors -> answers of the server: their status, what is wrong, and what to do."""

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from ..errors import InputError, TrainingError, excerpt, shorten
from .requests import EXPLAINED_SHAPES, SHAPES
from .uploads import TooLarge

# The error_type of an answer by its status; all others are "validation"
ERROR_TYPES = {401: "unauthorized", 424: "backend", 429: "overloaded", 500: "backend", 504: "timeout"}


def add_error_answers(app: FastAPI) -> None:
    """Let an application answer with each kind of error. The log has the traceback of a defect."""
    app.add_exception_handler(RequestValidationError, _answer_invalid_body)
    app.add_exception_handler(HTTPException, _answer_http_error)
    app.add_exception_handler(InputError, _answer_input_error)
    app.add_exception_handler(TrainingError, _answer_training_error)
    app.add_exception_handler(Exception, _answer_defect)


def _answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    content = {"error": message, "error_type": ERROR_TYPES.get(status, "validation")}
    return JSONResponse(content, status, headers)


async def _answer_invalid_body(request: Request, error: RequestValidationError) -> JSONResponse:
    # Each form that `inputs` may have gives an error, and these come before the error of an unknown key
    last = error.errors()[-1]
    if last["type"] == "json_invalid":
        return _answer(400, f"the body: {last['msg']}")
    key = "the body"
    if len(last["loc"]) > 1:
        key = str(last["loc"][1])
    if key == "inputs":
        shapes = EXPLAINED_SHAPES if request.url.path == "/explain" else SHAPES
        return _answer(422, f"{shapes}; found {excerpt(error.body.get('inputs'))}")
    message = f"{shorten(key)}: {last['msg']}"
    if last["type"] != "missing":
        message += f", found {excerpt(last['input'])}"
    return _answer(422, message)


async def _answer_http_error(_request: Request, error: HTTPException) -> JSONResponse:
    return _answer(error.status_code, error.detail, dict(error.headers or {}))


async def _answer_input_error(_request: Request, error: InputError) -> JSONResponse:
    return _answer(413 if isinstance(error, TooLarge) else 422, str(error))


async def _answer_training_error(_request: Request, error: TrainingError) -> JSONResponse:
    return _answer(424, str(error))


async def _answer_defect(_request: Request, _error: Exception) -> JSONResponse:
    return _answer(500, "the server failed; its log says why")
