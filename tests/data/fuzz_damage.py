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
UNITS = ["好", ",", "\t", '"', '"",', "[", '{"a":', "\u200b", "\x00", "a\r", "1", "\\ud800", " ", "=1+1,"]
LONG, LONG_EVERY = 10_000_000, 400  # bytes of a long line, and one case of so many has it


def make_case(number: int, folder: Path) -> Case:
    """Write the file of case `number` into `folder`."""
    draw = random.Random(number)
    case = valid_case(number, folder, draw)
    name = draw.choices(list(DAMAGES), [weight for weight, _ in DAMAGES.values()])[0]
    name, damage = ("long line", _long_line) if number % LONG_EVERY == 0 else (name, DAMAGES[name][1])
    case.description += f", {name}"
    damage(case, draw)
    if case.content is not None and not case.path.exists():
        case.path.write_bytes(case.content)
    return case


def _content(change: Callable[[bytes, random.Random], bytes]) -> Callable[[Case, random.Random], None]:
    """Return a damage that changes the bytes of a file."""

    def damage(case: Case, draw: random.Random) -> None:
        case.content, case.rows = change(case.content, draw), None

    return damage


def _noise(content: bytes, draw: random.Random) -> bytes:
    for _ in range(draw.randint(1, 5)):
        place = draw.randrange(len(content) + 1)
        content = content[:place] + draw.choice(NOISE) + content[place + draw.choice([0, 0, 1, 4]) :]
    return content


def _flipped_bits(content: bytes, draw: random.Random) -> bytes:
    content = bytearray(content)
    for _ in range(draw.randint(1, 3)):
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    return bytes(content)


def _mixed_encodings(content: bytes, draw: random.Random) -> bytes:
    other = draw.choice(["gb18030", "utf-16-le", "big5"])
    row, end = "好坏\t1".encode(other), "正".encode(other)
    return b"\n".join(draw.choice([line, row, line + end]) for line in content.split(b"\n"))


def _replace(case: Case, content: str | bytes, options: ReadOptions) -> None:
    case.content = content.encode() if isinstance(content, str) else content
    case.rows, case.options = None, options


def _another_encoding(case: Case, draw: random.Random) -> None:
    encoding = draw.choice([*ENCODINGS, "utf-7", "ascii", "latin-1", "shift_jis", "idna", "punycode", "unicode_escape",
                            "base64", "hz", "iso2022_jp", "no such", "utf_8_sig", "big5hkscs", "\0"])  # fmt: skip
    options = ReadOptions(case.options.format, encoding=encoding, quoting=case.options.quoting)
    _replace(case, case.content, options)


def _other_options(case: Case, draw: random.Random) -> None:
    column = [None, 0, 1, -1, 99, "text", "label", "no such", "", "\ud800"]
    options = ReadOptions(
        draw.choice([case.options.format, *FORMATS[:4]]),
        text_column=draw.choice(column),
        text_pair_column=draw.choice([None, None, *column]),
        label_column=draw.choice(column),
        header=draw.choice([None, True, False]),
        encoding=case.options.encoding,
        quoting=draw.choice(["auto", "none", "double"]),
        remove_spaces=draw.random() < 0.5,
    )
    _replace(case, case.content, options)


def _long_line(case: Case, draw: random.Random) -> None:
    unit = draw.choice(UNITS)
    head = draw.choice(["", '["', '[["', '{"text": "', "好,1\n", "好\t1\n", '"'])
    content = head + unit * (LONG // len(unit.encode())) + draw.choice(["", "\n", '"]\n'])
    _replace(case, content, ReadOptions(draw.choice([f for f in FORMATS if f != "parquet"])))


def _deep_json(case: Case, draw: random.Random) -> None:
    depth = draw.choice([50, 500, 900, 10_000, draw.randrange(930, 1000), draw.randrange(930, 1000)])
    opened, closed = draw.choice([("[", "]"), ('{"a":', "}"), ('{"text":', "}"), ('[{"a":[', "]}]")])
    deep = opened * depth + draw.choice(["1", '"好"', ""]) + draw.choice([closed * depth, ""])
    shapes = [deep, f'["好", {deep}]', f'[{deep}, "好"]', f'{{"text": {deep}, "label": 1}}']
    rows = ['["好", 1]', draw.choice(shapes)]
    rows = draw.choice([rows, rows[::-1], rows[1:]])
    if draw.random() < 0.5:
        _replace(case, "\n".join(rows), ReadOptions("jsonl"))
    else:
        _replace(case, f"[{', '.join(rows)}]", ReadOptions("json"))


def _unpaired_surrogates(case: Case, draw: random.Random) -> None:
    half = draw.choice(["\\ud83d", "\\udc80", "\\ude00\\ud83d"])
    raw = draw.choice([b"\xed\xa0\xbd", b"\xed\xb2\x80", b"\xed\xa0\xbd\xed\xb8\x80"])
    content = {
        "json": f'[["好{half}", 1], ["好", "{half}"], {{"{half}": 1}}]',
        "jsonl": f'{{"{half}": 2, "text": "好{half}", "label": 1}}\n["{half}", 1]\n"{half}"\n',
    }.get(case.options.format, "好,1\n好".encode() + raw + b",1\n" + raw + b"\t" + raw + b"\n")
    _replace(case, content, ReadOptions(case.options.format, text_column=draw.choice([None, 0])))


def _packed(case: Case, draw: random.Random) -> None:
    magic = [lambda data: b"PK\x03\x04" + data, lambda data: b"\x28\xb5\x2f\xfd" + data]
    pack = draw.choice([gzip.compress, bz2.compress, lzma.compress, *magic])
    _replace(case, pack(case.content), ReadOptions(case.options.format))
    case.refused = True


def _parquet_of_another_name(case: Case, draw: random.Random) -> None:
    content, _ = parquet_file(draw, {"text": ["好", "坏"], "label": ["1", "0"]})
    case.refused = case.options.format != "parquet"
    _replace(case, content, ReadOptions(case.options.format))


def _carriage_returns(case: Case, draw: random.Random) -> None:
    """Lines that end as on old Macs."""
    if case.options.format not in ("csv", "tsv", "text"):
        return
    separator = {"csv": ",", "tsv": "\t"}.get(case.options.format)
    texts = [f"好{n}" for n in range(draw.randint(2, 9))]
    rows = [f"{text}{separator}1" if case.need_label else text for text in texts]
    options = ReadOptions(case.options.format, text_column=draw.choice([None, 0]), header=False)
    _replace(case, "\r".join(rows) + draw.choice(["", "\r"]), options)
    case.rows = [(line, text, "1" if case.need_label else None) for line, text in enumerate(texts, 1)]


def _empty(case: Case, draw: random.Random) -> None:
    texts = ["", "\n", "\r\n\r\n", "\ufeff", "\ufeff\n", " ", "[]", "text,label\n", "\r"]
    _replace(case, draw.choice(texts), ReadOptions(case.options.format))


def _file_name_in_another_encoding(case: Case, draw: random.Random) -> None:
    case.path = case.path.with_name(os.fsdecode("好".encode("gb18030")) + case.path.name)


def _link(case: Case, draw: random.Random) -> None:
    target = case.path.with_name(f"target{case.number}")
    target.write_bytes(case.content)
    case.path.symlink_to(target)


def _no_regular_file(case: Case, draw: random.Random) -> None:
    path, pipe = case.path, case.path.with_name(f"pipe{case.number}")
    os.mkfifo(pipe)
    targets = {"link to a pipe": pipe, "device": "/dev/null", "endless device": "/dev/zero", "loop": path}
    targets["dangling link"] = path.with_name("nowhere")
    names = {"missing": path, "pipe": pipe, "long name": path.with_name("n" * 300)}
    names["NUL in the name"] = path.with_name("a\0b")
    what = draw.choice([*targets, *names, "directory"])
    if what == "directory":
        path.mkdir()
    elif what in targets:
        path.symlink_to(targets[what])
    case.path = names.get(what, path)
    case.description += f": {what}"
    case.content, case.rows, case.refused = None, None, True


DAMAGES: dict[str, tuple[int, Callable[[Case, random.Random], None]]] = {
    "nothing": (20, lambda case, draw: None),
    "cut short": (10, _content(lambda content, draw: content[: draw.randrange(len(content))])),
    "noise": (14, _content(_noise)),
    "flipped bits": (10, _content(_flipped_bits)),
    "random bytes": (5, _content(lambda _, draw: draw.randbytes(draw.choice([1, 2, 3, 4, 9, 100, 3000])))),
    "mixed encodings": (5, _content(_mixed_encodings)),
    "another encoding": (6, _another_encoding),
    "other options": (8, _other_options),
    "deep json": (3, _deep_json),
    "unpaired surrogates": (3, _unpaired_surrogates),
    "packed": (2, _packed),
    "parquet of another name": (1, _parquet_of_another_name),
    "carriage returns": (3, _carriage_returns),
    "empty": (2, _empty),
    "file name in another encoding": (2, _file_name_in_another_encoding),
    "link": (2, _link),
    "no regular file": (4, _no_regular_file),
}
