"""The bodies of answers, and the statuses that a route may answer with: what /openapi.json says of them."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field
from typing_extensions import TypedDict

from .options import MAX_BODY, MAX_FILE

ErrorType = Literal["backend", "overloaded", "timeout", "unauthorized", "validation"]
# The error_type of an answer by its status; all others are "validation"
ERROR_TYPES: dict[int, ErrorType] = {
    401: "unauthorized",
    424: "backend",
    429: "overloaded",
    500: "backend",
    504: "timeout",
}
# The errors that any route may answer with, and those of single routes
OF_ALL_ROUTES = {
    400: "the header Host has a name that is not allowed",
    431: "the request line and the headers are too long",
}
NO_KEY = {401: "the API key is missing or wrong"}
OF_TEXTS = {
    400: "the body is no JSON in UTF-8, or the header Host has a name that is not allowed",
    413: f"the body has more than {MAX_BODY:,} bytes",
    422: "the body is not a request; the sentence says what is wrong",
    424: "the model gives no numbers for a text, or the device has no memory",
    500: "a defect of the server; its log has the traceback",
}
OF_ROUTES = {
    "/predict": {
        **OF_TEXTS,
        429: "too many texts wait; try again later",
        504: "there was no answer in time; try again later",
    },
    "/predict_file": {
        413: f"the file has more than {MAX_FILE:,} bytes, or unpacks to too much",
        415: "a form was sent; the body is the file itself",
        422: "the file cannot be read, or a query parameter is wrong; the sentence says what is wrong",
        424: OF_TEXTS[424],
        429: "too many texts wait; try again later",
        500: OF_TEXTS[500],
    },
    "/explain": {**OF_TEXTS, 429: "another text is being explained; try again later"},
}
TEXT_SCHEMA = {"schema": {"type": "string"}}
# uvicorn sends this one itself
TOO_MANY_CONNECTIONS = {
    "description": "too many connections are open",
    "content": {"text/plain": TEXT_SCHEMA},
}
CSV_FILE = {
    "description": "the rows of the file with their predictions",
    "content": {"text/csv": TEXT_SCHEMA},
    "headers": {
        "X-Summary": {
            "description": "JSON: the number of rows, of invalid ones, and the most frequent labels",
            **TEXT_SCHEMA,
        }
    },
}
METRICS = {"description": "for Prometheus", "content": {"text/plain": TEXT_SCHEMA}}
PAGE = {"description": "the page for people", "content": {"text/html": TEXT_SCHEMA}}
FILE_BODY = {
    "requestBody": {
        "description": "the file itself",
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}
STRICT = ConfigDict(extra="forbid")


class Error(TypedDict):
    """Why there is no other answer."""

    __pydantic_config__ = STRICT
    error: Annotated[str, Field(description="the rule, what was found, and what to do")]
    error_type: ErrorType


class Label(TypedDict):
    """A label of a text, or the number that the model predicts."""

    __pydantic_config__ = STRICT
    score: Annotated[float, Field(description="the probability, or the predicted number")]
    label: str
    chosen: NotRequired[
        Annotated[bool, Field(description="with several labels a text: whether the answer has this one")]
    ]


class TextRead(TypedDict):
    """Which characters of a text the model read."""

    __pydantic_config__ = STRICT
    characters: Annotated[int, Field(description="of the text")]
    ranges: Annotated[
        list[tuple[int, int]],
        Field(description="the first one of each range, counted from 0, and the one after its last"),
    ]


class InputRead(TypedDict):
    """What the model read of one text or pair."""

    __pydantic_config__ = STRICT
    tokens: Annotated[int, Field(description="with the special ones")]
    windows: int
    cut: Annotated[bool, Field(description="whether something was left out")]
    texts: list[TextRead]


class LabelsAndRead(TypedDict):
    """The answer to one text or pair with `read`."""

    __pydantic_config__ = STRICT
    labels: list[Label]
    read: InputRead
    decision: NotRequired[
        Annotated[
            Literal["accept", "abstain", "partial"],
            Field(description="with --threshold: whether the answer is sure enough"),
        ]
    ]
    sure_label: NotRequired[
        Annotated[str, Field(description="of labels in a hierarchy: the part that is sure enough")]
    ]
    sure_probability: NotRequired[float]


class Piece(TypedDict):
    """Characters of an explained text."""

    __pydantic_config__ = STRICT
    text: str
    shade: Annotated[float, Field(description="from -1, against the label, to 1")]
    value: Annotated[str | None, Field(description="the attribution; null for characters without a token")]
    unknown: Annotated[bool, Field(description="whether the model does not know these characters")]


class StrongToken(TypedDict):
    """A token that raises or lowers the label much."""

    __pydantic_config__ = STRICT
    text: str
    place: str
    value: float


class ExplanationParts(TypedDict):
    """Why a text gets a label, as sentences and coloured characters."""

    __pydantic_config__ = STRICT
    is_good: Annotated[bool, Field(description="whether it passed the deletion test")]
    what: str
    heading: str
    verdict: str
    notes: list[str]
    figures: str
    texts: list[list[Piece]]
    strongest: Annotated[
        list[list[StrongToken]], Field(description="the tokens for the label, and those against it")
    ]


class Info(TypedDict):
    """The model, its labels and the limits of a request."""

    __pydantic_config__ = STRICT
    model: str
    labels: list[str]
    pairs: Annotated[bool | None, Field(description="whether it takes pairs of texts; null: not known")]
    max_length: int | None
    long: str
    threshold: float | None
    label_rule: Annotated[
        dict[str, Any] | None, Field(description="with several labels a text: the threshold of each")
    ]
    label_hierarchy: Annotated[str | None, Field(description="what separates the parts of a label")]
    second_reader: Annotated[
        str | None,
        Field(description="the linear model of character n-grams beside the encoder; null: none"),
    ]
    runtime: str
    device: str
    precision: str
    max_body_bytes: int
    max_file_bytes: int
    max_texts: int
    max_characters: int
    max_waiting_texts: int
    timeout_seconds: float


class Health(TypedDict):
    """That the server answers."""

    __pydantic_config__ = STRICT
    status: Literal["ok"]


PredictAnswer = list[Label] | list[list[Label]] | LabelsAndRead | list[LabelsAndRead]


def error_statuses(
    path: str, needs_key: bool, of_routes: dict[str, dict[int, str]] = OF_ROUTES
) -> dict[int | str, dict[str, Any]]:
    """Return what OpenAPI says of the errors of a route. `of_routes` has the meanings of statuses that not
    all routes have, by path."""
    meanings = dict(OF_ALL_ROUTES)
    if needs_key:
        meanings |= NO_KEY
    meanings |= of_routes.get(path, {})
    statuses: dict[int | str, dict[str, Any]] = {503: TOO_MANY_CONNECTIONS}
    for status, meaning in meanings.items():
        statuses[status] = {"model": Error, "description": meaning}
    return statuses
