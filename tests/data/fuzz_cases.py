"""Valid data files of every format from a seed, their rows known by construction.

They hold what other readers stumble on: formulas, quotes, zero-width and bidirectional characters, NUL, line
separators. `tests.data.fuzz_damage` makes hostile ones of them.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow
from pyarrow import parquet

from app.data.read import ReadOptions

FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "text")
ENCODINGS = (
    "utf-8",
    "utf-8",
    "utf-8",
    "gb18030",
    "utf-16",
    "utf-16-le",
    "utf-16-be",
    "utf-32",
    "utf-32-le",
    "cp037",
)
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
    need_label = format != "text" and draw.random() < 0.7
    encoding = "utf-8" if format == "parquet" else draw.choice(ENCODINGS)
    quoting = draw.choice(["auto", "auto", "none", "double"]) if format in ("csv", "tsv") else "auto"
    is_quoted = format in ("csv", "tsv") and (quoting == "double" or quoting == "auto" and format == "csv")
    texts = [_text(draw, format, is_quoted) for _ in range(draw.choice([1, 2, 3, 10, 40]))]
    if format == "csv" and not is_quoted:
        texts = [text and text.replace(",", "，") for text in texts]
    labels = [draw.choice(LABELS) for _ in texts]
    # EBCDIC: has no Chinese, and its line feed is the byte 0x25
    if encoding == "cp037":
        texts = [text and "a" + text.encode("cp037", "ignore").decode("cp037") for text in texts]
        labels = [str(len(label)) for label in labels]
    writer = {"parquet": parquet_file, "json": _json, "jsonl": _json_lines, "text": _plain}.get(
        format, _delimited
    )
    header = draw.random() < 0.5 and format in ("csv", "tsv")
    content, places = writer(draw, texts, labels if need_label else None, format, is_quoted, header, encoding)
    if format != "parquet":
        mark = draw.choice(["", "\ufeff"]) if encoding in ("utf-8", "utf-16-le", "utf-16-be") else ""
        content = (mark + content).encode(encoding)
    header_option = draw.choice([None, header]) if format in ("csv", "tsv") else None
    # A text may be a usual name of a column, such as 文本
    if header_option is None and not need_label and not header:
        header_option = False if format in ("csv", "tsv") else None
    columns = (
        {"text_column": 0, "label_column": 1}
        if need_label and header_option is not None and not header
        else {}
    )
    options = ReadOptions(format, encoding=encoding, quoting=quoting, header=header_option, **columns)
    if need_label and header_option is None and not header and (texts[0] or "").strip() in ("文本", "label"):
        options = ReadOptions(format, encoding=encoding, quoting=quoting, header=False)
    rows = [
        (place, None if text is None else text.strip(), label if need_label else None)
        for place, text, label in zip(places, texts, labels, strict=True)
    ]
    suffix = "txt" if format == "text" else format
    description = f"{format} in {encoding}"
    return Case(number, description, folder / f"case{number}.{suffix}", options, need_label, content, rows)


def _lines(draw: random.Random, records: list[str], header: str | None) -> tuple[str, list[int]]:
    """Put records into lines, blank ones between them; return the text and the line of each record."""
    end = draw.choice(["\n", "\n", "\r\n"])
    parts, places, line = [], [], 1
    for record in ([header] if header is not None else []) + records:
        blank = draw.choice([0, 0, 0, 1, 2])
        parts += [end] * blank + [record, end]
        places.append(line + blank)
        line += blank + record.count("\n") + 1
    if draw.random() < 0.3:
        parts.pop()
    return "".join(parts), places[header is not None :]


def _delimited(draw, texts, labels, format, quoted, header, encoding) -> tuple[str, list[int]]:
    separator = "," if format == "csv" else "\t"

    def cell(value: str) -> str:
        if not quoted:
            return value
        special = any(character in value for character in f'"{separator}\r\n') or not value
        return '"' + value.replace('"', '""') + '"' if special or draw.random() < 0.3 else value

    def record(number: int) -> str:
        text = (
            texts[number] if texts[number] is not None else "\x00" if encoding == "cp037" else "\u200b\u202e"
        )
        return separator.join(map(cell, [text, labels[number]] if labels else [text]))

    names = separator.join(["text", "label"] if labels else ["text"])
    return _lines(draw, [record(number) for number in range(len(texts))], names if header else None)


def _plain(draw, texts, labels, format, quoted, header, encoding) -> tuple[str, list[int]]:
    return _lines(draw, ["\x00" if text is None else text for text in texts], None)


def _records(draw, texts, labels) -> list:
    shape = draw.choice(["array", "object"] if labels else ["string", "array", "object"])
    texts = ["\u200b" if text is None else text for text in texts]
    if shape == "string":
        return texts
    if shape == "array":
        return [[text, labels[i]] if labels else [text] for i, text in enumerate(texts)]
    return [{"text": text} | ({"label": labels[i]} if labels else {}) for i, text in enumerate(texts)]


def _json(draw, texts, labels, format, quoted, header, encoding) -> tuple[str, list[int]]:
    indent = draw.choice([None, 1])
    ascii_only = encoding == "cp037" or draw.random() < 0.5
    return json.dumps(_records(draw, texts, labels), indent=indent, ensure_ascii=ascii_only), list(
        range(1, len(texts) + 1)
    )


def _json_lines(draw, texts, labels, format, quoted, header, encoding) -> tuple[str, list[int]]:
    ascii_only = encoding == "cp037" or draw.random() < 0.5
    return _lines(
        draw, [json.dumps(record, ensure_ascii=ascii_only) for record in _records(draw, texts, labels)], None
    )


def parquet_file(draw, texts, labels, format, quoted, header, encoding) -> tuple[bytes, list[int]]:
    columns = {"text": pyarrow.array(texts, pyarrow.string())}
    if labels:
        columns["label"] = pyarrow.array(labels, pyarrow.string())
    if draw.random() < 0.5:
        columns["text"] = columns["text"].dictionary_encode()
    size = len(texts)
    others = {
        # No date that Python has
        "when": pyarrow.array([1 << 60] * size, pyarrow.timestamp("ms", "Nowhere/Else")),
        "bytes": pyarrow.array([b"\xff"] * size),
        "nested": pyarrow.array([[{"a": [1]}]] * size),
    }
    if labels:
        columns |= {name: others[name] for name in draw.sample(list(others), draw.choice([0, 1, 3]))}
    sink = pyarrow.BufferOutputStream()
    compression = draw.choice(["none", "snappy", "gzip", "zstd"])
    parquet.write_table(
        pyarrow.table(columns), sink, compression=compression, row_group_size=draw.choice([3, 100])
    )
    return sink.getvalue().to_pybytes(), list(range(1, size + 1))
