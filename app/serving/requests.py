"""What requests look like, and their texts as rows."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException

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
    items = [_texts(item, model.text_columns) for item in (inputs if isinstance(inputs, list) else [inputs])]
    wanted = len(items[0]) if model.has_pairs is None else 1 + model.has_pairs
    kinds = {1: "single texts", 2: "pairs of texts"}
    for number, item in enumerate(items, 1):
        if len(item) != wanted:
            raise HTTPException(
                422,
                f"inputs, text {number}: {kinds[wanted]} are needed, as in the model's training and in all "
                f"inputs, found one of the {kinds[len(item)]}",
            )
    options = ReadOptions(remove_spaces=model.remove_spaces)
    rows = list(text_rows((item if wanted == 2 else item[0] for item in items), options))
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise HTTPException(422, f"inputs, text {number}: {row.problem}")
    return rows


def _texts(item: str | list | dict, columns: list[str] | None) -> tuple[str, ...]:
    """Return the one or two texts of an element of `inputs`. For a model that reads several `columns` as one
    text, an object may have their texts by name."""
    if not isinstance(item, dict):
        return (item,) if isinstance(item, str) else tuple(item)
    if columns and item.keys() == set(columns):
        return (join_texts([item[name] for name in columns]),)
    if isinstance(item.get("text"), str) and set(item) <= {"text", "text_pair"}:
        return (item["text"],) if item.get("text_pair") is None else (item["text"], item["text_pair"])
    raise HTTPException(422, f"{SHAPES}; found {excerpt(item)}")
