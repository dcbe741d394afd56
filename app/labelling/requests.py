"""The bodies of requests to the server of `label`, and of its answers."""

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ..serving.options import MAX_BODY

MAX_NAME = 200  # characters of a label
# These say what the statuses of errors mean, by route
ERRORS_OF_BODY = {
    400: "the body is no JSON in UTF-8, or the header Host has a name that is not allowed",
    413: f"the body has more than {MAX_BODY:,} bytes",
    422: "the body is not a request, or the session refuses it; the sentence says what is wrong",
    424: "the file of answers cannot be written; the answer is not kept",
    500: "a defect of the server; its log has the traceback",
}
ROUTES_WITH_BODY = ("/next", "/answer", "/skip", "/back", "/guess", "/labels")
ERRORS_OF_ROUTES = dict.fromkeys(ROUTES_WITH_BODY, ERRORS_OF_BODY)

Person = Annotated[str, Field(pattern=r"^[0-9A-Za-z-]{8,64}$")]
LabelName = Annotated[str, Field(min_length=1, max_length=MAX_NAME)]


class FromPerson(BaseModel):
    """A request of a person: the name that the person's browser has made up."""

    model_config = ConfigDict(extra="forbid", strict=True)
    person: Person


class AboutText(FromPerson):
    """A request about the text with this number."""

    number: Annotated[int, Field(ge=0)]


class AnswerToText(AboutText):
    """The labels that a person gives a text; none is an answer where a text may have several."""

    labels: Annotated[list[LabelName], Field(max_length=1000)]


class NewLabel(FromPerson):
    """The name of a label that there was not before."""

    name: LabelName


class ShownText(TypedDict):
    """A text to label; `labels` are those of an earlier answer."""

    number: int
    text: str
    pair: str | None
    labels: list[str]


class NextText(TypedDict):
    """The text that a person gets next, None where none is left; and the probabilities by label that the
    model gave to the text that was answered, before it learnt from the answer."""

    text: ShownText | None
    guess: dict[str, float]


class Guess(TypedDict):
    """The probabilities of a text by label."""

    guess: dict[str, float]


class LabelInfo(TypedDict):
    """What the page must know before the first text."""

    file: str
    has_several: bool
    asks_guess: bool


Status = dict[str, Any]
