"""Bugs that the fuzz has found in the readers, one by one: python -m pytest
tests/data/test_hostile_input.py"""

import csv
import io
import json
import os
import random
from pathlib import Path

import numpy as np
import pyarrow
import pytest
from pyarrow import parquet

from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.data.files import Stream
from app.data.read import BadRow, ReadOptions
from app.data.report import render
from app.data.rows import Row, read_rows
from app.data.table import Table, build_table
from app.data.tokenizer import load_tokenizer
from app.data.tokens import open_store
from app.errors import InputError
from app.prediction.input_columns import NumberedTexts
from app.prediction.output import check_output
from app.prediction.prediction_writer import PredictionWriter
from app.prediction.predictor import Prediction
from app.tasks import open_task
from tests.verbs import predict


def read(path, need_label=True, **options) -> list:
    return list(read_rows(path, ReadOptions(**options), need_label))


def table_of(path: Path, folder: Path, label_names=None, **options) -> Table:
    folder.mkdir()
    build_table(folder, str(path), ReadOptions(**options), True, label_names)
    return Table(folder)


@pytest.mark.parametrize(
    ("name", "content", "options"),
    [
        ("a.tsv", "今天\t1\r气死\t0\r真\t1\r", {"text_column": 0, "label_column": 1}),
        ("a.csv", "今天,1\r气死,0\r真,1\r", {"quoting": "none", "text_column": 0, "label_column": 1}),
        ("a.txt", "今天\r气死\r真", {"format": "text"}),
    ],
)
def test_rows_between_carriage_returns_do_not_become_one(write, name, content, options):
    """They were read as a single row, and all others were lost without a message."""
    [row] = read(write(name, content), options.get("format") != "text", **options)
    assert isinstance(row, BadRow)
    assert row.line == 1
    assert "carriage return is inside the line" in row.problem
    assert "end lines with LF or CRLF" in row.problem


def test_carriage_returns_around_a_line_are_no_text(write):
    assert read(write("a.tsv", "今天\t1\r\r\n \r \r\n气死\t0\r")) == [
        Row(1, "今天", None, "1"),
        Row(3, "气死", None, "0"),
    ]


@pytest.mark.parametrize("encoding", ["cp037", "cp500", "cp1140"])
def test_lines_of_mainframes(write, encoding):
    """In EBCDIC the line feed is another byte: all lines were one."""
    path = write("a.txt", "one\ntwo\n\nthree".encode(encoding))
    rows = read(path, False, format="text", encoding=encoding)
    assert [row.text for row in rows] == ["one", "two", "three"]


UTF_32 = b"\xff\xfe\x00\x00a\x00\x00\x00\n\x00\x00\x00\xff\xff\xff\xff"


@pytest.mark.parametrize(
    ("content", "encoding", "message"),
    [
        ("好\t1\n".encode("utf-32-le"), "utf-32", "UTF-32 text must begin with a byte order mark"),
        ("好\t1\n".encode("utf-8-sig"), "gb18030", "found UTF-8 text with a byte order mark"),
        (UTF_32, "utf-32", "from line 1 on: not valid utf-32 text"),
        *((b"a\t1\n", name, "data.encoding must be a text enc") for name in ("idna", "punycode", "utf\0-8")),
    ],
)
def test_encodings_that_raised_errors_of_their_own(write, content, encoding, message):
    with pytest.raises(InputError, match=message):
        read(write("a.tsv", content), encoding=encoding)


@pytest.mark.parametrize("options", [{"header": True}, {"text_column": "text", "label_column": "label"}])
@pytest.mark.parametrize(("name", "line"), [("a.tsv", "text\rx\tlabel"), ("a.csv", '"text"x,label')])
def test_after_a_broken_header_no_row_is_read_as_the_header(write, name, line, options):
    row = "今天\t1\n" if name == "a.tsv" else "今天,1\n"
    with pytest.raises(InputError, match="line 1: the header cannot be read: "):
        read(write(name, f"{line}\n{row}{row}"), **options)


def test_a_line_of_separators_is_no_row(write):
    path = write("a.csv", "," * 16_384)
    with pytest.raises(InputError, match=r"line 1: a row may have at most 16,384 columns, found 16,385"):
        read(path, format="csv")


@pytest.mark.parametrize("depth", [900, 960, 975, 980, 985, 990, 1000, 10_000, 100_000])
def test_json_nested_deep_in_a_row(write, depth):
    """It was read, and then too deep to be shown in the message of what is wrong with it."""
    for shape in (f'["好", {"[" * depth}{"]" * depth}]', '{"text": ' * depth + "1" + "}" * depth):
        good, bad = read(write("a.jsonl", f'["好", 1]\n{shape}\n'))
        assert good == Row(1, "好", None, "1")
        assert isinstance(bad, BadRow)
        assert len(bad.problem) < 300
        try:
            found = read(write("a.json", f'[["好", 1], {shape}]'))
            assert found[0] == good
            assert isinstance(found[1], BadRow)
        except InputError as error:
            assert "recursion" in str(error)  # noqa: PT017
        with pytest.raises(InputError):
            read(write("b.json", shape.replace("[", "[[", 1)))


def write_parquet(path: Path, **columns) -> Path:
    with path.open("wb") as file:
        parquet.write_table(pyarrow.table(columns), file, row_group_size=2)
    return path


def test_no_flipped_bit_of_a_parquet_file_changes_the_number_of_its_rows(tmp_path):
    """The footer says how many rows there are, in several places, and pyarrow believes any of them."""
    path = write_parquet(tmp_path / "a.parquet", text=["好", "坏", "真"], label=["1", "0", "1"])
    content, path, told, draw = path.read_bytes(), tmp_path / "b.parquet", [], random.Random(0)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        path.write_bytes(flipped)
        try:
            assert len(read(path)) == 3
        except InputError as error:
            told.append("the Parquet file is damaged: its footer says" in str(error))
    assert any(told)
    assert len(told) < len(content)


def test_a_text_that_its_checksum_does_not_fit(tmp_path):
    with (tmp_path / "a.parquet").open("wb") as file:
        table = pyarrow.table({"text": ["好东西", "坏"], "label": ["1", "0"]})
        options = {"compression": "none", "use_dictionary": False, "write_statistics": False}
        parquet.write_table(table, file, **options, write_page_checksum=True)
    content = (tmp_path / "a.parquet").read_bytes()
    assert len(read(tmp_path / "a.parquet")) == 2
    (tmp_path / "b.parquet").write_bytes(content.replace("好东西".encode(), "坏东西".encode(), 1))
    with pytest.raises(InputError, match="not a readable Parquet file: .*checksum"):
        read(tmp_path / "b.parquet")


def test_columns_of_parquet_that_are_not_chosen_are_not_read(tmp_path):
    # Neither date nor zone in Python
    late = pyarrow.array([1 << 60, 1], pyarrow.timestamp("ms", "Nowhere/Else"))
    path = write_parquet(tmp_path / "a.parquet", when=late, text=["好", "坏"], label=[1, 0])
    assert read(path) == [Row(1, "好", None, "1"), Row(2, "坏", None, "0")]
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read(path, text_column="when")


def test_a_file_name_in_another_encoding(tmp_path):
    """Names from a Windows machine, unpacked on Linux: neither pyarrow nor the table's JSON took them."""
    name = os.fsdecode("训练".encode("gb18030"))
    path = write_parquet(tmp_path / f"{name}.parquet", text=["好", "坏"], label=["1", "0"])
    table = table_of(path, tmp_path / "table")
    assert (table.num_rows, table.source) == (2, f"{tmp_path}/ѵ��.parquet")
    lines = "".join(f"{number}好\t{number % 2}\n" for number in range(20))
    (tmp_path / f"{name}.tsv").write_text(lines, encoding="utf-8")
    dataset = open_dataset(DataConfig(train=str(tmp_path / f"{name}.tsv"), cache_dir=str(tmp_path / "cache")))
    cache = str(tmp_path / "cache")
    tokenizer = load_tokenizer(ModelConfig(), dataset, 8, cache)
    stores = {n: open_store(split.table, tokenizer, 8, cache) for n, split in dataset.splits.items()}
    # It is printed
    render(dataset, stores).encode()


def test_a_column_whose_name_is_half_a_character(write, tmp_path):
    path = write("a.jsonl", '{"\\ud800": "好", "label": 1}\n')
    table = table_of(path, tmp_path / "table", text_column=0)
    assert (table.num_rows, table.columns) == (1, "text '\\ud800', label 'label'")


LONG = 2_000_000  # characters


@pytest.mark.parametrize(
    ("content", "options"),
    [
        ("x," * (LONG // 2), {"header": True, "text_column": "text"}),
        ("x" * LONG + ",label,b\n1,2,3\n", {"header": True}),
        ("," * LONG, {}),
    ],
    ids=["names", "a name", "commas"],
)
def test_messages_about_megabytes_are_short(write, content, options):
    """A name of that size, or millions of them, were listed whole, and compared for minutes."""
    with pytest.raises(InputError) as error:
        read(write("a.csv", content), **options)
    assert len(str(error.value)) < 2000


def test_messages_about_labels_of_megabytes_are_short(write, tmp_path):
    path = write("b.tsv", f"好\t1\n坏\t{'正' * (LONG // 3)}\n")
    [row] = table_of(path, tmp_path / "table", ["0", "1", "x" * LONG]).skipped_rows()
    assert "unknown label '正正" in row["problem"]
    assert len(row["problem"]) < 300


def test_links_that_lead_nowhere_and_files_that_are_packed(write, tmp_path):
    (tmp_path / "a.csv").symlink_to(tmp_path / "b.csv")
    (tmp_path / "loop.csv").symlink_to(tmp_path / "loop.csv")
    for name, message in (("a.csv", r"a link to .*b\.csv, which is not there"), ("loop.csv", "a link to")):
        with pytest.raises(InputError, match=f"it is {message}"):
            read(tmp_path / name)
    packed = {"bzip2": b"BZh91AY&SY", "xz": b"\xfd7zXZ\x00", "Zstandard": b"\x28\xb5\x2f\xfd"}
    for what, start in (packed | {"old Excel": b"\xd0\xcf\x11\xe0", "Parquet": b"PAR1\x15"}).items():
        with pytest.raises(InputError, match=f"text is needed, found an? {what}"):
            read(write("c.csv", start + b"\n,1\n"), format="csv")


class Failing(io.RawIOBase):
    """A file on a disk that breaks after the first line."""

    def __init__(self) -> None:
        self.chunks = [b"today\t1\n"]

    def readable(self) -> bool:
        return True

    def readinto(self, buffer) -> int:
        if not self.chunks:
            raise OSError(5, "Input/output error")
        chunk = self.chunks.pop()
        buffer[: len(chunk)] = chunk
        return len(chunk)


def test_a_disk_that_breaks_while_a_file_is_read():
    stream = Stream("rows.tsv", io.BufferedReader(Failing()))
    with pytest.raises(InputError, match="rows.tsv, line 2: cannot be read: Input/output error"):
        read(stream, format="tsv")


VOCABULARY = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (VOCABULARY.encode() + b"\xff\n", "cannot be read as a text file in UTF-8"),
        (VOCABULARY + "".join(f"{n}\n" for n in range(200_000)) + "7\n", "'7' is there more than once"),
        (b"", "missing: "),
        (bytes(1000), "missing: "),
    ],
    ids=["bytes", "twice", "empty", "zeros"],
)
def test_vocabularies_that_are_none(write, content, message):
    with pytest.raises(InputError, match=message):
        load_tokenizer(ModelConfig(vocab_file=str(write("vocab.txt", content))), None, 8, "")


def test_a_vocabulary_with_a_byte_order_mark(write):
    path = write("vocab.txt", f"\ufeff{VOCABULARY}好\n")
    assert load_tokenizer(ModelConfig(vocab_file=str(path)), None, 8, "").get_vocab()["好"] == 5


def test_names_that_are_too_long_for_a_file(capsys):
    name = "n" * 300
    assert predict(["--checkpoint", "model", "--input", name]) == 2
    assert predict(["--checkpoint", "model", "--input", f"{name}.txt"]) == 2
    assert "cannot be read: File name too long" in capsys.readouterr().err
    with pytest.raises(InputError, match="cannot be written: File name too long"):
        check_output(f"{name}.csv", None)


FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    '=HYPERLINK("http://a","b")',
    '"=1"',
    "\t=1",
    "a\r=1",
]


def predictions_of(texts: list[str]):
    return [
        Prediction(Row(number, text, None, None), "=正面", np.array([0.9, 0.1]))
        for number, text in enumerate(texts, 1)
    ]


def test_formulas_are_written_as_they_were_read():
    """A quote put before them would make other texts of them; docs/data.md says so."""
    file = io.StringIO(newline="")
    writer = PredictionWriter(open_task("single_label", ["=正面", "负面"]), NumberedTexts(False))
    writer.write("csv", file, predictions_of(FORMULAS))
    found = list(csv.DictReader(io.StringIO(file.getvalue(), newline="")))
    assert [row["text"] for row in found] == FORMULAS


def test_what_people_see_holds_no_control_characters():
    """Escape sequences in a text would steer the terminal."""
    file = io.StringIO()
    task = open_task("single_label", ["=正面", "\x07" + "长" * 99])
    predictions = predictions_of(["\x1b[2J\x00好\x9b31m\u202e"])
    PredictionWriter(task, NumberedTexts(False)).write("lines", file, predictions)
    assert "\\x1b[2J\\x00好\\x9b31m\\u202e" in file.getvalue()
    assert "\\x07长" in file.getvalue()
    assert "长" * 20 not in file.getvalue()
    assert all(character == "\n" or character.isprintable() for character in file.getvalue())


def test_a_key_of_ten_thousand_characters_is_not_shown_whole(write):
    key = "k" * 10_000
    content = json.dumps({key: "好", "label": 1}) + '\n{"label": 1}\n'
    _, bad = read(write("a.jsonl", content), text_column=0)
    assert "is missing" in bad.problem
    assert len(bad.problem) < 300
