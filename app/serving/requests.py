"""What requests look like, the limits of their bodies, and their texts as rows."""

import asyncio
from typing import Annotated, Any, Literal

from annotated_types import Len
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..data.read import BadRow, ReadOptions
from ..data.rows import Row, join_texts, text_rows
from ..errors import excerpt
from ..prediction.open_model import OpenedModel

MAX_BODY, MAX_FILE = 1 << 20, 64 << 20  # bytes
MAX_TEXTS, MAX_CHARACTERS = 128, 100_000
Text = Annotated[str, Field(max_length=MAX_CHARACTERS)]
Item = Text | Annotated[list[Text], Len(1, 2)] | dict[str, Text | None]
SHAPES = (
    f"inputs must be a text, a list of up to {MAX_TEXTS} texts, or a list of pairs [text, text_pair], each "
    f"text of up to {MAX_CHARACTERS:,} characters; an object with text and text_pair is one text or one pair"
)


class BodyLimits:
    """Middleware that refuses a body that is too long, or does not arrive within `seconds`."""

    def __init__(self, app: ASGIApp, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        most = MAX_FILE if scope.get("path") == "/predict_file" else MAX_BODY
        size, is_whole = int(dict(scope.get("headers", [])).get(b"content-length", 0)), False
        received, end = 0, asyncio.get_running_loop().time() + self.seconds

        async def limited() -> Message:
            nonlocal received, is_whole
            if is_whole:
                return await receive()
            message: Message = {}
            try:
                async with asyncio.timeout_at(end):
                    message = {} if size > most else await receive()
            except TimeoutError as error:
                problem = f"the body did not arrive within {self.seconds:g} seconds"
                raise HTTPException(408, problem) from error
            received, is_whole = received + len(message.get("body", b"")), not message.get("more_body")
            if max(size, received) > most:
                raise HTTPException(413, f"the body may have {most:,} bytes; send fewer or shorter texts")
            return message

        await self.app(scope, limited if scope["type"] == "http" else receive, send)


class Inputs(BaseModel):
    """Texts or pairs to classify; `top_k` labels of each (none: all); `read` adds what was read of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Text | dict[str, Text | None] | Annotated[list[Item], Len(1, MAX_TEXTS)]
    top_k: Annotated[int, Field(ge=1)] | None = None
    read: bool = False


class Question(BaseModel):
    """A text or a pair to explain, the label (none: each predicted one), and the language."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Item
    label: str | None = None
    language: Literal["en", "zh"] = "en"


def explained(error: RequestValidationError) -> str:
    """Return what is wrong with a request, in one sentence."""
    # Each form that `inputs` may have gives an error; a key that there is not comes last
    first = error.errors()[-1]
    key = str(first["loc"][1]) if len(first["loc"]) > 1 else "the body"
    if key == "inputs":
        return f"{SHAPES}; found {excerpt(error.body.get('inputs'))}"
    if first["type"] == "extra_forbidden":
        known = [", ".join(of.model_fields) for of in (Inputs, Question)]
        return f"there is no key {excerpt(key)} (known: {known[0]}; to explain: {known[1]})"
    found = "" if first["type"] in ("missing", "json_invalid") else f", found {excerpt(first['input'])}"
    return f"{key}: {first['msg']}{found}"


def rows_of(inputs: Any, model: OpenedModel) -> list[Row]:
    """Return the rows of a request. Raises HTTPException (422) for an invalid text, and for pairs where the
    model was trained on single texts, or the other way round."""
    columns, items = model.text_columns, []
    for item in inputs if isinstance(inputs, list) else [inputs]:
        if not isinstance(item, dict):
            texts = (item,) if isinstance(item, str) else tuple(item)
        elif columns and item.keys() == set(columns):
            # A model that reads several columns as one text takes them by name
            texts = (join_texts([item[name] for name in columns]),)
        elif isinstance(item.get("text"), str) and set(item) <= {"text", "text_pair"}:
            texts = (item["text"],) if item.get("text_pair") is None else (item["text"], item["text_pair"])
        else:
            raise HTTPException(422, f"{SHAPES}; found {excerpt(item)}")
        items.append(texts)
    wanted = len(items[0]) if model.has_pairs is None else 1 + model.has_pairs
    kinds = {1: "single texts", 2: "pairs of texts"}
    for number, texts in enumerate(items, 1):
        if len(texts) != wanted:
            raise HTTPException(
                422,
                f"inputs, text {number}: {kinds[wanted]} are needed, as in the model's training and in all "
                f"inputs, found one of the {kinds[len(texts)]}",
            )
    options = ReadOptions(remove_spaces=model.remove_spaces)
    rows = list(text_rows((texts if wanted == 2 else texts[0] for texts in items), options))
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise HTTPException(422, f"inputs, text {number}: {row.problem}")
    return rows
