"""Broken input -> messages with the rule, what was found and where, and the remedy: python -m pytest
tests/data/test_bad_input.py"""

import csv
import gzip
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.read import ReadOptions
from app.data.report import render
from app.data.rows import read_rows
from app.data.table import Table, build_table
from app.data.tokens import open_store
from app.errors import InputError


class Case(NamedTuple):
    """A data file that breaks a rule, and what its message must hold besides the file's name."""

    name: str
    content: str | bytes
    message: list[str]
    settings: dict = {}
    labels: list[str] | None = None


# Files that stop a run whatever `on_bad_row` says.
WHOLE_FILE = {
    "missing text column": Case(
        "a.csv", "review,label\n好,1\n", ["line 1", "'reviews'", "mean 'review'?"],
        {"text_column": "reviews"},
    ),
    "missing label column": Case(
        "a.csv", "好,1\n", ["line 1", "no label column 7", "2 columns", "from 0"], {"label_column": 7},
    ),
    "missing column of objects": Case(
        "a.jsonl", '{"文本": "好", "心情": 1}\n', ["line 1", "'心事'", "mean '心情'?"],
        {"label_column": "心事"},
    ),
    "column by name where there are none": Case(
        "a.json", '[["好", 1]]', ["element 1", "'text'", "no names", "by number"], {"text_column": "text"},
    ),
    "one column twice": Case(
        "a.csv", "text,label\n好,1\n", ["'text' chosen twice", "--data.label_column"],
        {"label_column": "text"},
    ),
    "columns that are not clear": Case(
        "a.csv", "1,好,甲\n", ["line 1", "which column is the label", "3 columns", "--data.label_column"],
    ),
    "names that are not clear": Case(
        "a.csv", "甲,乙\n好,1\n", ["line 1", "which column is the text", "甲, 乙", "--data.text_column"],
        {"header": True},
    ),
    "tabs where commas are needed": Case(
        "a.csv", "好\t1\n", ["line 1", "only one column", "set --data.format tsv"],
    ),
    "no labels": Case(
        "a.jsonl", '{"text": "好"}\n', ["line 1", "only one column, text", "add a label to each text"],
    ),
    "half a header": Case(
        "a.csv", "text,y\n好,1\n", ["line 1", "header", "'text'", "--data.header true or false"],
    ),
    "two text columns": Case(
        "a.csv", "text,label,Text\n好,1,坏\n",
        ["line 1", "the text: found 2 columns named 'text', numbers 0, 2 of text, label, Text", "rename", "--data.text_column to a number"],
    ),
    "two label columns": Case(
        "a.tsv", "text\tlabel\tlabel\n好\t1\t2\n",
        ["line 1", "the label: found 2 columns named 'label', numbers 1, 2", "--data.label_column to a number"],
    ),
    "two chosen columns": Case(
        "a.csv", "话,话,label\n好,坏,1\n",
        ["line 1", "the text: found 2 columns named '话', numbers 0, 1", "--data.text_column"],
        {"text_column": "话"},
    ),
    "header in another encoding": Case(
        "a.csv", "编号,评论,标签\n1,好,甲\n".encode("gb18030"),
        ["line 1", "invalid byte 0xb1", "--data.encoding (gb18030"], {"text_column": "评论"},
    ),
    "key in another encoding": Case(
        "a.jsonl", '{"文本": "a", "label": 1}\n'.encode("big5"),
        ["line 1", "invalid byte 0xa4", "--data.encoding"], {"text_column": "text"},
    ),
    "empty file": Case("a.csv", "", ["no rows", "the file is empty"]),
    "blank lines only": Case("a.csv", "\n\r\n\n", ["no rows in the file"]),
    "byte order mark only": Case("a.tsv", "\ufeff", ["no rows in the file"]),
    "empty array": Case("a.json", "[]", ["no rows in the file"]),
    "header only": Case("a.csv", "text,label\n", ["no rows in the file, only a header"]),
    "gzip": Case("a.csv", gzip.compress(b"1,2\n"), ["text is needed", "gzip", "unpack"]),
    "gzip by its name": Case("a.csv.gz", gzip.compress(b"1,2\n"), ["text is needed", "gzip", "unpack"]),
    "spreadsheet": Case("a.csv", b"PK\x03\x04\x14\x00", ["text is needed", "Excel", "--data.format xlsx"]),
    "UTF-16": Case(
        "a.csv", "好,1\n".encode("utf-16"), ["gbk text is needed", "UTF-16", "--data.encoding utf-16"],
        {"encoding": "gbk"},
    ),
    "UTF-16 without a mark": Case(
        "a.csv", "好,1\n", ["byte order mark", "found b'", "--data.encoding to utf-8"],
        {"encoding": "utf-16"},
    ),
    "UTF-16 cut in a character": Case(
        "a.tsv", "好\t1\n坏\t1\n".encode("utf-16")[:-1], ["line 2", "not valid utf-16"],
        {"encoding": "utf-16"},
    ),
    "unknown ending": Case("a.dat", "好,1\n", ["cannot tell the format", ".csv", "--data.format"]),
    "broken JSON array": Case(
        "a.json", '[["好", 1],\n["坏" 0]]',
        ["line 2", "',' delimiter at column 6", "found '0]]'", "fix the file"],
    ),
    "JSON that ends early": Case(
        "a.json", '[["好", 1],\n["坏", 0]', ["line 2", "end of the file", "fix the file"],
    ),
    "JSON Lines read as JSON": Case(
        "a.json", '["好", 1]\n["坏", 0]\n', ["line 2", "--data.format jsonl"], {"format": "json"},
    ),
    "objects over several lines": Case(
        "a.json", '{\n"text": "好"\n}\n{\n"text": "坏"\n}\n', ["line 4", "[ before the first"],
    ),
    "objects between commas": Case(
        "a.json", '{"text": "好"},\n{"text": "坏"}\n', ["line 1", "[ before the first"],
    ),
    "several arrays of rows": Case(
        "a.json", '{"train": [["好", 1]], "dev": [["坏", 0]]}',
        ["several arrays of rows, train, dev", "separate file"],
    ),
    "JSON object": Case("a.json", '{"rows": []}', ["an array", 'found {"rows": []}', "--data.format jsonl"]),
    "JSON too deep": Case("a.json", "[" * 100_000, ["cannot be read", "recursion"]),
    "JSON integer too long": Case(
        "a.json", f'[["好", {"1" * 5000}]]', ["cannot be read", "digits", "fix the file"],
    ),
    "no Parquet": Case("a.parquet", b"PAR1 and nothing else", ["not a readable Parquet file"]),
}  # fmt: skip

GOOD = {"a.tsv": "今天\t1\n", "a.csv": "今天,1\n", "a.json": '["今天", 1],\n', "a.jsonl": '["今天", 1]\n'}
OBJECT = '{"text": "今天", "label": 1}\n'

# Invalid rows: each comes after one valid row and before another.
ROW = {
    "unknown label": Case(
        "a.tsv", "好\t高心\n", ["line 2", "unknown label '高心'", "mean '高兴'?", "known: 愤怒, 高兴", "--data.labels"],
        labels=["愤怒", "高兴"],
    ),
    "label id too high": Case("a.tsv", "好\t2\n", ["line 2", "unknown label '2'", "known: 愤怒, 高兴"], labels=["愤怒", "高兴"]),
    "unknown label 😀": Case("a.tsv", "好\t😀\n", ["line 2", "unknown label '😀'", "known: 😡, 1"], labels=["😡", "1"]),
    "empty text": Case("a.tsv", "\t1\n", ["line 2", "the text is empty", "fill it in or remove the row"]),
    "white space": Case("a.csv", '" \u3000 ",1\n', ["line 2", "the text is empty"]),
    "invisible text": Case("a.tsv", "\u200b \ufeff\u200d\x00\t1\n", ["line 2", "the text is empty"]),
    "empty label": Case("a.tsv", "好\t\n", ["line 2", "the label is empty", "fill it in or remove the row"]),
    "invalid UTF-8": Case("a.tsv", b"\xba\xc3\xb0\xa1\t1\n", ["line 2", "invalid byte 0xba", "text", "--data.encoding (gb18030"]),
    "invalid UTF-8 in the label": Case("a.tsv", b"a\t\xba\xc3\n", ["line 2", "invalid byte 0xba in the label"]),
    "invalid UTF-8 in JSON": Case("a.jsonl", b'["\xba\xc3", 1]\n', ["line 2", "invalid byte 0xba", "--data.encoding"]),
    "broken JSON line": Case("a.jsonl", '["好", 1\n', ["line 2", "not a valid JSON value", "'[\"好\", 1'", "one object or array"]),
    "JSON integer too long ": Case("a.jsonl", f'["好", {"1" * 5000}]\n', ["line 2", "not a valid JSON value", "digits"]),
    "JSON of no use": Case("a.jsonl", '"好"\n', ["line 2", "an array of text and label", "found '好'"]),
    "object among arrays": Case("a.jsonl", OBJECT, ["line 2", "an array of text and label", 'found {"text"']),
    "too many columns": Case("a.tsv", "好\t坏\t1\n", ["line 2", "2 columns are needed", "found 3: '好 | 坏 | 1'", "remove"]),
    "too few columns": Case("a.csv", "好\n", ["line 2", "2 columns are needed", "found 1: '好'", "fill in"]),
    "unquoted comma": Case("a.csv", "好,坏,1\n", ["line 2", "2 columns are needed", "in CSV, enclose it in double quotes"]),
    "text after a quoted field": Case("a.csv", '"好"坏,1\n', ["line 2", "not valid CSV", "double the quotes", "--data.quoting none"]),
    "carriage return": Case("a.csv", "好\r坏,1\n", ["line 2", "carriage return", "end lines with LF"]),
    "unpaired surrogate": Case("a.json", '["好\\ud83d", 1],\n', ["element 2", "unpaired surrogate U+D83D", "'好�'", "fix the file"]),
    "number for a text": Case("a.jsonl", "[5, 1]\n", ["line 2", "the text must be a string", "found 5", "--data.text_column"]),
    "null for a text": Case("a.json", "[null, 1],\n", ["element 2", "the text is empty, found null"]),
    "list for a text": Case("a.json", '[["好"], 1],\n', ["element 2", "the text must be a string", 'found ["好"]']),
    "float for a label": Case("a.json", '["好", 1.5],\n', ["element 2", "label must be a string or an integer", "found 1.5"]),
    "NaN for a label": Case("a.jsonl", '["好", NaN]\n', ["line 2", "label must be a string or an integer", "found NaN"]),
    "a share for a label": Case("a.jsonl", '["好", 0.5]\n', ["line 2", "label must be a string or an integer", "found 0.5"]),
    "null for a label": Case("a.json", '["好", null],\n', ["element 2", "label must be a string or an integer", "found null"]),
}  # fmt: skip


def read(path: Path, folder: Path, case: Case, skip: bool = False) -> Table:
    """Make the table of a file, here instead of in the process that `open_dataset` starts for it."""
    folder.mkdir()
    build_table(folder, str(path), ReadOptions(**case.settings), skip, case.labels)
    return Table(folder)


def put_between_good_rows(case: Case) -> bytes:
    good = GOOD[case.name].encode()
    content = good + (case.content if isinstance(case.content, bytes) else case.content.encode()) + good
    return b"[" + content.rstrip(b",\n") + b"]" if case.name == "a.json" else content


def refused(parts: list[str], function: Callable, *arguments) -> str:
    """Return the message of an InputError, which has all parts."""
    with pytest.raises(InputError) as error:
        function(*arguments)
    missing = [part for part in parts if part not in str(error.value)]
    assert not missing, f"{missing} missing in: {error.value}"
    return str(error.value)


@pytest.mark.parametrize("case", WHOLE_FILE.values(), ids=WHOLE_FILE.keys())
@pytest.mark.parametrize("skip", [False, True], ids=["error", "skip"])
def test_a_file_that_cannot_be_used(write, tmp_path, case, skip):
    path = write(case.name, case.content)
    refused([str(path), *case.message], read, path, tmp_path / "table", case, skip)


@pytest.mark.parametrize("case", ROW.values(), ids=ROW.keys())
def test_an_invalid_row(write, tmp_path, case):
    """One message for it, with the file, and `skip` leaves out this row alone and lists it with the same
    message."""
    path = write(case.name, put_between_good_rows(case))
    parts = [f"{path}, ", *case.message, "--data.on_bad_row skip"]
    message = refused(parts, read, path, tmp_path / "table", case)
    table = read(path, tmp_path / "skipped", case, skip=True)
    assert (table.num_rows, table.skipped, len(table.skipped_rows())) == (2, 1, 1)
    assert [table.text(row) for row in range(2)] == ["今天", "今天"]
    [row] = table.skipped_rows()
    assert row["line"] == 2
    assert f"{table.row_unit} 2: {row['problem']}" in message


def test_a_key_must_be_in_an_object_once(write):
    objects = ['{"text": "好", "label": "1"}', '{"text": "好", "label": "1", "id": 1, "id": 2}']
    first, second = read_rows(write("a.jsonl", "\n".join(objects)), ReadOptions())
    assert first.text == "好"
    assert "the key 'id' is twice in an object; keep one of them" in second.problem
    with pytest.raises(InputError, match=r"a.json: JSON that cannot be read \(the key 'id' is twice"):
        list(read_rows(write("a.json", f"[{', '.join(objects)}]"), ReadOptions()))


def test_repeated_columns_that_are_not_used_or_chosen_by_number_are_no_error(write):
    path = write("a.csv", "note,text,label,note,,\nx,好,1,y,,\n")
    assert [(row.text, row.label) for row in read_rows(path, ReadOptions())] == [("好", "1")]
    path = write("b.csv", "text,label,text\n好,1,坏\n")
    assert [row.text for row in read_rows(path, ReadOptions(text_column=2))] == ["坏"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,body\n7,好\n"),
        ("a.tsv", "7\t好\n"),
        ("a.jsonl", '["7", "好"]\n'),
        ("a.json", '[["7", "好"]]'),
    ],
)
def test_a_text_to_classify_is_not_guessed_among_unnamed_columns(write, name, content):
    def texts(**options):
        return [row.text for row in read_rows(path, ReadOptions(**options), need_label=False)]

    path, is_csv = write(name, content), name == "a.csv"
    first = "id, body" if is_csv else "7, 好"
    found = f"1: cannot tell which column is the text: found 2 columns without a header, the first values are {first}; "
    refused([str(path), found, "set --data.text_column"], texts)
    assert texts(text_column=1, header=True if is_csv else None) == ["好"]
    assert texts(text_pair_column=1, header=False if is_csv else None)[0] in ("7", "id")


def test_invalid_rows_are_listed_up_to_a_number(write, tmp_path):
    path = write("a.tsv", "好\t1\n" + "\t1\n" * 7 + "坏\t1\n" + "坏\n")
    parts = ["8 rows are invalid; fix them", "--data.on_bad_row skip", f"{path}, line 2: the text", "line 6"]
    message = refused([*parts, "and 3 more"], read, path, tmp_path / "table", ROW["empty text"])
    assert "line 7" not in message


def test_no_rows_are_left_if_all_are_invalid(write, tmp_path):
    parts = ["no rows left", "all 2 are invalid", "line 1: the text is empty", "line 2: the text is empty"]
    refused(parts, read, write("a.tsv", "\t1\n\t2\n"), tmp_path / "table", ROW["empty text"], True)


@pytest.mark.parametrize(
    ("rest", "num_rows"), [('真"开,1\n气,0\n', 2), ("真开,1\n", 1)], ids=["closed", "open"]
)
def test_all_lines_of_a_broken_record_are_counted(write, tmp_path, rest, num_rows):
    """A lone quote takes in the lines up to the next quote, or all of them: none of them may go uncounted."""
    path = write("a.csv", '今天,1\n"好,1\n坏,0\n' + rest)
    table = read(path, tmp_path / "table", ROW["empty text"], skip=True)
    assert [row["line"] for row in table.skipped_rows()] == [2, 3, 4]
    assert "from line 2 to 4" in table.skipped_rows()[0]["problem"]
    assert (table.skipped, table.num_rows) == (3, num_rows)


NOT_OPENED = {
    "tran.tsv": ["there is no such file", "mean 'train.tsv'?"],
    "tran": ["there is no such file", "mean 'train.tsv'?"],
    "数据/train.tsv": ["there is no such file", "no folder ", "/数据"],
    "n" * 300 + ".tsv": ["cannot be read", "too long"],
    # Every process reads the file, and its content decides the cache: a pipe can be read once only
    "pipe.csv": ["pipe.csv", "regular file is needed", "pipe", "save its content to a file"],
}


@pytest.mark.parametrize(("name", "parts"), NOT_OPENED.items(), ids=lambda value: str(value)[:20])
def test_a_file_that_is_not_there(tmp_path, write, name, parts):
    write("train.tsv", "好\t1\n")
    os.mkfifo(tmp_path / "pipe.csv")
    config = DataConfig(train=str(tmp_path / name), cache_dir=str(tmp_path / "cache"))
    refused([str(tmp_path)[:9], *parts], open_dataset, config)


@pytest.mark.parametrize("encoding", ["utf-9", "base64", "undefined", "汉字"])
def test_an_encoding_that_is_none(write, tmp_path, encoding):
    path, cache = str(write("a.csv", "好,1\n")), str(tmp_path / "cache")
    config = DataConfig(train=path, encoding=encoding, cache_dir=cache)
    refused(["data.encoding", f"'{encoding}'", "try utf-8 or gb18030"], open_dataset, config)


def test_a_cache_folder_that_cannot_be_made(write):
    path, cache = str(write("a.csv", "好,1\n坏,0\n")), str(write("cache", "a file"))
    refused(["data.cache_dir", cache], open_dataset, DataConfig(train=path, cache_dir=cache))


ROWS = "".join(f"text {number},{number % 2}\n" for number in range(20))
DATASET = {
    "label absent from train": (
        {"train": ROWS, "dev": "好,1\n坏,2\n", "labels": ["a", "b", "c"]},
        ["label 'c' is absent from train", "the first of its 1 dev rows", "dev.csv, line 2", "add training rows"],
    ),
    "label without any row": (
        {"train": ROWS, "labels": ["a", "b", "c"]},
        ["label 'c' is absent from train", "no rows at all", "data.labels"],
    ),
    "label of dev that train has not": (
        {"train": ROWS, "dev": "好,1\n坏,2\n"}, ["dev.csv, line 2", "unknown label '2'", "known: 0, 1"],
    ),
    "id among labels that were found": (
        {"train": ROWS.replace(",0", ",坏").replace(",1", ",好"), "test": "好,1\n"},
        ["test.csv, line 1", "unknown label '1'", "known: 坏, 好"],
    ),
    "classes with one text": (
        {"train": ROWS + "x,甲\ny,乙\nz,丙\n"},
        ["needs 3 different texts of each class", "3 of 5 classes have fewer", "'丙' with 1", "--data.split random"],
    ),
    "header that is not known as one": (
        {"train": "话,心情\n" + ROWS.replace(",0", ",坏").replace(",1", ",好")},
        ["train.csv, line 1: cannot tell whether this is a header", "the label '心情'", "--data.header true"],
    ),
    "texts for labels": (
        {"train": "".join(f"1,text {number}\n" for number in range(20))},
        ["'text 0' with 1", "data.label_column"],
    ),
    "one class": (
        {"train": "好,1\n坏,1\n真,1\n"}, ["at least two different labels", "found 1;", "data.label_column"],
    ),
    "nothing left to train on": (
        {"train": ROWS, "dev_size": 15, "test_size": 0.25},
        ["keep rows to train on", "has 20", "dev_size 15", "test_size 0.25", "take 20", "make them smaller"],
    ),
}  # fmt: skip


@pytest.mark.parametrize(("settings", "message"), DATASET.values(), ids=DATASET.keys())
def test_rows_that_make_no_dataset(write, tmp_path, settings, message):
    """These come out of the processes that prepare the data, whole."""
    names = settings.keys() & {"train", "dev", "test"}
    files = {name: str(write(f"{name}.csv", settings[name])) for name in names}
    refused(message, open_dataset, DataConfig(**settings | files, cache_dir=str(tmp_path / "cache")))
    assert not list((tmp_path / "cache").glob("*.aside-*"))


def test_skipped_rows_are_counted_and_listed_in_the_report(write, tmp_path, tiny_tokenizer):
    train = write("train.csv", ROWS + ",1\n好,坏,1\n")
    config = DataConfig(train=str(train), on_bad_row="skip", cache_dir=str(tmp_path / "cache"))
    dataset = open_dataset(config)
    stores = {
        name: open_store(split.table, tiny_tokenizer, 8, config.cache_dir)
        for name, split in dataset.splits.items()
    }
    text = render(dataset, stores)
    assert f"{train}: 20 rows, 2 skipped" in text
    assert "skipped line 21: the text is empty" in text
    assert "skipped line 22: 2 columns are needed" in text


def test_parquet_without_pyarrow(write, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    path = write("a.parquet", b"PAR1\x15")
    refused([str(path), "need pyarrow", "pip install pyarrow"], lambda: list(read_rows(path, ReadOptions())))


def test_skipped_rows_can_be_written_to_a_file(write, tmp_path):
    """A message holds no half characters, which no encoding could write."""
    content = json.dumps(["好", 1]) + '\n{"\\ud800": 1}\n["\\ud800", "\\ud801"]\n"\\ud83d"\n'
    table = read(write("a.jsonl", content), tmp_path / "table", ROW["empty text"], skip=True)
    with (tmp_path / "skipped.csv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([row["line"], row["problem"]] for row in table.skipped_rows())
    assert table.skipped == 3
