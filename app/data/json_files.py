"""Records of JSON: an array of rows, a row a line, and the exports of labelling tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..errors import InputError, excerpt
from ..runtime.disk import unique_keys
from .bad_row import BadRow
from .encodings import Source

# ValueError is more than JSONDecodeError: an integer may have too many digits
JSON_ERRORS = (ValueError, RecursionError)
# JSON that is no JSON Lines begins so: it is an array of rows, or an object of several lines
JSON_START = re.compile(r'\s*(\[\s*[\[{]|\{\s*\n\s*")')


def json_line_records(lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Yield the value of each line of a file of JSON Lines."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            record = json.loads(line, object_pairs_hook=unique_keys)
        except JSON_ERRORS as error:
            problem = f"not a valid JSON value ({error}): {excerpt(line)}"
            yield number, BadRow(number, f"{problem}; each line must be one object or array")
            continue
        yield number, exported_row(number, record)


def json_array_records(path: Source, lines: Iterator[str]) -> Iterator[tuple[int, Any]]:
    """Yield the elements of a file that is one JSON array; raises InputError for any other file."""
    try:
        rows = json.loads("".join(lines), object_pairs_hook=unique_keys)
    except JSON_ERRORS as error:
        where = path
        if isinstance(error, json.JSONDecodeError):
            where = f"{path}, line {error.lineno}"
        remedy = "fix the file there, or set --data.format jsonl where each line is a value"
        raise InputError(f"{where}: JSON that cannot be read ({error}); {remedy}") from error
    if not isinstance(rows, list):
        rule = f"an array of pairs or of objects is needed, found {excerpt(rows)}"
        remedy = 'write one (pandas: df.to_json(path, orient="records")), or one row a line, as .jsonl'
        raise InputError(f"{path}: {rule}; {remedy}")
    for number, record in enumerate(rows, 1):
        yield number, exported_row(number, record)


def exported_row(number: int, record: Any) -> Any:
    """Return an object of a labelling tool's export as a flat row; any other record as it is."""
    if not isinstance(record, dict) or not isinstance(record.get("annotations"), list):
        return record
    if isinstance(record.get("data"), dict):
        return label_studio_row(number, record)
    if "label" not in record and any(map(_is_label_id, record["annotations"])):
        return BadRow(
            number,
            "the annotations of this export of doccano have the numbers of labels, not their names; export "
            "the project again in a format with the names of labels (JSONL with text and label)",
        )
    return record


def _is_label_id(annotation: Any) -> bool:
    return isinstance(annotation, dict) and isinstance(annotation.get("label"), int)


def label_studio_row(number: int, record: dict) -> Any:
    """Return a task of Label Studio's JSON as an object of its `id`, its `data`, and `label`, a list of the
    choices. Annotations that were cancelled do not count; of several the labels must be the same."""
    choices = []
    for annotation in record["annotations"]:
        if isinstance(annotation, dict) and not annotation.get("was_cancelled"):
            labels = _choices_of(annotation)
            if labels not in choices:
                choices.append(labels)
    if len(choices) > 1:
        both = " and ".join(map(excerpt, choices))
        return BadRow(
            number,
            f"all annotations of a text must have the same labels, found {both}; keep one",
            record,
        )
    labels: list[str] = []
    if choices:
        labels = choices[0]
    return {"id": record.get("id"), **record["data"], "label": labels}


def _choices_of(annotation: dict) -> list[str]:
    labels = []
    for region in annotation.get("result") or []:
        if isinstance(region, dict) and isinstance(region.get("value"), dict):
            labels += region["value"].get("choices") or []
    return sorted(labels)
