"""Thousands of seeded hostile files against every reader; one case alone: python -m tests.data.test_fuzz 4711

Case N is always the same file: valid, damaged, or no file of rows at all. The rows of valid ones are known by
construction. A reader gives rows or an InputError, in bounded time, and drops no row without a message.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import os
import random
import re
import resource
import sys
import tempfile
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.config.command_line import load_config
from app.data.bad_row import BadRow
from app.data.build_table import build_table
from app.data.cache import call_apart
from app.data.encodings import Stream, file_encoding
from app.data.read import ReadOptions, recognised
from app.data.row_reader import open_rows
from app.data.rows import Row
from app.data.table import open_folders
from app.errors import InputError
from app.prediction.sources import open_file, options_of_run
from app.prediction.trained_model import TrainedModel

CONFIGS = sorted((Path(__file__).resolve().parents[2] / "configs").glob("*.yaml"))
FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "text")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "gb18030", "cp037")
ENCODINGS += ("utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "utf-32-le")
VISIBLE = ["好", "今天真开心", "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", '=HYPERLINK("http://a","b")', "a", "😀", "𠮷",
           "ﷺ", "e\u0301", '"', "''", "\\", "{}[]", "null", "\ufffd", "#", "1.5", "<b>", "\ue000", "label", "文本"]  # fmt: skip
INVISIBLE = ["\u200b", "\u200d", "\u202e", "\u2066", "\u2069", "\ufeff", "\x00", "\u00ad", " ", "\u3000", "\x0b", "\x0c",
             "\x1c", "\x85", "\u2028", "\u2029", "\x1b[2J", "\x7f"]  # fmt: skip
LABELS = ["正面", "负面", "0", "=1", "a b"]
NOISE = [b'"', b"\n", b"\r", b"\r\n", b"\t", b",", b"\0", b"[", b"]", b"{", b"}", b"\\", b"\\ud83d", b"1e999", b"null",
         b"9" * 30, b"9" * 5000, b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xff\xfe",
         b"\xba\xc3", b"\xe2\x80\xa8", b"\x1a", b"=1+1", "\u202e".encode(), "\u200b".encode()]  # fmt: skip
UNITS = ["好", ",", "\t", '"', '"",', "[", '{"a":', "\u200b", "\x00", "a\r", "1", "\\ud800", " ", "=1+1,"]
LONG, LONG_EVERY = 10_000_000, 400  # bytes of a long line, and one case of so many has it
MAX_MESSAGE = 3000  # characters
MEMORY = 8 << 30  # bytes that the process may map
LINE_END = r"\r\n?|\n"


@dataclass
class Case:
    """One file, how it is read, and what is known of it by construction. `rows`: (text, label) of each row,
    both None for one that must be refused. `content` is None for what is no regular file."""

    number: int
    description: str
    path: Path
    options: ReadOptions
    need_label: bool
    content: bytes | None = field(default=None, repr=False)
    rows: list[tuple[str | None, str | None]] | None = field(default=None, repr=False)
    refused: bool = False


def text_of(draw: random.Random, format: str, quoted: bool) -> str | None:
    """Return a text that the format can hold, or None: one that must be refused."""
    if draw.random() < 0.1:
        return None
    pieces = draw.choices(VISIBLE, k=draw.choice([1, 1, 2, 5]))
    pieces += draw.choices(INVISIBLE, k=draw.choice([0, 0, 1, 3]))
    if format in ("json", "jsonl", "parquet") or quoted:
        pieces += draw.choices(["\n", "\r", "\r\n", "\t", ","], k=draw.choice([0, 1]))
    draw.shuffle(pieces)
    text = "".join(pieces)
    return f"好{text}" if text.startswith("\ufeff") or not text.strip() else text


def valid_case(number: int, folder: Path, draw: random.Random) -> Case:
    """Return a case whose file is not written yet."""
    format = draw.choice(FORMATS)
    is_table = format in ("csv", "tsv")
    need_label = format != "text" and draw.random() < 0.7
    encoding = "utf-8" if format == "parquet" else draw.choice(ENCODINGS)
    quoting = draw.choice(["auto", "auto", "never", "double"]) if is_table else "auto"
    is_quoted = is_table and (quoting == "double" or quoting == "auto" and format == "csv")
    texts = [text_of(draw, format, is_quoted) for _ in range(draw.choice([1, 2, 3, 10, 40]))]
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
        content = parquet_file(draw, columns)
    else:
        text = text_file(draw, columns, format, is_quoted, has_header, encoding)
        mark = draw.choice(["", "\ufeff"]) if encoding in ("utf-8", "utf-16-le", "utf-16-be") else ""
        content = (mark + text).encode(encoding)
    header = draw.choice([None, has_header]) if is_table else None
    # A text may be a usual name of a column, such as 文本
    if is_table and not has_header and (not need_label or (texts[0] or "").strip() in ("文本", "label")):
        header = False
    options = ReadOptions(format, encoding=encoding, quoting=quoting, header=header)
    if need_label and header is False:
        options = replace(options, text_column=0, label_column=1)
    labels = labels if need_label else [None] * len(texts)
    rows = [
        (text.strip(), label) if text else (None, None) for text, label in zip(texts, labels, strict=True)
    ]
    path = folder / f"case{number}.{'txt' if format == 'text' else format}"
    return Case(number, f"{format} in {encoding}", path, options, need_label, content, rows)


def text_file(draw, columns: dict, format: str, quoted: bool, header: bool, encoding: str) -> str:
    separator = "\t" if format == "tsv" else ","
    is_ebcdic = encoding == "cp037"
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

    rows = []
    for values in zip(*columns.values(), strict=True):
        rows.append([empty if value is None else value for value in values])
    if format == "json":
        return json.dumps(list(map(value_of, rows)), indent=draw.choice([None, 1]), ensure_ascii=ascii_only)
    if format == "jsonl":
        records = [json.dumps(value_of(row), ensure_ascii=ascii_only) for row in rows]
    else:
        records = [row[0] if format == "text" else separator.join(map(cell, row)) for row in rows]
    if header:
        records.insert(0, separator.join(columns))
    end = draw.choice(["\n", "\n", "\r\n"])
    # Blank lines between them
    text = "".join(end * draw.choice([0, 0, 0, 1, 2]) + record + end for record in records)
    return text.removesuffix(end) if draw.random() < 0.3 else text


def parquet_file(draw: random.Random, columns: dict[str, list]) -> bytes:
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
    sink = pyarrow.BufferOutputStream()
    compression = draw.choice(["none", "snappy", "gzip", "zstd"])
    table = pyarrow.table(arrays)
    size_of_groups = draw.choice([3, 100])
    parquet.write_table(table, sink, compression=compression, row_group_size=size_of_groups)
    return sink.getvalue().to_pybytes()


def make_case(number: int, folder: Path) -> Case:
    """Write the file of case `number` into `folder`."""
    draw = random.Random(number)
    case = valid_case(number, folder, draw)
    name = draw.choices(list(DAMAGES), [weight for weight, _ in DAMAGES.values()])[0]
    name, damage = ("long line", long_line) if number % LONG_EVERY == 0 else (name, DAMAGES[name][1])
    case.description += f", {name}"
    if (content := damage(case, draw)) is not None:
        case.content = content.encode() if isinstance(content, str) else content
        case.rows = None
    if case.content is not None and not case.path.exists():
        case.path.write_bytes(case.content)
    return case


def noise(case: Case, draw: random.Random) -> bytes:
    content = case.content
    for _ in range(draw.randint(1, 5)):
        place = draw.randrange(len(content) + 1)
        content = content[:place] + draw.choice(NOISE) + content[place + draw.choice([0, 0, 1, 4]) :]
    return content


def flipped_bits(case: Case, draw: random.Random) -> bytes:
    content = bytearray(case.content)
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(content)


def mixed_encodings(case: Case, draw: random.Random) -> bytes:
    encoding = draw.choice(["gb18030", "utf-16-le", "big5"])
    row = "好坏\t1".encode(encoding)
    end = "正".encode(encoding)
    return b"\n".join(draw.choice([line, row, line + end]) for line in case.content.split(b"\n"))


def another_encoding(case: Case, draw: random.Random) -> bytes:
    encoding = draw.choice([*ENCODINGS, "utf-7", "ascii", "latin-1", "shift_jis", "idna", "punycode", "unicode_escape",
                            "base64", "hz", "iso2022_jp", "no such", "utf_8_sig", "big5hkscs", "\0"])  # fmt: skip
    case.options = ReadOptions(case.options.format, encoding=encoding, quoting=case.options.quoting)
    return case.content


def other_options(case: Case, draw: random.Random) -> bytes:
    column = [None, 0, 1, -1, 99, "text", "label", "no such", "", "\ud800"]
    case.options = ReadOptions(
        draw.choice([case.options.format, *FORMATS[:4]]),
        text_column=draw.choice(column),
        text_pair_column=draw.choice([None, None, *column]),
        label_column=draw.choice(column),
        header=draw.choice([None, True, False]),
        encoding=case.options.encoding,
        quoting=draw.choice(["auto", "never", "double"]),
        remove_spaces=draw.random() < 0.5,
    )
    return case.content


def long_line(case: Case, draw: random.Random) -> str:
    unit = draw.choice(UNITS)
    head = draw.choice(["", '["', '[["', '{"text": "', "好,1\n", "好\t1\n", '"'])
    # Where a carriage return ends a line, these are rows: fewer are enough
    size = LONG // 20 if "\r" in unit else LONG
    content = head + unit * (size // len(unit.encode())) + draw.choice(["", "\n", '"]\n'])
    case.options = ReadOptions(draw.choice([name for name in FORMATS if name != "parquet"]))
    return content


def deep_json(case: Case, draw: random.Random) -> str:
    depth = draw.choice([50, 500, 900, 10_000, draw.randrange(930, 1000), draw.randrange(930, 1000)])
    opened, closed = draw.choice([("[", "]"), ('{"a":', "}"), ('{"text":', "}"), ('[{"a":[', "]}]")])
    deep = opened * depth + draw.choice(["1", '"好"', ""]) + draw.choice([closed * depth, ""])
    shapes = [deep, f'["好", {deep}]', f'[{deep}, "好"]', f'{{"text": {deep}, "label": 1}}']
    rows = ['["好", 1]', draw.choice(shapes)]
    rows = draw.choice([rows, rows[::-1], rows[1:]])
    case.options = ReadOptions("jsonl" if draw.random() < 0.5 else "json")
    return "\n".join(rows) if case.options.format == "jsonl" else f"[{', '.join(rows)}]"


def packed(case: Case, draw: random.Random) -> bytes:
    magic = [lambda data: b"PK\x03\x04" + data, lambda data: b"\x28\xb5\x2f\xfd" + data]
    pack = draw.choice([gzip.compress, bz2.compress, lzma.compress, *magic])
    case.options = ReadOptions(case.options.format)
    case.refused = True
    return pack(case.content)


def link(case: Case, draw: random.Random) -> None:
    target = case.path.with_name(f"target{case.number}")
    target.write_bytes(case.content)
    case.path.symlink_to(target)


def no_regular_file(case: Case, draw: random.Random) -> None:
    path = case.path
    pipe = case.path.with_name(f"pipe{case.number}")
    os.mkfifo(pipe)
    targets = {"link to a pipe": pipe, "device": "/dev/null", "endless device": "/dev/zero", "loop": path}
    targets["dangling link"] = path.with_name("nowhere")
    names = {"missing": path, "pipe": pipe, "long name": path.with_name("n" * 300)}
    names["NUL in the name"] = path.with_name("a\0b")
    target = draw.choice([*targets, *names, "directory"])
    if target == "directory":
        path.mkdir()
    elif target in targets:
        path.symlink_to(targets[target])
    case.path = names.get(target, path)
    case.description += f": {target}"
    case.content = None
    case.rows = None
    case.refused = True


# The weight of each, and what returns the new content of the file, or None if the rows stay
DAMAGES: dict[str, tuple[int, Callable[[Case, random.Random], bytes | str | None]]] = {
    "nothing": (20, lambda case, draw: None),
    "cut short": (10, lambda case, draw: case.content[: draw.randrange(len(case.content))]),
    "noise": (14, noise),
    "flipped bits": (10, flipped_bits),
    "random bytes": (5, lambda case, draw: draw.randbytes(draw.choice([1, 2, 3, 4, 9, 100, 3000]))),
    "mixed encodings": (5, mixed_encodings),
    "another encoding": (6, another_encoding),
    "other options": (8, other_options),
    "deep json": (3, deep_json),
    "packed": (2, packed),
    "link": (2, link),
    "no regular file": (4, no_regular_file),
}


def check(case: Case, folder: Path) -> None:
    """Read one case in every way there is; raises AssertionError, or what a reader should not have raised."""

    def read(source: Stream | str, **changes: Any) -> list[Row | BadRow]:
        return list(open_rows(source, replace(case.options, **changes), case.need_label).rows())

    # A stream is not looked at for its encoding
    with suppress(InputError):
        case.options = replace(case.options, encoding=file_encoding(case.path, case.options.encoding))
    rows, message = attempt(case, lambda: read(str(case.path)))
    if (case.content or b"").startswith(codecs.BOM_UTF32_LE):
        # In UTF-16 these bytes are the mark before a NUL
        assert message is not None, "UTF-32 was read"
        return
    if message is None:
        assert not case.refused, f"to be refused, but {len(rows)} rows were read"
        check_rows(case, rows)
    else:
        assert case.rows is None, f"valid, but refused: {message}"
    if case.content is None:
        return
    # A stream has no labels, and is not looked at for quotes around its fields
    is_read = message is None or "byte order mark" not in message and "or later" not in message
    is_stream = case.options.format != "parquet" and not case.need_label and is_read
    if is_stream and "deep" not in case.description:
        stream = Stream(str(case.path), io.BufferedReader(io.BytesIO(case.content)))
        quoting = case.options.quoting
        with suppress(InputError):
            quoting = recognised(case.path, case.options).quoting
        as_stream = attempt(case, lambda: read(stream, quoting=quoting))
        assert as_stream == (rows, message), "a stream gives other rows"
    if message is None:
        check_prediction_source(case)
    if case.need_label:
        check_table(case, rows, folder)


def attempt(case: Case, action: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return what an action returns, or the message of its InputError, which must be short."""
    try:
        return action(), None
    except InputError as error:
        message = str(error)
    paths = message.count(str(case.path)) * len(str(case.path))
    assert 0 < len(message) - paths < MAX_MESSAGE, f"a message of {len(message):,} characters"
    return None, message


def check_rows(case: Case, rows: list[Row | BadRow]) -> None:
    for row in rows:
        # What is read can be written
        "".join(value for value in row[1:] if isinstance(value, str)).encode()
        assert 0 < len(row.problem) < MAX_MESSAGE if isinstance(row, BadRow) else row.text
    if case.rows is not None:
        read = [(None, None) if isinstance(row, BadRow) else (row.text, row.label) for row in rows]
        assert read == case.rows
    if (expected := independent_places(case, rows)) is not None:
        headers = {None: (0, 1), True: (1,), False: (0,)}[case.options.header]
        headers = headers if case.options.format in ("csv", "tsv") else (0,)
        places = [row.line for row in rows]
        assert places in [expected[count:] for count in headers], f"expected {expected[:9]}"


def independent_places(case: Case, rows: list[Row | BadRow]) -> list[int] | None:
    """Return the numbers that rows must have, header included; None where that is undefined."""
    format = case.options.format
    encoding = case.options.encoding
    if format == "parquet":
        with case.path.open("rb") as file:
            return list(range(1, parquet.ParquetFile(file).metadata.num_rows + 1))
    if "\n".encode(encoding) == b"\n":
        # Line by line: a bad byte must not include the line feed after it
        text = "\n".join(line.decode(encoding, "surrogateescape") for line in case.content.split(b"\n"))
    else:
        text = case.content.decode(encoding, "surrogatepass")
    text = text.removeprefix("\ufeff")
    if format == "json":
        return list(range(1, len(json.loads(text)) + 1))
    lines = re.split(LINE_END, text)
    if format in ("text", "jsonl"):
        return [number for number, line in enumerate(lines, 1) if line.strip()]
    if case.options.quoting == "never" or (format == "tsv" and case.options.quoting == "auto"):
        return [number for number, line in enumerate(lines, 1) if line.strip(" ")]
    if any(isinstance(row, BadRow) and re.search("CSV|broken", row.problem) for row in rows):
        # What a broken record takes in is the reader's to say
        return None
    return quoted_places(text, "," if format == "csv" else "\t")


def quoted_places(text: str, separator: str) -> list[int]:
    """Return the line on which each record of quoted text begins that is not blank."""
    cell = rf'(?:"[^"]*(?:""[^"]*)*"|(?!")[^{separator}\r\n]*)'
    record = re.compile(rf"({cell}(?:{separator}{cell})*)(?:{LINE_END}|\Z)")
    places = []
    line = 1
    position = 0
    while position < len(text):
        match = record.match(text, position)
        assert match, f"quotes that do not pair in line {line}"
        if match[1]:
            places.append(line)
        line += len(re.findall(LINE_END, match[0]))
        position = match.end()
    return places


def check_prediction_source(case: Case) -> None:
    """predict.py reads the file with the same readers, without labels; each row is counted as good or bad."""
    untrained = TrainedModel(case.path.parent)
    source, message = attempt(case, lambda: open_file(str(case.path), untrained, asdict(case.options)))
    if message is None:
        source, message = attempt(case, lambda: source.scanned("skip"))
    if message is None:
        count = source.scan.num_good
        assert count == sum(1 for _ in source.rows("skip"))
        if not case.need_label:
            # Without labels, which column has them is not asked either
            options = options_of_run(case.path, untrained, asdict(case.options))
            assert source.scan.num_rows == len(list(open_rows(case.path, options, need_label=False).rows()))


def check_table(case: Case, rows: list[Row | BadRow] | None, folder: Path) -> None:
    """The table on disk has the good rows, and counts the bad ones."""
    target = folder / "table"
    names = LABELS if case.number % 2 else None
    target.mkdir()
    good = [row.text for row in rows or [] if isinstance(row, Row)]
    _, message = attempt(
        case,
        lambda: build_table(target, str(case.path), case.options, skip_bad_rows=True, label_names=names),
    )
    if message is not None:
        is_known = not good or names or "deep" in case.description or "whether this is a header" in message
        assert is_known, f"rows were read, but no table made of them: {message}"
        return
    table = open_folders([target])
    assert table.num_rows + table.skipped == len(rows)
    assert len(table.skipped_rows()) == table.skipped
    table.source.encode()
    assert names or table.column("text", range(table.num_rows)) == good


def run_cases(numbers: list[int]) -> list[str]:
    """Make and check cases, with limited memory; return what is wrong with them."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    wrong = []
    for number in numbers:
        with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
            case = make_case(number, Path(name))
            try:
                check(case, Path(name))
            except Exception:  # noqa: BLE001 - whatever a reader raises is the finding
                wrong.append(f"{case}\n{traceback.format_exc(limit=-4)}")
    return wrong


SEEDS = [range(402), pytest.param(range(402, 10_000), marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]


@pytest.mark.parametrize("numbers", SEEDS, ids=str)
def test_hostile_files(numbers):
    """In another process, which a case may end; one that hangs is ended by the time limit of the test."""
    # The lines that the readers are compared with
    assert quoted_places('a,b\n\n"c\n""\n",d\r\n\r\n,\ne"f,"g"', ",") == [1, 3, 7, 8]
    wrong = call_apart(run_cases, numbers)
    assert not wrong, f"{len(wrong)} cases, the first:\n" + "\n\n".join(wrong[:3])


YAML_NOISE = ["&a ", "*a", "!!python/object/apply:os.system [ls]", "!x ", "[", "]", "{", "}", ": ", "- ", "\t", "? ", "|\n", ">-\n",
              "---\n", "...\n", "%YAML 1.1\n", "2001-99-99", "0x", "1e999", "'", '"', "\\ud800", "\0", "\x85", "\u2028", "\ufeff",
              "#", "<<: ", "~", "=", "[" * 60, "9" * 5000, "null", "\n", "  ", "@", "`", "class_path: subprocess.Popen\n"]  # fmt: skip


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.slow)], ids=str)
def test_damaged_configurations(tmp_path, seeds):
    path = tmp_path / "damaged.yaml"
    refused = 0
    for seed in seeds:
        draw = random.Random(seed)
        text = draw.choice(CONFIGS).read_text(encoding="utf-8")
        for _ in range(draw.randint(1, 4)):
            place = draw.randrange(len(text) + 1)
            text = text[:place] + draw.choice(YAML_NOISE) + text[place + draw.choice([0, 0, 1, 9]) :]
        content = bytearray(text.encode("utf-8", "surrogatepass"))
        if draw.random() < 0.2:
            content[draw.randrange(len(content))] = draw.randrange(256)
        path.write_bytes(content)
        try:
            load_config(["--config", str(path)])
        except InputError as error:
            refused += 1
            str(error).encode()
    assert refused > len(seeds) / 2


if __name__ == "__main__":
    sys.stdout.write("\n".join(run_cases(list(map(int, sys.argv[1:])))) or "nothing wrong\n")
