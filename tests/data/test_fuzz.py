"""Thousands of seeded hostile files against every reader: python -m pytest tests/data/test_fuzz.py -m "slow or
not slow"; one case alone: python -m tests.data.test_fuzz 4711

Case N is always the same file: valid, damaged, or no file of rows at all. The rows of valid ones are known by
construction. A reader gives rows or an InputError, in bounded time, and drops no row without a message.
"""

from __future__ import annotations

import codecs
import gzip
import io
import json
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
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import parquet

from app.config.command_line import load_config
from app.data.cache import call_apart
from app.data.files import Stream, file_encoding
from app.data.read import BadRow, ReadOptions, recognised
from app.data.rows import Row, RowReader
from app.data.table import Table, build_table
from app.errors import InputError
from app.prediction.sources import open_file, options_of_run
from tests.processes import ROOT

FORMATS = ("csv", "tsv", "json", "jsonl", "parquet", "text")
ENCODINGS = ("utf-8", "utf-8", "utf-8", "gb18030", "cp037")
ENCODINGS += ("utf-16", "utf-16-le", "utf-16-be", "utf-32-be", "utf-32-le")
OTHER_ENCODINGS = [*ENCODINGS, "utf-7", "ascii", "latin-1", "shift_jis", "idna", "punycode", "unicode_escape", "base64",
                   "hz", "iso2022_jp", "no such", "utf_8_sig", "big5hkscs", "\0"]  # fmt: skip
VISIBLE = ["好", "今天真开心", "=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", '=HYPERLINK("http://a","b")', "a", "😀", "𠮷",
           "ﷺ", "e\u0301", '"', "''", "\\", "{}[]", "null", "\ufffd", "#", "1.5", "<b>", "\ue000", "label", "文本"]  # fmt: skip
INVISIBLE = ["\x1b[2J", *"\u200b\u200d\u202e\u2066\u2069\ufeff\0\u00ad \u3000\x0b\x0c\x1c\x85\u2028\u2029\x7f"]  # fmt: skip
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


def valid_case(number: int, folder: Path, draw: random.Random) -> Case:
    """Return a case whose file is not written yet."""
    format = draw.choice(FORMATS)
    is_table, need_label = format in ("csv", "tsv"), format != "text" and draw.random() < 0.7
    encoding = "utf-8" if format == "parquet" else draw.choice(ENCODINGS)
    quoting = draw.choice(["auto", "auto", "none", "double"]) if is_table else "auto"
    is_quoted = is_table and (quoting == "double" or quoting == "auto" and format == "csv")
    count = draw.choice([1, 2, 3, 10, 40])
    columns = {"text": [text_of(draw, format, encoding, is_quoted) for _ in range(count)]}
    if need_label:
        columns["label"] = draw.choices(LABELS[2:] if encoding == "cp037" else LABELS, k=count)
    pairs = zip(columns["text"], columns.get("label", [None] * count), strict=True)
    rows = [(text.strip(), label) if text else (None, None) for text, label in pairs]
    has_header = is_table and draw.random() < 0.5
    # The first text may be a usual name of a column
    is_clear = has_header or (need_label and (columns["text"][0] or "").strip() not in ("文本", "label"))
    header = draw.choice([None, has_header] if is_clear else [False]) if is_table else None
    numbers = {"text_column": 0, "label_column": 1} if need_label and header is False else {}
    options = ReadOptions(format, encoding=encoding, quoting=quoting, header=header, **numbers)
    if format == "parquet":
        content = parquet_file(draw, columns)
    else:
        content = text_file(draw, columns, options, is_quoted, has_header)
    path = folder / f"case{number}.{'txt' if format == 'text' else format}"
    return Case(number, f"{format} in {encoding}", path, options, need_label, content, rows)


def text_of(draw: random.Random, format: str, encoding: str, quoted: bool) -> str | None:
    """Return a text that the format can hold, or None: one that must be refused."""
    if draw.random() < 0.1:
        return None
    pieces = draw.choices(VISIBLE, k=draw.choice([1, 1, 2, 5]))
    pieces += draw.choices(INVISIBLE, k=draw.choice([0, 0, 1, 3]))
    if format in ("json", "jsonl", "parquet") or quoted:
        pieces += draw.choices(["\n", "\r", "\r\n", "\t", ","], k=draw.choice([0, 1]))
    draw.shuffle(pieces)
    text = "".join(pieces)
    if format == "csv" and not quoted:
        text = text.replace(",", "，")
    # EBCDIC has no Chinese, and its line feed is the byte 0x25
    if encoding == "cp037":
        return "a" + text.encode(encoding, "ignore").decode(encoding)
    return f"好{text}" if text.startswith("\ufeff") or not text.strip() else text


def text_file(draw, columns: dict, options: ReadOptions, quoted: bool, header: bool) -> bytes:
    format, encoding, is_ebcdic = options.format, options.encoding, options.encoding == "cp037"
    separator = "\t" if format == "tsv" else ","
    shape = draw.choice(["array", "object"] if "label" in columns else ["string", "array", "object"])
    dump = partial(json.dumps, ensure_ascii=is_ebcdic or draw.random() < 0.5)
    # A text that must be refused
    empty = "\x00" if is_ebcdic or format == "text" else "\u200b\u202e"

    def cell(value: str) -> str:
        special = any(character in value for character in f'"{separator}\r\n') or not value
        doubled = '"' + value.replace('"', '""') + '"'
        return doubled if quoted and (special or draw.random() < 0.3) else value

    def value_of(row: list[str]) -> str | list | dict:
        return {"string": row[0], "array": row, "object": dict(zip(columns, row, strict=True))}[shape]

    rows = [[empty if one is None else one for one in row] for row in zip(*columns.values(), strict=True)]
    if format == "json":
        text = dump([*map(value_of, rows)], indent=draw.choice([None, 1]))
    else:
        records = [
            dump(value_of(row)) if format == "jsonl" else separator.join(map(cell, row)) for row in rows
        ]
        records = [separator.join(columns), *records] if header else records
        end = draw.choice(["\n", "\n", "\r\n"])
        # Blank lines between them
        text = "".join(end * draw.choice([0, 0, 0, 1, 2]) + record + end for record in records)
        text = text.removesuffix(end) if draw.random() < 0.3 else text
    mark = draw.choice(["", "\ufeff"]) if encoding in ("utf-8", "utf-16-le", "utf-16-be") else ""
    return (mark + text).encode(encoding)


def parquet_file(draw: random.Random, columns: dict[str, list]) -> bytes:
    arrays = {name: pyarrow.array(values, pyarrow.string()) for name, values in columns.items()}
    if draw.random() < 0.5:
        arrays["text"] = arrays["text"].dictionary_encode()
    size, file = len(columns["text"]), io.BytesIO()
    # A date that Python does not have, bytes, and lists of objects
    others = [pyarrow.array([1 << 60] * size, pyarrow.timestamp("ms", "Nowhere/Else"))]
    others += [pyarrow.array([b"\xff"] * size), pyarrow.array([[{"a": [1]}]] * size)]
    if "label" in columns:
        chosen = draw.sample(others, draw.choice([0, 1, 3]))
        arrays |= {f"other {number}": array for number, array in enumerate(chosen)}
    packing = {"compression": draw.choice(["none", "snappy", "gzip", "zstd"])}
    parquet.write_table(pyarrow.table(arrays), file, row_group_size=draw.choice([3, 100]), **packing)
    return file.getvalue()


def make_case(number: int, folder: Path) -> Case:
    """Write the file of case `number` into `folder`."""
    draw = random.Random(number)
    case = valid_case(number, folder, draw)
    name = draw.choices(list(DAMAGES), [weight for weight, _ in DAMAGES.values()])[0]
    name = "long line" if number % LONG_EVERY == 0 else name
    case.description += f", {name}"
    if (content := DAMAGES[name][1](case, draw)) is not None:
        case.content, case.rows = content.encode() if isinstance(content, str) else content, None
    if case.content is not None:
        case.path.write_bytes(case.content)
    return case


# Damages return the new content of the file; None if the rows stay


def with_noise(content: Any, draw: random.Random, noise: list, most: int) -> Any:
    """Put pieces of noise into a content, some of them in place of what is there."""
    for _ in range(draw.randint(1, most)):
        place = draw.randrange(len(content) + 1)
        content = content[:place] + draw.choice(noise) + content[place + draw.choice([0, 0, 1, 4, 9]) :]
    return content


def with_flipped_bits(content: bytes, draw: random.Random) -> bytes:
    content = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(content)


def mixed_encodings(case: Case, draw: random.Random) -> bytes:
    other = draw.choice(["gb18030", "utf-16-le", "big5"])
    row, end = "好坏\t1".encode(other), "正".encode(other)
    return b"\n".join(draw.choice([line, row, line + end]) for line in case.content.split(b"\n"))


def other_options(case: Case, draw: random.Random) -> bytes:
    column = draw.choice([[None], [None, 0, 1, -1, 99, "text", "label", "no such", "", "\ud800"]])
    case.options = ReadOptions(
        draw.choice([case.options.format, *FORMATS[:4]]),
        text_column=draw.choice(column),
        text_pair_column=draw.choice([None, None, *column]),
        label_column=draw.choice(column),
        header=draw.choice([None, True, False]),
        encoding=draw.choice([case.options.encoding, draw.choice(OTHER_ENCODINGS)]),
        quoting=draw.choice(["auto", "none", "double"]),
        remove_spaces=draw.random() < 0.5,
    )
    return case.content


def long_line(case: Case, draw: random.Random) -> str:
    unit = draw.choice(UNITS)
    head = draw.choice(["", '["', '[["', '{"text": "', "好,1\n", "好\t1\n", '"'])
    case.options = ReadOptions(draw.choice([name for name in FORMATS if name != "parquet"]))
    return head + unit * (LONG // len(unit.encode())) + draw.choice(["", "\n", '"]\n'])


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
    case.options, case.refused = ReadOptions(case.options.format), True
    magic = draw.choice([b"", b"BZh91AY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"PK\x03\x04"])
    return magic + case.content if magic else gzip.compress(case.content)


LINKS = {"to a pipe": "pipe", "to a device": "/dev/null", "to an endless device": "/dev/zero", "loop": "loop"}
LINKS |= {"to nothing": "nowhere"}


def no_regular_file(case: Case, draw: random.Random) -> None:
    folder = case.path.parent
    os.mkfifo(folder / "pipe")
    folder.joinpath("directory").mkdir()
    for name, target in LINKS.items():
        folder.joinpath(name).symlink_to(target)
    name = draw.choice([*LINKS, "pipe", "directory", "missing", "n" * 300, "a\0b"])
    case.path, case.content, case.rows, case.refused = folder / name, None, None, True


DAMAGES: dict[str, tuple[int, Callable[[Case, random.Random], bytes | str | None]]] = {
    "nothing": (20, lambda case, draw: None),
    "cut short": (10, lambda case, draw: case.content[: draw.randrange(len(case.content))]),
    "noise": (14, lambda case, draw: with_noise(case.content, draw, NOISE, 5)),
    "flipped bits": (10, lambda case, draw: with_flipped_bits(case.content, draw)),
    "random bytes": (5, lambda case, draw: draw.randbytes(draw.choice([1, 2, 3, 4, 9, 100, 3000]))),
    "mixed encodings": (5, mixed_encodings),
    "other options": (14, other_options),
    "deep json": (3, deep_json),
    "long line": (0, long_line),
    "packed": (2, packed),
    "link": (2, lambda case, draw: case.path.symlink_to("target")),
    "no regular file": (4, no_regular_file),
}


def check(case: Case, folder: Path) -> None:
    """Read one case in every way there is; raises AssertionError, or what a reader should not have raised."""

    def read(source: Stream | str, **changes: Any) -> list[Row | BadRow]:
        return list(RowReader(source, replace(case.options, **changes), case.need_label).rows())

    # A stream is not looked at for its encoding
    with suppress(InputError):
        case.options = replace(case.options, encoding=file_encoding(case.path, case.options.encoding))
    found, message = attempt(case, lambda: read(str(case.path)))
    if (case.content or b"").startswith(codecs.BOM_UTF32_LE):
        # In UTF-16 these bytes are the mark before a NUL
        assert message is not None, "UTF-32 was read"
        return
    if message is None:
        assert not case.refused, f"to be refused, but {len(found)} rows were read"
        check_rows(case, found)
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
        assert as_stream == (found, message), "a stream gives other rows"
    if message is None:
        check_prediction_source(case)
    if case.need_label:
        check_table(case, found, folder)


def attempt(case: Case, action: Callable[[], Any]) -> tuple[Any, str | None]:
    """Return what an action returns, or the message of its InputError, which must be short."""
    try:
        return action(), None
    except InputError as error:
        message = str(error)
    length = len(message.replace(str(case.path), ""))
    assert 0 < length < MAX_MESSAGE, f"a message of {length:,} characters"
    return None, message


def check_rows(case: Case, found: list[Row | BadRow]) -> None:
    for row in found:
        # What is read can be written
        "".join(value for value in row[1:] if isinstance(value, str)).encode()
        assert 0 < len(row.problem) < MAX_MESSAGE if isinstance(row, BadRow) else row.text
    if case.rows is not None:
        read = [(None, None) if isinstance(row, BadRow) else (row.text, row.label) for row in found]
        assert read == case.rows
    if (expected := independent_places(case, found)) is not None:
        headers = {None: (0, 1), True: (1,), False: (0,)}[case.options.header]
        headers = headers if case.options.format in ("csv", "tsv") else (0,)
        places = [row.line for row in found]
        assert places in [expected[count:] for count in headers], f"expected {expected[:9]}"


def independent_places(case: Case, found: list[Row | BadRow]) -> list[int] | None:
    """Return the numbers that rows must have, header included; None where that is undefined."""
    format, encoding, quoting = case.options.format, case.options.encoding, case.options.quoting
    if format == "parquet":
        return [*range(1, parquet.read_metadata(case.path).num_rows + 1)]
    if "\n".encode(encoding) == b"\n":
        # Line by line: a bad byte must not include the line feed after it
        text = "\n".join(line.decode(encoding, "surrogateescape") for line in case.content.split(b"\n"))
    else:
        text = case.content.decode(encoding, "surrogatepass")
    text = text.removeprefix("\ufeff")
    if format == "json":
        return [*range(1, len(json.loads(text)) + 1)]
    is_plain = format in ("text", "jsonl")
    if is_plain or quoting == "none" or (format == "tsv" and quoting == "auto"):
        # A line of tabs is a row of a table
        lines = enumerate(re.split(LINE_END, text), 1)
        return [number for number, line in lines if line.strip(None if is_plain else " ")]
    if any(isinstance(row, BadRow) and re.search("CSV|broken", row.problem) for row in found):
        # What a broken record takes in is the reader's to say
        return None
    return quoted_places(text, "," if format == "csv" else "\t")


def quoted_places(text: str, separator: str) -> list[int]:
    """Return the line on which each record of quoted text begins that is not blank."""
    cell = rf'(?:"[^"]*(?:""[^"]*)*"|(?!")[^{separator}\r\n]*)'
    places, line, end = [], 1, 0
    for match in re.finditer(rf"({cell}(?:{separator}{cell})*)(?:{LINE_END}|\Z)", text):
        assert match.start() == end, f"quotes that do not pair in line {line}"
        if match[1]:
            places.append(line)
        line, end = line + len(re.findall(LINE_END, match[0])), match.end()
    return places


def check_prediction_source(case: Case) -> None:
    """predict.py reads the file with the same readers, without labels; each row is counted as good or bad."""
    source, message = attempt(case, lambda: open_file(str(case.path), {}, asdict(case.options)))
    if message is None:
        count, message = attempt(case, lambda: source.count("skip"))
    if message is None:
        assert count == sum(1 for _ in source.rows("skip"))
        if not case.need_label:
            # Without labels, which column has them is not asked either
            options = options_of_run(case.path, {}, asdict(case.options))
            assert count + source.num_bad == len(list(RowReader(case.path, options, need_label=False).rows()))


def check_table(case: Case, found: list[Row | BadRow] | None, folder: Path) -> None:
    """The table on disk has the good rows, and counts the bad ones."""
    target, names = folder / "table", LABELS if case.number % 2 else None
    target.mkdir()
    good = [row.text for row in found or [] if isinstance(row, Row)]
    _, message = attempt(case, lambda: build_table(target, str(case.path), case.options, True, names))
    if message is not None:
        is_known = not good or names or "deep" in case.description or "whether this is a header" in message
        assert is_known, f"rows were read, but no table made of them: {message}"
        return
    table = Table(target)
    assert table.num_rows + table.skipped == len(found)
    assert len(table.skipped_rows()) == table.skipped
    table.source.encode()
    assert names or [table.text(row) for row in range(table.num_rows)] == good


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


SEEDS = [range(1, 402), pytest.param(range(10_000), marks=[pytest.mark.slow, pytest.mark.timeout(1800)])]


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
    path, refused = tmp_path / "damaged.yaml", 0
    for seed in seeds:
        draw = random.Random(seed)
        text = draw.choice(sorted((ROOT / "configs").glob("*.yaml"))).read_text(encoding="utf-8")
        content = with_noise(text, draw, YAML_NOISE, 4).encode("utf-8", "surrogatepass")
        path.write_bytes(with_flipped_bits(content, draw) if draw.random() < 0.2 else content)
        try:
            load_config(["--config", str(path)])
        except InputError as error:
            refused += 1
            str(error).encode()
    assert refused > len(seeds) / 2


if __name__ == "__main__":
    sys.stdout.write("\n".join(run_cases(list(map(int, sys.argv[1:])))) or "nothing wrong\n")
