"""Seeded hostile data files: case N is always the same file, valid, damaged, or no file of rows at all."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import random
from collections.abc import Callable
from pathlib import Path

from app.data.read import ReadOptions
from tests.data.fuzz_cases import ENCODINGS, FORMATS, Case, parquet_file, valid_case

NOISE = [b'"', b"\n", b"\r", b"\r\n", b"\t", b",", b"\0", b"[", b"]", b"{", b"}", b"\\", b"\\ud83d", b"1e999", b"null",
         b"9" * 30, b"9" * 5000, b"\xef\xbb\xbf", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xff\xfe",
         b"\xba\xc3", b"\xe2\x80\xa8", b"\x1a", b"=1+1", "\u202e".encode(), "\u200b".encode()]  # fmt: skip
# Bytes of a long line
LONG = 10_000_000
# One case of so many has such a line
LONG_EVERY = 400


def make_case(number: int, folder: Path) -> Case:
    """Write the file of case `number` into `folder`."""
    draw = random.Random(number)
    case = valid_case(number, folder, draw)
    if number % LONG_EVERY == 0:
        damage: Callable = _long_line
    else:
        damage = draw.choices(list(DAMAGES), list(DAMAGES.values()))[0]
    case.description = f"{case.description}, {damage.__name__.strip('_').replace('_', ' ')}"
    damage(case, draw)
    if case.content is not None and not case.path.exists():
        case.path.write_bytes(case.content)
    return case


def _nothing(case: Case, draw: random.Random) -> None:
    """Leave the file as it is: its rows are known."""


def _damaged(case: Case, content: bytes) -> None:
    case.content, case.rows = content, None


def _cut_short(case: Case, draw: random.Random) -> None:
    _damaged(case, case.content[: draw.randrange(len(case.content))])


def _noise(case: Case, draw: random.Random) -> None:
    content = bytearray(case.content)
    for _ in range(draw.randint(1, 5)):
        place = draw.randrange(len(content) + 1)
        content[place : place + draw.choice([0, 0, 1, 4])] = draw.choice(NOISE)
    _damaged(case, bytes(content))


def _flipped_bits(case: Case, draw: random.Random) -> None:
    content = bytearray(case.content)
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    _damaged(case, bytes(content))


def _random_bytes(case: Case, draw: random.Random) -> None:
    _damaged(case, draw.randbytes(draw.choice([1, 2, 3, 4, 9, 100, 3000])))


def _mixed_encodings(case: Case, draw: random.Random) -> None:
    lines = case.content.split(b"\n")
    other = draw.choice(["gb18030", "utf-16-le", "big5"])
    _damaged(
        case,
        b"\n".join(draw.choice([line, "好坏\t1".encode(other), line + "正".encode(other)]) for line in lines),
    )


def _another_encoding(case: Case, draw: random.Random) -> None:
    encoding = draw.choice([*ENCODINGS, "utf-7", "ascii", "latin-1", "shift_jis", "idna", "punycode", "unicode_escape",
                            "base64", "hz", "iso2022_jp", "no such", "utf_8_sig", "big5hkscs", "\0"])  # fmt: skip
    case.options, case.rows = (
        ReadOptions(case.options.format, encoding=encoding, quoting=case.options.quoting),
        None,
    )


def _other_options(case: Case, draw: random.Random) -> None:
    column = [None, 0, 1, -1, 99, "text", "label", "no such", "", "\ud800"]
    case.options = ReadOptions(
        draw.choice([case.options.format, *FORMATS[:4]]),
        text_column=draw.choice(column),
        text_pair_column=draw.choice([None, None, *column]),
        label_column=draw.choice(column),
        header=draw.choice([None, True, False]),
        encoding=case.options.encoding,
        quoting=draw.choice(["auto", "none", "double"]),
        remove_spaces=draw.random() < 0.5,
    )
    case.rows = None


def _long_line(case: Case, draw: random.Random) -> None:
    unit = draw.choice(
        ["好", ",", "\t", '"', '"",', "[", '{"a":', "\u200b", "\x00", "a\r", "1", "\\ud800", " ", "=1+1,"]
    )
    head = draw.choice(["", '["', '[["', '{"text": "', "好,1\n", "好\t1\n", '"'])
    _damaged(case, (head + unit * (LONG // len(unit.encode()))).encode() + draw.choice([b"", b"\n", b'"]\n']))
    case.options = ReadOptions(draw.choice([f for f in FORMATS if f != "parquet"]))


def _deep_json(case: Case, draw: random.Random) -> None:
    depth = draw.choice([50, 500, 900, 10_000, draw.randrange(930, 1000), draw.randrange(930, 1000)])
    opened, closed = draw.choice([("[", "]"), ('{"a":', "}"), ('{"text":', "}"), ('[{"a":[', "]}]")])
    deep = opened * depth + draw.choice(["1", '"好"', ""]) + draw.choice([closed * depth, ""])
    rows = [
        '["好", 1]',
        draw.choice([deep, f'["好", {deep}]', f'[{deep}, "好"]', f'{{"text": {deep}, "label": 1}}']),
    ]
    rows = draw.choice([rows, rows[::-1], rows[1:]])
    is_lines = draw.random() < 0.5
    _damaged(case, ("\n".join(rows) if is_lines else f"[{', '.join(rows)}]").encode())
    case.options = ReadOptions("jsonl" if is_lines else "json")


def _unpaired_surrogates(case: Case, draw: random.Random) -> None:
    half = draw.choice(["\\ud83d", "\\udc80", "\\ude00\\ud83d"])
    raw = draw.choice([b"\xed\xa0\xbd", b"\xed\xb2\x80", b"\xed\xa0\xbd\xed\xb8\x80"])
    content = {
        "json": f'[["好{half}", 1], ["好", "{half}"], {{"{half}": 1}}]'.encode(),
        "jsonl": f'{{"{half}": 2, "text": "好{half}", "label": 1}}\n["{half}", 1]\n"{half}"\n'.encode(),
    }.get(case.options.format, b"\xe5\xa5\xbd,1\n\xe5\xa5\xbd" + raw + b",1\n" + raw + b"\t" + raw + b"\n")
    _damaged(case, content)
    case.options = ReadOptions(case.options.format, text_column=draw.choice([None, 0]))


def _packed(case: Case, draw: random.Random) -> None:
    pack = draw.choice(
        [
            gzip.compress,
            bz2.compress,
            lzma.compress,
            lambda data: b"PK\x03\x04" + data,
            lambda data: b"\x28\xb5\x2f\xfd" + data,
        ]
    )
    _damaged(case, pack(case.content))
    case.refused = True
    case.options = ReadOptions(case.options.format)


def _parquet_of_another_name(case: Case, draw: random.Random) -> None:
    content, _ = parquet_file(draw, ["好", "坏"], ["1", "0"], "parquet", False, False, "utf-8")
    _damaged(case, content)
    case.refused = case.options.format != "parquet"
    case.options = ReadOptions(case.options.format)


def _carriage_returns(case: Case, draw: random.Random) -> None:
    """Lines that end as on old Macs: to read them as one row would lose all others."""
    if case.options.format not in ("csv", "tsv", "text"):
        return
    separator = {"csv": ",", "tsv": "\t"}.get(case.options.format)
    rows = [f"好{n}{separator}1" if case.need_label else f"好{n}" for n in range(draw.randint(2, 9))]
    _damaged(case, ("\r".join(rows) + draw.choice(["", "\r"])).encode())
    case.options = ReadOptions(case.options.format, text_column=draw.choice([None, 0]), header=False)
    case.rows = [(1, None, None)]


def _empty(case: Case, draw: random.Random) -> None:
    content = draw.choice(
        [b"", b"\n", b"\r\n\r\n", b"\xef\xbb\xbf", b"\xef\xbb\xbf\n", b" ", b"[]", b"text,label\n", b"\r"]
    )
    _damaged(case, content)
    case.options = ReadOptions(case.options.format)


def _file_name_in_another_encoding(case: Case, draw: random.Random) -> None:
    case.path = case.path.with_name(os.fsdecode("好".encode("gb18030")) + case.path.name)


def _link(case: Case, draw: random.Random) -> None:
    target = case.path.with_name(f"target{case.number}")
    target.write_bytes(case.content)
    case.path.symlink_to(target)


def _no_regular_file(case: Case, draw: random.Random) -> None:
    what = draw.choice(
        [
            "pipe",
            "directory",
            "device",
            "endless device",
            "loop",
            "dangling link",
            "missing",
            "long name",
            "NUL in the name",
            "link to a pipe",
        ]
    )
    case.description += f": {what}"
    if what in ("pipe", "link to a pipe"):
        pipe = case.path if what == "pipe" else case.path.with_name(f"pipe{case.number}")
        os.mkfifo(pipe)
        if what == "link to a pipe":
            case.path.symlink_to(pipe)
    elif what == "directory":
        case.path.mkdir()
    elif "device" in what:
        case.path.symlink_to("/dev/null" if what == "device" else "/dev/zero")
    elif what == "loop":
        case.path.symlink_to(case.path)
    elif what == "dangling link":
        case.path.symlink_to(case.path.with_name("nowhere"))
    elif what == "long name":
        case.path = case.path.with_name("n" * 300)
    elif what == "NUL in the name":
        case.path = case.path.with_name("a\0b")
    case.content, case.rows, case.refused = None, None, True


DAMAGES = {
    _nothing: 20,
    _cut_short: 10,
    _noise: 14,
    _flipped_bits: 10,
    _random_bytes: 5,
    _mixed_encodings: 5,
    _another_encoding: 6,
    _other_options: 8,
    _deep_json: 3,
    _unpaired_surrogates: 3,
    _packed: 2,
    _parquet_of_another_name: 1,
    _carriage_returns: 3,
    _empty: 2,
    _file_name_in_another_encoding: 2,
    _link: 2,
    _no_regular_file: 4,
}
