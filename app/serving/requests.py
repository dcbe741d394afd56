"""The bodies of requests, and the rows in them."""

from typing import Annotated, Any, Literal

from annotated_types import Len
from pydantic import BaseModel, ConfigDict, Field

from ..data.bad_row import BadRow
from ..data.cells import join_texts
from ..data.rows import Row
from ..errors import InputError, excerpt
from ..prediction.open_model import OpenedModel
from ..prediction.sources import text_rows
from .options import MAX_TEXT, MAX_TEXTS

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Column = Annotated[int | str | None, Field(union_mode="left_to_right")]  # 1 is a number, not the name 1
Item = Text | Annotated[list[Text], Len(1, 2)] | dict[str, Text | None]
SHAPES = (
    f"inputs must be a text, a list of up to {MAX_TEXTS} texts, or a list of pairs [text, text_pair], each "
    f"text of up to {MAX_TEXT:,} characters; an object with text and text_pair is one text or one pair"
)
EXPLAINED_SHAPES = (
    f"inputs must be one text, or one pair [text, text_pair], each text of up to {MAX_TEXT:,} characters, or "
    "an object with text and text_pair; one text or pair is explained at a time"
)
NAMES_OF_COUNTS = {1: "single texts", 2: "pairs of texts"}


class Inputs(BaseModel):
    """Texts or pairs to classify; `top_k` labels of each (none: all); `read` adds what was read of it."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Text | dict[str, Text | None] | Annotated[list[Item], Len(1, MAX_TEXTS)]
    top_k: Annotated[int, Field(ge=1)] | None = None
    read: bool = False


class FileQuery(BaseModel):
    """The query parameters of a file: its `name` with the ending of its format; the columns and the encoding,
    where they are not those of the training."""

    model_config = ConfigDict(extra="forbid")
    name: str
    text_column: Column = None
    text_pair_column: Column = None
    encoding: str | None = None


class Question(BaseModel):
    """A text or a pair to explain, the label (none: each predicted one), and the language."""

    model_config = ConfigDict(extra="forbid", strict=True)
    inputs: Item
    label: str | None = None
    language: Literal["en", "zh"] = "en"


def rows_of(inputs: Any, model: OpenedModel) -> list[Row]:
    """Return the rows of a request. Raises InputError for an invalid text, and for pairs where the model was
    trained on single texts, or the other way round."""
    if not isinstance(inputs, list):
        inputs = [inputs]
    items = [_texts_of(item, model.trained.columns.texts) for item in inputs]
    if model.trained.has_pairs is None:
        num_texts = len(items[0])
    else:
        num_texts = 1 + model.trained.has_pairs
    for number, texts in enumerate(items, 1):
        if len(texts) != num_texts:
            raise InputError(
                f"inputs, text {number}: {NAMES_OF_COUNTS[num_texts]} are needed, as in the model's training "
                f"and in all inputs, found one of the {NAMES_OF_COUNTS[len(texts)]}"
            )
    rows = list(text_rows(items, model.trained.reading.remove_spaces))
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise InputError(f"inputs, text {number}: {row.problem}")
    return rows


def _texts_of(item: Any, text_columns: tuple[str, ...]) -> tuple[str, ...]:
    """Return the text of one item of a request, or the two texts of a pair."""
    if isinstance(item, str):
        return (item,)
    if not isinstance(item, dict):
        return tuple(item)
    if text_columns and item.keys() == set(text_columns):
        # The columns of the training are taken by name; several are read as one text
        return (join_texts([item[name] for name in text_columns]),)
    if isinstance(item.get("text"), str) and set(item) <= {"text", "text_pair"}:
        if item.get("text_pair") is None:
            return (item["text"],)
        return (item["text"], item["text_pair"])
    raise InputError(f"{SHAPES}; found {excerpt(item)}")
