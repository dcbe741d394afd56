"""Broken and hostile input -> errors with a remedy."""

import gzip
import json
import os
import random
from pathlib import Path

import pandas as pd
import pytest

from app.data.build_table import build_table
from app.data.read import ReadOptions
from app.data.table import Table, open_folders
from app.errors import InputError
from tests.data.test_formats import read as rows_of

LONG = 200_000  # characters
ROWS = "".join(f"text {number},{number % 2}\n" for number in range(20))
DEV = "好,1\n坏,2\n"
NAMED = ROWS.replace(",0", ",坏").replace(",1", ",好")
PACKED = b"PK\x03\x04", b"BZh91AY", b"\xfd7zXZ\x00", b"\x28\xb5\x2f\xfd", b"\xd0\xcf\x11\xe0", b"PAR1\x15"
NO_ENCODINGS = ("idna", "punycode", "utf\0-8", "gbk2", "hex")
NO_LABELS = ("1.5", "NaN", "0.5", "null")
NO_ENCODING = "data.encoding must be a text encoding|try utf-8 or gb18030"
NO_LABEL = "label must be a string or an integer"
BY_NAME = {"text_column": "text", "label_column": "label"}
# Files that stop a run whatever on_bad_row says: name, content, parts of the message, settings
WHOLE_FILE = [
    ("a.csv", "review,label\n好,1\n", "line 1|'reviews'|mean 'review'?", {"text_column": "reviews"}),
    ("a.csv", "好,1\n", "line 1|no label column 7|2 columns|from 0", {"label_column": 7}),
    ("a.jsonl", '{"文本": "好", "心情": 1}\n', "line 1|'心事'|mean '心情'?", {"label_column": "心事"}),
    ("a.json", '[["好", 1]]', "element 1|'text'|2 columns without names", {"text_column": "text"}),
    ("a.csv", "text,label\n好,1\n", "must be different|--data.label_column", {"label_column": "text"}),
    ("a.csv", "1,好,甲\n", "line 1|which column is the text|1, 好, 甲|--data.label_column", {}),
    ("a.csv", "好\t1\n", "line 1|which column is the label|--data.format", {}),
    ("a.jsonl", '{"text": "好"}\n', "line 1|which column is the label: found the columns text", {}),
    ("a.csv", "text,y\n好,1\n", "line 1|header|text, y|--data.header true or false", {}),
    ("a.csv", "text,label,Text\n好,1,坏\n", "line 1|text: found the columns text, label, text|number", {}),
    ("a.csv", "话,话,label\n好,坏,1\n", "line 1|found the columns 话, 话", {"text_column": "话"}),
    ("a.csv", "編號,評論\n1,好\n".encode("big5"), "line 1|byte 0xbd|--data.enc", {"text_column": "評論"}),
    ("a.csv", "", "no rows|the file is empty", {}),
    ("a.csv", "\n\r\n\n", "no rows in the file", {}),
    ("a.tsv", "\ufeff", "no rows in the file", {}),
    ("a.json", "[]", "no rows in the file", {}),
    ("a.csv", "text,label\n", "no rows in the file, only a header", {}),
    ("a.csv.gz", gzip.compress(b"1,2\n", mtime=0), "text is needed|a packed file|unpack|--data.format", {}),
    *(
        ("a", magic + b"\n,1\n", "text is needed|a workbook|--data.format", {"format": "csv"})
        for magic in PACKED
    ),
    ("a.csv", "好,1\n", "utf-16 needs its byte order mark|to utf-8, utf-16-le", {"encoding": "utf-16"}),
    ("a.tsv", "好\t1\n坏\t1\n".encode("utf-16")[:-1], "line 1|not valid utf-16", {"encoding": "utf-16"}),
    ("a.tsv", "好\t1\n".encode("utf-32"), "text is needed|UTF-32", {}),
    *(("a.tsv", "a\t1\n", NO_ENCODING, {"encoding": name}) for name in NO_ENCODINGS),
    ("a.dat", "好,1\n", "cannot tell the format|.csv|--data.format", {}),
    ("a.json", '[["好", 1],\n["坏" 0]]', "line 2|',' delimiter|column 6|fix the file", {}),
    ("a.json", '["好", 1]\n["坏", 0]\n', "line 2|--data.format jsonl", {"format": "json"}),
    ("a.json", '{\n"text": "好"\n}\n{\n"text": "坏"\n}\n', "line 4|fix the file", {}),
    ("a.json", '{"train": [["好", 1]], "dev": [["坏", 0]]}', 'an array|found {"train"', {}),
    ("a.json", '{"text": {"0": "今天", "1": "气死"}}', 'an array of pairs|orient="records"', {}),
    ("a.json", "[" * 100_000, "cannot be read|recursion", {}),
    ("a.json", f'[["好", {"1" * 5000}]]', "cannot be read|digits|fix the file", {}),
    ("a.json", '[{"text": "好", "id": 1, "id": 2}]', "the key 'id' is twice in an object", {}),
    ("a.parquet", b"PAR1 and nothing else", "the file cannot be read", {}),
    ("a.csv", '"text"x,label\n今天,1\n今天,1\n', "line 1: the first row cannot be read", BY_NAME),
    ("a.csv", "," * 16_384, "line 1: a row may have at most 16,384 columns, found 16,385", {"format": "csv"}),
    ("a.csv", "x" * LONG + ",label,b\n1,2,3\n", "which column is the text", {"header": True}),
]

GOOD = {"a.tsv": "今天\t1\n", "a.csv": "今天,1\n", "a.json": '["今天", 1],\n', "a.jsonl": '["今天", 1]\n'}
# Invalid rows, which come after one valid row and before another: name, content, parts of the message, labels
ROW = [
    ("a.tsv", "好\t高心\n", "unknown label '高心'|mean '高兴'?|known: 愤怒, 1, 高兴|--data.labels", ["愤怒", "1", "高兴"]),
    ("a.tsv", "好\t2\n", "unknown label '2'|known: a, 1", ["a", "1"]),
    ("a.tsv", f"好\t{'正' * LONG}\n", "unknown label '正正", ["1", "x" * LONG]),
    ("a.tsv", "\t1\n", "the text is empty|fill it in or remove the row", None),
    ("a.csv", '" \u3000 ",1\n', "the text is empty", None),
    ("a.tsv", "\u200b \ufeff\u200d\x00\t1\n", "the text is empty", None),
    ("a.tsv", "好\t\n", "the label is empty|fill it in or remove the row", None),
    ("a.tsv", b"\xba\xc3\xb0\xa1\t1\n", "invalid byte 0xba|text|--data.encoding (gb18030", None),
    ("a.tsv", b"a\t\xba\xc3\n", "invalid byte 0xba in the label", None),
    ("a.jsonl", b'["\xba\xc3", 1]\n', "invalid byte 0xba|--data.encoding", None),
    ("a.jsonl", '["好", 1\n', "not a valid JSON value|'[\"好\", 1'|one object or array", None),
    ("a.jsonl", f'["好", {"1" * 5000}]\n', "not a valid JSON value|digits", None),
    ("a.jsonl", '{"text": "好", "id": 1, "id": 2}\n', "the key 'id' is twice in an object; keep one", None),
    ("a.jsonl", '"好"\n', "an array of text and label|found '好'", None),
    ("a.jsonl", '{"text": "今天", "label": 1}\n', 'an array of text and label|found {"text"', None),
    ("a.tsv", "好\t坏\t1\n", "2 columns are needed|found 3: '好 | 坏 | 1'|remove", None),
    ("a.csv", "好\n", "2 columns are needed|found 1: '好'|fill in", None),
    ("a.csv", "好,坏,1\n", "2 columns are needed|in CSV, enclose it in double quotes", None),
    ("a.csv", '"好"坏,1\n', "not valid CSV|double the quotes|--data.quoting never", None),
    ("a.json", '["好\\ud83d", 1],\n', "unpaired surrogate U+D83D|'好�'|fix the file", None),
    ("a.jsonl", "[5, 1]\n", "the text must be a string|found 5|--data.text_column", None),
    ("a.json", "[null, 1],\n", "the text is empty, found null", None),
    ("a.json", '[["好"], 1],\n', 'the text must be a string|found ["好"]', None),
    *(("a.jsonl", f'["好", {value}]\n', f"{NO_LABEL}|found {value}", None) for value in NO_LABELS),
]  # fmt: skip


def read(path: Path, folder: Path, options: ReadOptions, skip: bool = False, labels=None) -> Table:
    """Make the table of a file, here instead of in the process that is started for a large one."""
    folder.mkdir()
    build_table(folder, str(path), options, skip_bad_rows=skip, label_names=labels)
    return open_folders([folder])


def refused(parts: str, function, *arguments, **settings) -> str:
    """Return the message of an InputError, which has all parts, and is short enough to be read."""
    with pytest.raises(InputError) as error:
        function(*arguments, **settings)
    missing = [part for part in parts.split("|") if part not in str(error.value)]
    assert not missing, f"{missing} missing in: {error.value}"
    assert len(str(error.value)) < 2000
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "parts", "settings"), WHOLE_FILE, ids=lambda value: str(value)[:20]
)
@pytest.mark.parametrize("skip", [False, True], ids=["error", "skip"])
def test_a_file_that_cannot_be_used(write, tmp_path, name, content, parts, settings, skip):
    path = write(name, content)
    message = refused(parts, read, path, tmp_path / "table", ReadOptions(**settings), skip)
    assert str(path) in message or "data.encoding must be" in message


@pytest.mark.parametrize(("name", "content", "parts", "labels"), ROW, ids=lambda value: str(value)[:20])
def test_an_invalid_row(write, tmp_path, name, content, parts, labels):
    """One message names it; `skip` leaves out this row alone, and lists it with the same message."""
    good = GOOD[name].encode()
    content = content if isinstance(content, bytes) else content.encode()
    content = good + content + good
    path = write(name, b"[" + content.rstrip(b",\n") + b"]" if name == "a.json" else content)
    parts = f"{parts}|--data.on_bad_row skip"
    options = ReadOptions()
    message = refused(parts, read, path, tmp_path / "a", options, False, labels)
    table = read(path, tmp_path / "b", options, True, labels)
    assert (table.num_rows, table.skipped, table.texts([0, 1])) == (2, 1, ["今天", "今天"])
    [row] = table.skipped_rows()
    assert row.line == 2
    assert f"{path}, {table.unit} 2: {row.problem}" in message


@pytest.mark.parametrize(("name", "content"), [("a.csv", "id,body\n7,好\n"), ("a.jsonl", '["7", "好"]\n')])
def test_a_text_to_classify_is_not_guessed_among_unnamed_columns(write, name, content):
    path = write(name, content)
    is_csv = name == "a.csv"
    columns = "id, body" if is_csv else "7, 好"
    refused(f"which column is the text: found the columns {columns}", rows_of, path, False)
    assert rows_of(path, False, text_column=1, header=True if is_csv else None)[0].text == "好"
    assert rows_of(path, False, text_pair_column=1, header=False if is_csv else None)[0].text in ("7", "id")


def test_invalid_rows_are_listed_up_to_a_number_and_may_not_be_all(write, tmp_path):
    path = write("a.tsv", "好\t1\n" + "\t1\n" * 7 + "坏\t1\n" + "坏\n")
    parts = f"8 rows are invalid; fix them|--data.on_bad_row skip|{path}, line 2: the text|line 6|and 3 more"
    assert "line 7" not in refused(parts, read, path, tmp_path / "a", ReadOptions())
    parts = "no rows left|all 2 are invalid|line 1: the text is empty|line 2: the text is empty"
    refused(parts, read, write("b.tsv", "\t1\n\t2\n"), tmp_path / "b", ReadOptions(), True)


@pytest.mark.parametrize(("last_lines", "num_rows"), [('真"开,1\n气,0\n', 2), ("真开,1\n", 1)])
def test_all_lines_of_a_broken_record_are_counted(write, tmp_path, last_lines, num_rows):
    """A lone quote takes in the lines up to the next quote, or all of them: none of them may go uncounted."""
    table = read(
        write("a.csv", '今天,1\n"好,1\n坏,0\n' + last_lines), tmp_path / "table", ReadOptions(), True
    )
    assert [row.line for row in table.skipped_rows()] == [2, 3, 4]
    assert "from line 2 to 4" in table.skipped_rows()[0].problem
    assert (table.skipped, table.num_rows) == (3, num_rows)


# What is given as data files, and parts of the message
NO_FILES = [
    ("tran.tsv", "tran.tsv: there is no such file|mean 'train.tsv'?"),
    ("数据/train.tsv", "数据/train.tsv: there is no such file"),
    ("n" * 300 + ".tsv", "nnn…: cannot be read|too long"),
    # Every process reads the file, and its content decides the cache: a pipe can be read once only
    ("pipe.csv", "pipe.csv: a regular file is needed|pipe|save its content to a file"),
    ("link.csv", "link.csv: there is no such file"),
    ("loop.csv", "loop.csv: there is no such file"),
    ("folder", "folder: there are no files"),
    ("*.json", "*.json: there are no files; write a pattern in quotes"),
    ("splits", "files of one split are needed, found names of test, train"),
    (["train.tsv", "*.tsv"], "each named once, found train.tsv"),
    ([], "must be one or more, each named once, found none"),
    (["train.tsv", "x.tsv"], "x.tsv: there is no such file"),
]


@pytest.mark.parametrize(("value", "parts"), NO_FILES, ids=lambda value: str(value)[:20])
def test_what_is_no_data_file(empty_folder, write, opened, value, parts):
    for name in ("train.tsv", "splits/train-00000-of-00001.csv", "splits/test.csv"):
        write(name, "好\t1\n")
    Path("folder").mkdir()
    os.mkfifo("pipe.csv")
    Path("link.csv").symlink_to("nowhere.csv")
    Path("loop.csv").symlink_to("loop.csv")
    refused(parts, opened, train=value)


FEW = "needs 3 different texts of each class|3 of 5 classes have fewer|'丙' with 1; add rows|--data.split random"
ALL_HELD = {"train": ROWS, "dev_size": 15, "test_size": 0.25}
# Rows that make no dataset: parts of the message, files and settings
DATASET = [
    ("label 'c' is absent from train|add rows", {"train": ROWS, "dev": DEV, "labels": ["a", "b", "c"]}),
    ("dev.csv, line 2|unknown label '2'|known: 0, 1", {"train": ROWS, "dev": DEV}),
    (FEW, {"train": ROWS + "x,甲\ny,乙\nz,丙\n"}),
    ("train.csv, line 1: cannot tell whether|话, 心情|--data.header true", {"train": "话,心情\n" + NAMED}),
    ("two or more labels|found 1;|data.label_column", {"train": "好,1\n坏,1\n真,1\n"}),
    ("keep rows to train on|has 20|dev_size 15|test_size 0.25|take 20|make them smaller", ALL_HELD),
    ("keep rows to train on|has 20|dev_size 0|test_size 21", {"train": ROWS, "dev_size": 0, "test_size": 21}),
]


@pytest.mark.parametrize(("parts", "settings"), DATASET)
def test_rows_that_make_no_dataset(opened, tmp_path, parts, settings):
    """These come out of the processes that prepare the data, whole."""
    refused(parts, opened, "csv", **{"dev_size": 0.1, "test_size": 0.1} | settings)
    assert not list((tmp_path / "cache").glob("*.aside-*"))


def test_a_cache_folder_that_cannot_be_made(write, opened):
    cache = str(write("cache", "a file"))
    refused(f"data.cache_dir|{cache}", opened, "csv", train=ROWS, cache_dir=cache)


def test_skipped_rows_are_counted_and_listed_in_the_report_and_a_file(opened, report_of):
    """A message holds no half characters, which no encoding could write."""
    rows = [[f"text {number}", number % 2] for number in range(20)]
    rows += [["", 1], ["好", "坏", 1], ["\ud800", "\ud801"]]
    dataset = opened("jsonl", train="\n".join(map(json.dumps, rows)), on_bad_row="skip")
    text = report_of(dataset)
    assert "train.jsonl: 20 rows, 3 skipped" in text
    assert "skipped line 21: the text is empty" in text
    assert "skipped line 22: 2 columns are needed" in text
    "".join(row.problem for row in dataset.tables[0].skipped_rows()).encode()


THREE = pd.DataFrame({"text": ["好", "坏", "真"], "label": ["1", "0", "1"]})


def test_no_flipped_bit_of_a_parquet_file_changes_the_number_of_its_rows(write):
    """The footer says how many rows there are, in several places, and pyarrow believes any of them."""
    content = THREE.to_parquet(row_group_size=2, store_schema=False)
    messages = []
    draw = random.Random(0)
    for place in range(len(content)):
        flipped = bytearray(content)
        flipped[place] ^= 1 << draw.randrange(8)
        try:
            assert len(rows_of(write("a.parquet", bytes(flipped)))) == 3
        except InputError as error:
            messages.append(str(error))
    footer = "the Parquet file is damaged: its footer says"
    assert any(footer in message for message in messages)
    assert len(messages) < len(content)


def test_a_text_that_its_checksum_does_not_fit(write):
    options = {"compression": None, "use_dictionary": False, "write_statistics": False}
    content = THREE.to_parquet(**options, write_page_checksum=True)
    assert len(rows_of(write("a.parquet", content))) == 3
    path = write("a.parquet", content.replace("真".encode(), "假".encode(), 1))
    with pytest.raises(InputError, match="the file cannot be read: .*checksum"):
        rows_of(path)


def test_names_in_another_encoding(write, tmp_path):
    """Names from a Windows machine, unpacked on Linux, and a column whose name is half a character."""
    path = write(os.fsdecode("训练".encode("gb18030")), THREE.to_parquet())
    table = read(path, tmp_path / "table", ReadOptions())
    assert (table.num_rows, table.source) == (3, f"{tmp_path}/ѵ��")
    path = write("a.jsonl", '{"\\ud800": "好", "label": 1}\n')
    table = read(path, tmp_path / "half", ReadOptions(text_column=0))
    assert (table.num_rows, table.columns) == (1, "text '\\ud800', label 'label'")
