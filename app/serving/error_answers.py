"""Errors -> answers of the server: their status, what is wrong, and what to do."""

from email.message import Message

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from ..errors import InputError, TrainingError, excerpt, listed, nearest, shorten
from .answers import ERROR_TYPES
from .requests import EXPLAINED_SHAPES, SHAPES, FileQuery, Inputs, Question
from .uploads import TooLarge

EXAMPLE = '{"inputs": "今天真开心"}'
FILE_EXAMPLE = "/predict_file?name=posts.csv"
IN_UTF_8 = "save it in UTF-8 and send that file: curl --data-binary @body.json"


def add_error_answers(app: FastAPI, help_page: str) -> None:
    """Let an application answer with each kind of error. `help_page` has its routes. The
    log has the traceback of a defect."""

    async def answer_http_error(request: Request, error: HTTPException) -> JSONResponse:
        return _http_error_answer(request, error, help_page)

    app.add_exception_handler(RequestValidationError, _answer_invalid_request)
    app.add_exception_handler(HTTPException, answer_http_error)
    app.add_exception_handler(InputError, _answer_input_error)
    app.add_exception_handler(TrainingError, _answer_training_error)
    app.add_exception_handler(Exception, _answer_defect)


def error_answer(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    content = {"error": message, "error_type": ERROR_TYPES.get(status, "validation")}
    return JSONResponse(content, status, headers)


async def _answer_invalid_request(request: Request, error: RequestValidationError) -> JSONResponse:
    # Each form that `inputs` may have gives an error, and these come before the error of an unknown key
    last = error.errors()[-1]
    if last["loc"][0] == "query":
        return error_answer(422, _query_problem(last))
    content_type = request.headers.get("content-type", "")
    if error.body and not _is_json(content_type):
        problem = f"the header Content-Type must be application/json, found {excerpt(content_type)}"
        return error_answer(422, f"{problem}; with curl: -H 'Content-Type: application/json'")
    if last["type"] == "json_invalid":
        problem = f"{last['ctx']['error']} at character {last['loc'][1]}"
        return error_answer(400, f"the body: it must be JSON, as {EXAMPLE}; found no JSON: {problem}")
    body_class = Question if request.url.path == "/explain" else Inputs
    return error_answer(422, _body_problem(last, error.body, body_class))


def _is_json(content_type: str) -> bool:
    """Return whether FastAPI reads a body of this type as JSON."""
    message = Message()
    message["content-type"] = content_type
    subtype = message.get_content_subtype()
    is_json = subtype == "json" or subtype.endswith("+json")
    return message.get_content_maintype() == "application" and is_json


def _body_problem(problem: dict, body: object, body_class: type[BaseModel]) -> str:
    """Return what is wrong with a body of JSON; `problem` is pydantic's."""
    if len(problem["loc"]) == 1:
        if problem["type"] == "missing":
            return f"the body: {problem['msg']}; it must be an object, as {EXAMPLE}"
        return f"the body: it must be an object, as {EXAMPLE}, found {excerpt(problem['input'])}"
    key = str(problem["loc"][1])
    if key == "inputs":
        shapes = EXPLAINED_SHAPES if body_class is Question else SHAPES
        return f"{shapes}; found {excerpt(body.get('inputs'))}"
    value = excerpt(problem["input"])
    if problem["type"] != "extra_forbidden":
        return f"{shorten(key)}: {problem['msg']}, found {value}"
    message = f"{shorten(key)}: there is no such key, found {value}"
    if "inputs" not in body:
        return f"{message}; the key of the texts is inputs, as in {EXAMPLE}"
    keys = list(body_class.model_fields)
    return f"{message}; the keys are {listed(keys)}{nearest(key, keys)}"


def _query_problem(problem: dict) -> str:
    """Return what is wrong with the query parameters of a file; `problem` is pydantic's."""
    name = str(problem["loc"][1])
    if problem["type"] == "missing":
        return f"{name}: this query parameter is needed, the name of the file with its ending: {FILE_EXAMPLE}"
    if problem["type"] != "extra_forbidden":
        return f"{shorten(name)}: {problem['msg']}, found {excerpt(problem['input'])}"
    names = list(FileQuery.model_fields)
    message = f"{shorten(name)}: there is no such query parameter"
    return f"{message}; there are {listed(names)}{nearest(name, names)}"


def _http_error_answer(request: Request, error: HTTPException, help_page: str) -> JSONResponse:
    message = error.detail
    path = shorten(request.url.path)
    headers = dict(error.headers or {})
    if error.status_code == 404:
        message = f"there is no route {path}; {help_page} lists them, and /openapi.json has their schema"
    elif error.status_code == 405:
        message = f"{path} takes {headers.get('Allow')}, found {shorten(request.method)}"
    elif isinstance(error.__cause__, UnicodeDecodeError):
        cause = error.__cause__
        byte = f"0x{cause.object[cause.start]:02x} at byte {cause.start}"
        message = f"the body must be JSON in UTF-8, found {byte}; {IN_UTF_8}"
    return error_answer(error.status_code, message, headers)


async def _answer_input_error(_request: Request, error: InputError) -> JSONResponse:
    status = 422
    if isinstance(error, TooLarge):
        status = 413
    return error_answer(status, str(error))


async def _answer_training_error(_request: Request, error: TrainingError) -> JSONResponse:
    return error_answer(424, str(error))


async def _answer_defect(_request: Request, _error: Exception) -> JSONResponse:
    return error_answer(500, "the server failed; its log says why")
