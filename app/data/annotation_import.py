"""What people decided in Label Studio or doccano -> a file of fixes for data.relabel."""

import csv
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config.file_formats import FORMATS
from ..errors import InputError, excerpt
from .annotation_export import label_list, new_file
from .formats import read_records
from .label_cells import encode_labels
from .readers import BadRow, ReadOptions
from .text_files import read_start

FIX_COLUMNS = ("text_hash", "text", "text_pair", "given", "label")


@dataclass
class Imported:
    """What an export of a tool had: `changed` labels, `confirmed` ones, `open` rows without a decision, and
    rows with `several` different ones.
    """

    changed: int = 0
    confirmed: int = 0
    open: int = 0
    several: int = 0
    fixes: list[dict] = field(default_factory=list)


def import_fixes(source: Path, target: Path) -> Imported:
    """Write the decisions in an export of Label Studio (JSON, JSON-MIN) or doccano (JSONL) as fixes.

    A label that is the given one is no fix; rows with several different decisions are left out. Raises
    InputError, with file and place, for what is neither, and for a target that exists.
    """
    imported = Imported()
    for where, about, decisions in read_export(source):
        _add(imported, about, decisions, where)
    with new_file(target) as file:
        writer = csv.DictWriter(file, FIX_COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(imported.fixes)
    return imported


def read_export(source: Path) -> Iterator[tuple[str, dict[str, str], list[list[str]]]]:
    """Yield of each row of an export its place, the fields by which it is found again, and the labels that
    each person has chosen for it; raises InputError as `import_fixes`."""
    start = read_start(source, 1 << 10).decode(errors="replace").lstrip("\ufeff \t\r\n")[:1]
    format = {"[": "json", "{": "jsonl"}.get(start)
    if format is None:
        raise InputError(
            f"{source}: an export of Label Studio (an array in JSON) or doccano (an object a line) is "
            f"needed, found a file that begins with {excerpt(start)}"
        )
    for place, record in read_records(source, ReadOptions(), format):
        where = f"{source}, {FORMATS[format].row_unit} {place}"
        if isinstance(record, BadRow):
            raise InputError(f"{where}: {record.problem}")
        if not isinstance(record, dict):
            raise InputError(f"{where}: an object is needed, found {excerpt(record)}")
        try:
            decisions = list(_decisions(record))
        except (AttributeError, LookupError, TypeError) as error:
            raise InputError(
                f"{where}: labels must be names, as in an export of Label Studio or doccano, found "
                f"{excerpt(record)}; export with the names of the labels, from doccano as JSONL"
            ) from error
        yield where, _about(record), decisions


def _add(imported: Imported, about: dict[str, str], decisions: list[list[str]], where: str) -> None:
    given = about.get("given")
    decided = {label for labels in decisions for label in labels}
    if given is not None and (sets := label_list(given)) is not None:
        given, decided = encode_labels(sets), {encode_labels(labels) for labels in decisions}
    if not decided:
        imported.open += 1
    elif len(decided) > 1:
        imported.several += 1
    elif decided == {given}:
        imported.confirmed += 1
    else:
        if not about.get("text_hash") and not about.get("text"):
            raise InputError(
                f"{where}: a decided row needs its text_hash or text; export with the data of the tasks"
            )
        imported.changed += 1
        imported.fixes.append(about | {"label": decided.pop()})


def _about(record: dict) -> dict[str, str]:
    """Return the fields by which a row is found again, wherever a tool puts them."""
    inner = [record[name] for name in ("data", "meta", "metadata") if isinstance(record.get(name), dict)]
    fields = {}
    for values in (*inner, record):
        fields |= {name: values[name] for name in FIX_COLUMNS[:-1] if isinstance(values.get(name), str)}
    # Some versions of doccano
    if "text" not in fields and isinstance(record.get("data"), str):
        fields["text"] = record["data"]
    return fields


def _decisions(record: dict) -> Iterator[list[str]]:
    """Yield the labels that each person chose for a row; only an annotation can say that it has none."""
    if "annotations" in record:
        for annotation in record["annotations"]:
            results = annotation["result"]
            if not annotation.get("was_cancelled"):
                values = [result.get("value") or {} for result in results]
                yield [name for value in values for name in _names(value.get("choices"))]
        return
    if names := _names(record.get("label", record.get("labels"))):
        yield names


def _names(value: Any) -> list[str]:
    if isinstance(value, dict):
        value = value["choices"]
    names = [value] if isinstance(value, str) else value or []
    return [name for name in names if name.strip()]
