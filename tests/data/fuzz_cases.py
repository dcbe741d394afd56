"""Valid data files of every format from a seed, their rows known by construction.

They hold what other readers stumble on: formulas, quotes, zero-width and bidirectional characters, NUL, line
separators. `tests.data.fuzz_damage` makes hostile ones of them.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow
from pyarrow import parquet

from app.data.read import ReadOptions

FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "text")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "gb18030", "cp037")
ENCODINGS += ("utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "utf-32-le")
VISIBLE = ["好", "今天真开心", "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", '=HYPERLINK("http://a","b")', "a", "😀", "𠮷",
           "ﷺ", "e\u0301", '"', "''", "\\", "{}[]", "null", "\ufffd", "#", "1.5", "<b>", "\ue000", "label", "文本"]  # fmt: skip
INVISIBLE = ["\u200b", "\u200d", "\u202e", "\u2066", "\u2069", "\ufeff", "\x00", "\u00ad", " ", "\u3000", "\x0b", "\x0c",
             "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2J", "\x7f"]  # fmt: skip
LABELS = ["正面", "负面", "0", "=1", "a b"]


@dataclass
class Case:
    """One file, how it is read, and what is known of it.

    `rows`, where known by construction: (line, text, label) of each row, text None for a row that must be
    refused. `refused`: the file as a whole must be. `content`: its bytes, None for what is no regular file.
    """

    number: int
    description: str
    path: Path
    options: ReadOptions
    need_label: bool
    content: bytes | None = None
    rows: list[tuple[int, str | None, str | None]] | None = None
    refused: bool = False

    def __str__(self) -> str:
        label = "with labels" if self.need_label else "without labels"
        return f"case {self.number}: {self.description}, {self.path.name[:40]!r}, {label}, {self.options}"


def _text(draw: random.Random, format: str, quoted: bool) -> str | None:
    """Return a text that the format can hold, or None: one that must be refused."""
    if draw.random() < 0.1:
        return None
    pieces = draw.choices(VISIBLE, k=draw.choice([1, 1, 2, 5])) + draw.choices(
        INVISIBLE, k=draw.choice([0, 0, 1, 3])
    )
    if format in ("json", "jsonl", "parquet") or quoted:
        pieces += draw.choices(["\n", "\r", "\r\n", "\t", ","], k=draw.choice([0, 1]))
    draw.shuffle(pieces)
    text = "".join(pieces)
    return f"好{text}" if text.startswith("\ufeff") or not text.strip() else text


def valid_case(number: int, folder: Path, draw: random.Random) -> Case:
    """Return a case whose file is not written yet."""
    format = draw.choice(FORMATS)
    is_table, need_label = format in ("csv", "tsv"), format != "text" and draw.random() < 0.7
    encoding = "utf-8" if format == "parquet" else draw.choice(ENCODINGS)
    quoting = draw.choice(["auto", "auto", "none", "double"]) if is_table else "auto"
    is_quoted = is_table and (quoting == "double" or quoting == "auto" and format == "csv")
    texts = [_text(draw, format, is_quoted) for _ in range(draw.choice([1, 2, 3, 10, 40]))]
    if format == "csv" and not is_quoted:
        texts = [text and text.replace(",", "，") for text in texts]
    labels = [draw.choice(LABELS) for _ in texts]
    # EBCDIC: has no Chinese, and its line feed is the byte 0x25
    if encoding == "cp037":
        texts = [text and "a" + text.encode("cp037", "ignore").decode("cp037") for text in texts]
        labels = [str(len(label)) for label in labels]
    has_header = draw.random() < 0.5 and is_table
    columns = {"text": texts, "label": labels} if need_label else {"text": texts}
    if format == "parquet":
        content, places = parquet_file(draw, columns)
    else:
        text, places = _text_file(draw, columns, format, is_quoted, has_header, encoding)
        mark = draw.choice(["", "\ufeff"]) if encoding in ("utf-8", "utf-16-le", "utf-16-be") else ""
        content = (mark + text).encode(encoding)
    header = draw.choice([None, has_header]) if is_table else None
    # A text may be a usual name of a column, such as 文本
    if is_table and not has_header and (not need_label or (texts[0] or "").strip() in ("文本", "label")):
        header = False
    options = ReadOptions(format, encoding=encoding, quoting=quoting, header=header)
    if need_label and header is False:
        options = replace(options, text_column=0, label_column=1)
    rows = [
        (place, None if text is None else text.strip(), label if need_label else None)
        for place, text, label in zip(places, texts, labels, strict=True)
    ]
    path = folder / f"case{number}.{'txt' if format == 'text' else format}"
    return Case(number, f"{format} in {encoding}", path, options, need_label, content, rows)


def _text_file(
    draw, columns: dict, format: str, quoted: bool, header: bool, encoding: str
) -> tuple[str, list[int]]:
    """Return the content of a file, and the number of each row in it."""
    separator, is_ebcdic = "\t" if format == "tsv" else ",", encoding == "cp037"
    shape = draw.choice(["array", "object"] if "label" in columns else ["string", "array", "object"])
    ascii_only = is_ebcdic or draw.random() < 0.5
    # Texts that must be refused
    empty = "\x00" if is_ebcdic or format == "text" else "\u200b\u202e"

    def cell(value: str) -> str:
        special = any(character in value for character in f'"{separator}\r\n') or not value
        doubled = '"' + value.replace('"', '""') + '"'
        return doubled if quoted and (special or draw.random() < 0.3) else value

    def value_of(row: list[str]) -> str | list | dict:
        return {"string": row[0], "array": row, "object": dict(zip(columns, row, strict=True))}[shape]

    rows = [
        [empty if value is None else value for value in row] for row in zip(*columns.values(), strict=True)
    ]
    if format == "json":
        text = json.dumps(list(map(value_of, rows)), indent=draw.choice([None, 1]), ensure_ascii=ascii_only)
        return text, list(range(1, len(rows) + 1))
    if format == "jsonl":
        records = [json.dumps(value_of(row), ensure_ascii=ascii_only) for row in rows]
    else:
        records = [row[0] if format == "text" else separator.join(map(cell, row)) for row in rows]
    if header:
        records.insert(0, separator.join(columns))
    # Blank lines between them
    end = draw.choice(["\n", "\n", "\r\n"])
    parts, places, line = [], [], 1
    for record in records:
        blank = draw.choice([0, 0, 0, 1, 2])
        parts += [end] * blank + [record, end]
        places.append(line + blank)
        line += blank + len(re.findall("\r\n?|\n", record)) + 1
    if draw.random() < 0.3:
        parts.pop()
    return "".join(parts), places[header:]


def parquet_file(draw: random.Random, columns: dict[str, list]) -> tuple[bytes, list[int]]:
    arrays = {name: pyarrow.array(values, pyarrow.string()) for name, values in columns.items()}
    if draw.random() < 0.5:
        arrays["text"] = arrays["text"].dictionary_encode()
    size = len(columns["text"])
    others = {
        # No date that Python has
        "when": pyarrow.array([1 << 60] * size, pyarrow.timestamp("ms", "Nowhere/Else")),
        "bytes": pyarrow.array([b"\xff"] * size),
        "nested": pyarrow.array([[{"a": [1]}]] * size),
    }
    if "label" in columns:
        arrays |= {name: others[name] for name in draw.sample(list(others), draw.choice([0, 1, 3]))}
    sink, compression = pyarrow.BufferOutputStream(), draw.choice(["none", "snappy", "gzip", "zstd"])
    table, size_of_groups = pyarrow.table(arrays), draw.choice([3, 100])
    parquet.write_table(table, sink, compression=compression, row_group_size=size_of_groups)
    return sink.getvalue().to_pybytes(), list(range(1, size + 1))
