"""The body of a request -> rows to classify, or the reason why it is refused."""

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..data.read import BadRow, ReadOptions
from ..data.rows import Row, join_texts, text_rows
from ..errors import excerpt, nearest, shorten
from ..prediction.open_model import MAX_EVIDENCE
from ..runtime.disk import repeated_key

KEYS = ("inputs", "top_k", "evidence", "read")
WHY_KEYS = ("inputs", "label", "language")
SHAPES = (
    "inputs must be a text, a list of texts, or a list of pairs [text, text_pair]; an object with text and "
    "text_pair is one text or one pair"
)


class Refusal(Exception):
    """A request that is refused: its HTTP status, the kind of error, and a sentence that says why."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


@dataclass(frozen=True)
class Limits:
    """The most of one request: bytes of its body, texts, and characters of a text."""

    body_bytes: int = 1 << 20
    texts: int = 128
    characters: int = 100_000


class Request(NamedTuple):
    """What a request asks for: its rows, whether they came as a list, how many labels a row gets (None: all),
    how many training rows (None: none), and whether the answer says what was read of each text."""

    rows: list[Row]
    is_list: bool
    top_k: int | None
    evidence: int | None = None
    read: bool = False


class Question(NamedTuple):
    """A request for an explanation: row, label (None: each predicted one), language."""

    row: Row
    label: str | None
    language: str


def parse_request(
    body: bytes, limits: Limits, has_pairs: bool | None, remove_spaces: bool, columns: list[str] | None = None
) -> Request:
    """Return what a body asks for; raises Refusal 413 for too much, 422 for what is no request."""
    values = _parse_object(body, KEYS)
    inputs, top_k, read = values["inputs"], values.get("top_k"), values.get("read", False)
    if top_k is not None and (isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1):
        raise _wrong(f"top_k must be a whole number of at least 1, found {excerpt(top_k)}")
    evidence = values.get("evidence")
    if evidence is not None and not (type(evidence) is int and 1 <= evidence <= MAX_EVIDENCE):
        raise _wrong(f"evidence must be a whole number from 1 to {MAX_EVIDENCE}, found {excerpt(evidence)}")
    if not isinstance(read, bool):
        raise _wrong(f"read must be true or false, found {excerpt(read)}")
    is_list = isinstance(inputs, list)
    items = inputs if is_list else [inputs]
    if not items:
        raise _wrong(f"inputs is an empty list; {SHAPES}")
    if len(items) > limits.texts:
        raise Refusal(
            413,
            "validation",
            f"a request may have {limits.texts:,} texts, found {len(items):,}; send several requests",
        )
    rows = _rows([_texts(item, columns) for item in items], limits, has_pairs, remove_spaces)
    return Request(rows, is_list, top_k, evidence, read)


def parse_question(
    body: bytes, limits: Limits, has_pairs: bool | None, remove_spaces: bool, columns: list[str] | None = None
) -> Question:
    """Return what a body wants to have explained; raises as `parse_request` does."""
    values = _parse_object(body, WHY_KEYS)
    label, language = values.get("label"), values.get("language", "en")
    if not (label is None or isinstance(label, str)):
        raise _wrong(f"label must be the name of a label, found {excerpt(label)}")
    if language not in ("en", "zh"):
        raise _wrong(f"language must be en or zh, found {excerpt(language)}")
    [row] = _rows([_texts(values["inputs"], columns)], limits, has_pairs, remove_spaces)
    return Question(row, label, language)


def _wrong(message: str) -> Refusal:
    return Refusal(422, "validation", message)


def _parse_object(body: bytes, keys: tuple[str, ...]) -> dict:
    """Return the object of a body that has inputs and no other than the known keys; raises Refusal."""
    values = _parse_json(body)
    if not isinstance(values, dict):
        raise _wrong(
            f'the body must be a JSON object like {{"inputs": "今天真开心"}}, found {excerpt(values)}'
        )
    unknown = [key for key in values if key not in keys]
    if unknown:
        raise _wrong(
            f"there is no key {excerpt(unknown[0])}{nearest(unknown[0], keys)} (known: {', '.join(keys)})"
        )
    if "inputs" not in values:
        raise _wrong(f"the key inputs is missing; {SHAPES}")
    return values


def _parse_json(body: bytes) -> Any:
    try:
        return json.loads(body.decode("utf-8"), object_pairs_hook=_json_object)
    except UnicodeDecodeError as error:
        raise _wrong(
            f"the body must be UTF-8, found byte 0x{body[error.start]:02x} at {error.start:,}"
        ) from error
    except (ValueError, RecursionError) as error:
        # ValueError also: an integer of thousands of digits
        raise _wrong(f"the body is not valid JSON: {shorten(str(error), 100)}") from error


def _json_object(pairs: list[tuple[str, Any]]) -> dict:
    """Return a JSON object; raises Refusal for a key that it has twice."""
    if (key := repeated_key(pairs)) is not None:
        raise _wrong(f"each key of an object may be there once, found {excerpt(key)} twice; remove one")
    return dict(pairs)


def _texts(item: Any, columns: list[str] | None) -> tuple[str, ...]:
    """Return the one or two texts of an element of `inputs`; of a model of several `columns` an object may
    have their texts by name."""
    if isinstance(item, str):
        return (item,)
    if columns and isinstance(item, dict) and item.keys() == set(columns):
        text = join_texts([item[name] for name in columns])
        item = [text]
    if isinstance(item, dict) and "text" in item and set(item) <= {"text", "text_pair"}:
        item = [item["text"]] if item.get("text_pair") is None else [item["text"], item["text_pair"]]
    if isinstance(item, list) and len(item) in (1, 2) and all(isinstance(text, str) for text in item):
        return tuple(item)
    raise _wrong(f"{SHAPES}; found {excerpt(item)}")


def _rows(
    texts: list[tuple[str, ...]], limits: Limits, has_pairs: bool | None, remove_spaces: bool
) -> list[Row]:
    """Return valid rows; raises Refusal for an invalid row, or another kind of text than in training."""
    wanted = len(texts[0]) if has_pairs is None else 1 + has_pairs
    kinds = {1: "single texts", 2: "pairs of texts"}
    for number, item in enumerate(texts, 1):
        if len(item) != wanted:
            why = (
                "all inputs of a request are of one kind"
                if has_pairs is None
                else "the model was trained on them"
            )
            raise _wrong(
                f"inputs, text {number}: {kinds[wanted]} are needed, {why}; found one of the "
                f"{kinds[len(item)]}"
            )
        longest = max(map(len, item))
        if longest > limits.characters:
            raise Refusal(
                413,
                "validation",
                f"inputs, text {number}: a text may have {limits.characters:,} characters, found "
                f"{longest:,}; shorten it",
            )
    rows = list(
        text_rows(
            (item if wanted == 2 else item[0] for item in texts), ReadOptions(remove_spaces=remove_spaces)
        )
    )
    for number, row in enumerate(rows, 1):
        if isinstance(row, BadRow):
            raise _wrong(f"inputs, text {number}: {row.problem}")
    return rows
