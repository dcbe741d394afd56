"""Files of every format and encoding -> rows."""

import datetime
import io
import json
import random
import sys
import zipfile
from pathlib import Path
from typing import get_args

import pandas as pd
import pytest

from app.config.schema import FormatName
from app.data.encodings import Stream, file_encoding
from app.data.read import FORMATS, ReadOptions, recognised
from app.data.row_reader import open_records, open_rows
from app.data.rows import Row
from app.errors import InputError
from app.prediction.sources import open_file, options_of_run
from app.prediction.trained_model import TrainedModel, trained_with

PAIRS = [("今天真开心", "高兴"), ("气死我了😀", "愤怒"), ("好，坏", "其他")]
OBJECTS = [{"id": 7, "label": label, "text": text} for text, label in PAIRS]
TWO = [("今天", "高兴"), ("气死", "愤怒")]
TSV = "".join(f"{text}\t{label}\n" for text, label in PAIRS)
CSV = TSV.replace("\t", ",")


def read(path, need_label=True, **options) -> list:
    return list(open_rows(path, ReadOptions(**options), need_label).rows())


def rows(path, **options) -> list[tuple[str, str]]:
    """Return (text, label) of each row, all of which must be valid."""
    return [(row.text, row.label) for row in read(path, **options)]


def content_of(format: str, pairs=PAIRS) -> bytes:
    """Return a file of a format with the columns id, label and text, as pandas writes it."""
    texts, labels = zip(*pairs, strict=True)
    frame = pd.DataFrame({"id": 7, "label": labels, "text": texts})
    file = io.BytesIO()
    if format == "parquet":
        return frame.to_parquet(row_group_size=2)
    if format == "xlsx":
        pytest.importorskip("openpyxl")
        frame.to_excel(file, index=False, engine="openpyxl")
        return file.getvalue()
    if format in ("json", "jsonl"):
        return frame.to_json(orient="records", lines=format == "jsonl", force_ascii=False).encode()
    if format == "arrow":
        frame.to_feather(file)
        return file.getvalue()
    if format == "fasttext":
        return "".join(f"__label__{label} {text}\n" for text, label in pairs).encode()
    if format == "text":
        return "\n".join(texts).encode()
    return frame.to_csv(sep=FORMATS[format].delimiter, index=False).encode()


@pytest.mark.parametrize("num_before", [0, 2046])
def test_rows_of_several_lines_and_broken_ones_have_the_number_of_their_line(write, num_before):
    """Blank lines, line ends of every kind in fields, two broken records of one and of two lines."""
    content = "text,label\n" + "好,a\n" * num_before
    content += '\n"一\n二",a\n"三\r四\r\n五",b\r\n\n"坏"了,b\n六,a\r"七\n坏"了,b\n\ufeff"八",a\n'
    found = []
    for row in read(write("rows.csv", content), format="csv"):
        text = row.text if isinstance(row, Row) else "-"
        found.append((row.line - num_before, text))
    assert found[num_before:] == [
        (3, "一\n二"),
        (5, "三\r四\r\n五"),
        (9, "-"),
        (10, "六"),
        (11, "-"),
        (12, "-"),
        (13, "八"),
    ]
    assert len(found) == num_before + 7


@pytest.mark.parametrize("format", FORMATS)
def test_the_contract_of_a_format(write, format):
    """Every format has the same rows, numbered as its unit says, keeps records, and obeys the limit."""
    path = write("rows", content_of(format))
    need_label = format != "text"
    all_rows = list(open_rows(path, ReadOptions(format), need_label).rows(with_records=True))
    assert [row.text for row in all_rows] == [text for text, _ in PAIRS]
    assert [row.label for row in all_rows] == [label if need_label else None for _, label in PAIRS]
    assert [row.line for row in all_rows] == [number + FORMATS[format].has_header for number in (1, 2, 3)]
    values = list(map(str, all_rows[0].record.values()))
    expected = {"text": ["1", PAIRS[0][0]], "fasttext": [*PAIRS[0]]}.get(format, ["7", "高兴", PAIRS[0][0]])
    assert values == expected
    limited = read(path, need_label, format=format, limit=2)
    assert [row.text for row in limited] == [text for text, _ in PAIRS[:2]]
    if FORMATS[format].magic:
        with pytest.raises(InputError, match="text is needed"):
            read(path, format="csv")
    for suffix in FORMATS[format].suffixes:
        assert recognised(write(f"A{suffix.upper()}", content_of(format)), ReadOptions()).format == format
    assert get_args(FormatName) == ("auto", *FORMATS)


@pytest.mark.parametrize("format", [name for name in FORMATS if name not in ("text", "fasttext", "xlsx")])
def test_a_flipped_bit_in_the_name_of_a_column_is_an_input_error_or_changes_the_name(write, format):
    """The names stand in a file as they are, in some formats several times. A name that is no text is refused
    like any other damage. A workbook is compressed, and its checksum finds the bit."""
    content = content_of(format)
    positions = []
    for name in (b"id", b"label", b"text"):
        start = content.find(name)
        while start >= 0:
            positions += range(start, start + len(name))
            start = content.find(name, start + 1)
    assert positions
    for position in positions:
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            try:
                row_list = read(write("rows", bytes(damaged)), format=format)
            except InputError:
                continue
            assert row_list


def case(name, content, expected, lines=None, **options) -> tuple:
    """Return a file, the rows that it has, and their lines, with these settings."""
    return name, content, expected, lines, options


NAMED = "id,话,心情\n1,今天,高兴\n2,气死,愤怒\n"
KEYS = '{"话": "今天", "甲": 1, "心情": "高兴"}\n{"心情": "愤怒", "话": "气死", "甲": 2}\n'
ANY_ORDER = '{"id": 1, "text": "今天", "label": "高兴"}\n\n{"label": 2, "when": null, "text": "气死"}\n'
QUOTES = 'label,text\n高兴,"好,""坏"""\n愤怒,"气死\n我\r\n了"\n"其他",好\n'
OF_QUOTES = [('好,"坏"', "高兴"), ("气死\n我\r\n了", "愤怒"), ("好", "其他")]
SPACES = '[["  今天 真\u3000开 心 \\n", "高兴"]]'
CASES = {
    "columns of one name": case("a.csv", "note,text,label,note,,\nx,今天,高兴,y,,\n", TWO[:1]),
    "one of two by number": case("a.csv", "text,label,text\nx,高兴,今天\n", TWO[:1], text_column=2),
    "one usual name": case("a.csv", "text,心情\n今天,高兴\n", TWO[:1], header=True),
    "no header": case("a.tsv", "text\tlabel\n今天\t高兴\n", [("text", "label"), TWO[0]], header=False),
    "a header": case("a.tsv", "甲\t乙\n今天\t高兴\n", TWO[:1], header=True, text_column=0),
    "keys in any order": case("a.jsonl", ANY_ORDER, [("今天", "高兴"), ("气死", "2")], [1, 3]),
    "chosen keys": case("a.jsonl", KEYS, TWO, text_column="话", label_column="心情"),
    "keys by number": case("a.jsonl", KEYS, TWO, text_column=0, label_column=2),
    "no last line end": case("a.tsv", "\n" + TSV.rstrip("\n"), PAIRS, [2, 3, 4]),
    "blank lines": case("a.csv", "\n\n" + CSV.replace("\n", "\n\n") + "\r\n", PAIRS, [3, 5, 7]),
    "quotes": case("a.csv", QUOTES, OF_QUOTES, [2, 3, 6]),
    "quotes of tabs": case("a.tsv", '"今天\t1\n好"坏\t2\n', [('"今天', "1"), ('好"坏', "2")], [1, 2]),
    "quotes on": case("a.tsv", '"今\t天"\t高兴\n', [("今\t天", "高兴")], quoting="double"),
    "quotes off": case("a.csv", '"今天,1\n真"开,1\n', [('"今天', "1"), ('真"开', "1")], quoting="never"),
    "the first rows only": case("a.tsv", TSV + "broken\n", PAIRS, limit=3),
    "white space": case("a.json", SPACES, [("今天 真\u3000开 心", "高兴")]),
    "no white space": case("a.json", SPACES, [("今天真开心", "高兴")], remove_spaces=True),
}
for header in ("text,label", "sentence,category", "文本,标签", " Text ,LABEL", "内容,类别"):
    CASES[f"the header {header}"] = case("a.csv", f"{header}\n{CSV}", PAIRS, [2, 3, 4])
for text, label in (("话", "心情"), (1, 2), (-2, -1), ("话", 2), (1, "心情")):
    columns = {"text_column": text, "label_column": label, "header": True}
    CASES[f"the columns {text}, {label}"] = case("a.csv", NAMED, TWO, **columns)
for value, label in (("-3", "-3"), ("3.0", "3"), ('"03"', "03"), ('" 高 "', "高"), ('"1.5"', "1.5")):
    CASES[f"the label {value}"] = case("a.jsonl", f'["今天", {value}]\n', [("今天", label)])
# Rows between carriage returns were once read as a single row, and all others were lost
for end in ("\n", "\r\n", "\r"):
    CASES[f"{end!a} in CSV"] = case("a.csv", CSV.replace("\n", end), PAIRS, [1, 2, 3])
    CASES[f"{end!a} in JSON"] = case("a.json", json.dumps(PAIRS, indent=0).replace("\n", end), PAIRS)
    CASES[f"{end!a} in TSV"] = case("a.tsv", f"今天\t高兴{end}{end}气死\t愤怒{end}", TWO, [1, 3])
for encoding in ("utf16", "UTF_16", "U16", "GB18030-2000", "GBK", "Utf-8"):
    content = "今天\t高兴\n气死\t愤怒\n".encode(encoding)
    CASES[f"the encoding {encoding}"] = case("a.tsv", content, TWO, encoding=encoding)


@pytest.mark.parametrize(("name", "content", "expected", "lines", "options"), CASES.values(), ids=CASES)
def test_rows_and_their_lines(write, name, content, expected, lines, options):
    path = write(name, content)
    assert rows(path, **options) == expected
    assert lines in (None, [row.line for row in read(path, **options)])


LAYOUTS = {
    "lines of objects": "\n".join(json.dumps(record, ensure_ascii=False) for record in OBJECTS),
    "lines of arrays": "\ufeff" + "\r\n\r\n".join(json.dumps(pair) for pair in PAIRS),
    "one array": json.dumps(OBJECTS, ensure_ascii=False),
    "one indented array": "\n" + json.dumps(PAIRS, indent=2),
    "an array with a row on each line": "[" + ",\n".join(json.dumps(record) for record in OBJECTS) + "]\n",
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt", "a.csv", "a.tsv", "a.data", "a"])
@pytest.mark.parametrize("layout", [*LAYOUTS, "parquet", "xlsx"])
def test_json_of_any_layout_parquet_and_workbooks_under_any_name(write, name, layout):
    path = write(name, LAYOUTS.get(layout) or content_of(layout))
    assert rows(path) == PAIRS
    format = "jsonl" if "lines of" in layout else "json"
    assert options_of_run(path, TrainedModel(path.parent)).format == (format if layout in LAYOUTS else layout)


def test_rows_longer_than_what_is_looked_at(write):
    objects = [{"text": "好" * 500_000, "label": 1}, {"text": "坏", "label": 0}]
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in objects)
    assert len(rows(write("a.jsonl", text))) == 2
    many = json.dumps([{"text": "好" * 50, "label": 1}] * 9000, ensure_ascii=False)
    assert recognised(write("b.txt", many), ReadOptions()).format == "json"


# The format that two lines with the same separator show; else it is that of the name
NOT_JSON = {
    "[微笑] 今天真好\t1\n{doge} 气死\t0\n": "tsv",
    "[1]\n[2]\n": None,
    "[1]\t1\n": None,
    "[]\n{}\n": None,
    '{"a": 1}\t1\n["b"]\t0\n': "tsv",
    '["好"] 他说\t1\n': None,
    '["好", 1\n["坏", 0]\n': "csv",
    '{"a":\t1\n': None,
    '{"a": 1}\n今天\n': None,
}


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv"])
@pytest.mark.parametrize(("content", "format"), NOT_JSON.items())
def test_texts_with_brackets_are_not_json(write, name, content, format):
    of_name = "csv" if name == "a.csv" else "tsv"
    assert recognised(write(name, content), ReadOptions()).format == (format or of_name)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_and_byte_order_marks(write, name, encoding):
    content = content_of(name[2:] if name != "a.txt" else "jsonl").decode()
    settings = {} if encoding == "utf-8-sig" else {"encoding": encoding}
    assert rows(write(name, content.encode(encoding)), **settings) == PAIRS
    if encoding[-3:] in ("-le", "-be"):
        # A mark is never text
        assert rows(write(name, ("\ufeff" + content).encode(encoding)), **settings) == PAIRS


WORDS = ("今天", "真好", "太慢了", "味道", "老板人不错", "送餐", "时间", "价格", "推荐", "失望", "😀", "ＡＢ")
REVIEWS = [("，".join(random.Random(n).sample(WORDS, 4)) + f"第{n}次", f"{n % 2}") for n in range(60)]
BARE = "".join(f"{text}\t{label}\n" for text, label in REVIEWS)
CONTENTS = {f"a.{format}": content_of(format, REVIEWS).decode() for format in ("csv", "tsv", "jsonl")}
CONTENTS["a.txt"] = BARE


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_in_gb18030_is_read_as_the_same_one_in_utf8(write, opened, name):
    for encoding in ("utf-8", "gb18030"):
        path = write(f"{encoding}/{name}", CONTENTS[name].encode(encoding))
        assert file_encoding(path, "utf-8") == encoding
        table = opened(train=str(path)).files["train"]
        assert ("; encoding gb18030" in table.columns) == (encoding == "gb18030")
        # It is read again, by `predict` and `suggest`, as each file is, whatever the run's were
        column = 0 if name == "a.txt" else "text"
        settings = {"train": str(path), "encoding": "utf-8", "text_column": column}
        source = open_file(str(path), trained_with(path.parent, settings), {})
        texts = [table.row(row).text for row in range(table.num_rows)]
        assert [row.text for row in source.rows("error")] == texts == [text for text, _ in REVIEWS]
        assert ("encoding gb18030" in source.summary(source.scanned("error").scan)) == (encoding == "gb18030")
        assert table.label_values == ["0", "1"]


TRADITIONAL = "今天天氣真好\t1\n這家餐廳的服務態度很差\t0\n臺灣的夜市小吃種類很多\t1\n手機的螢幕有刮痕\t0\n"
NOT_GB18030 = {
    "bad byte": (BARE.encode().replace("第9次".encode(), b"\xff"), 10),
    "lines of GBK": (BARE.encode() + "真好\t1\n".encode("gb18030"), 61),
    "lines of UTF-8": (BARE.encode("gb18030") + "真好\t1\n".encode(), 1),
    "mark": (b"\xef\xbb\xbf" + BARE.encode("gb18030"), 1),
    "Big5": (TRADITIONAL.encode("big5"), 1),
    "Korean": ("오늘 날씨가 정말 좋아요\t1\n".encode("euc_kr"), 1),
    "Japanese": ("今日はとても天気がいいです\t1\n".encode("euc_jp"), 1),
    "German": ("schön für Übergröße\t1\n".encode("latin-1"), 1),
}


@pytest.mark.parametrize(("content", "line"), NOT_GB18030.values(), ids=NOT_GB18030)
def test_other_encodings_are_errors_with_their_line(write, content, line):
    path = write("a.tsv", content)
    message = r"(.|\n)*invalid byte.*--data\.encoding.*big5, utf-16-le"
    with pytest.raises(InputError, match=rf"a\.tsv, line {line}: {message}"):
        list(open_file(str(path), trained_with(path.parent, {"text_column": 0}), {}).rows("error"))


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_named(write, encoding):
    path = write("a.tsv", BARE.encode(encoding))
    with pytest.raises(InputError, match=rf"a\.tsv: {encoding} text .* set --data\.encoding {encoding}$"):
        file_encoding(path, "utf-8")
    assert file_encoding(path, encoding) == encoding


def test_lines_with_a_bad_byte_in_gb18030_are_named(write):
    content = BARE.encode("gb18030")
    for text in ("第9次", "第57次"):
        content = content.replace(text.encode("gb18030"), b"\xff")
    path = write("a.tsv", content)
    message = r"a\.tsv: GB18030 text, but for invalid bytes in lines 10, 58; .* --data\.on_bad_row skip"
    with pytest.raises(InputError, match=message):
        file_encoding(path, "utf-8")
    rows = list(
        open_file(str(path), trained_with(path.parent, {"text_column": 0}), {"encoding": "gb18030"}).rows(
            "skip"
        )
    )
    assert len(rows) == len(REVIEWS) - 2


@pytest.mark.parametrize("text", ["привет, как дела", "καλημέρα σε όλους", "שלום לכולם"])
def test_utf_8_of_two_bytes_a_character_is_utf_8(write, text):
    assert file_encoding(write("a.tsv", f"{text}\t1\n".encode() * 20), "utf-8") == "utf-8"


@pytest.mark.parametrize("encoding", ["gb18030", "gbk", "GB2312", "big5"])
def test_utf_8_with_chinese_characters_is_utf_8_whatever_was_set(write, opened, encoding):
    """Even if its bytes are valid in the other encoding, and mean other characters there."""
    rows = "今天真开\t1\n气死我了\t0\n好难过啊\t1\n"
    path = write("a.tsv", rows.encode())
    settings = {"encoding": encoding, "text_column": 0, "train": "a.tsv"}
    source = open_file(str(path), trained_with(path.parent, settings), {})
    assert [row.text for row in source.rows("error")] == ["今天真开", "气死我了", "好难过啊"]
    assert f"; encoding utf-8, not {encoding} as set" in source.summary(source.scanned("error").scan)
    in_chinese = write("b.tsv", rows.encode("gb18030"))
    assert file_encoding(in_chinese, "gb18030") == "gb18030"
    # The test file of a run whose train file is in GB18030
    table = opened(train=str(in_chinese), test=str(path), encoding="gb18030").files["test"]
    assert table.row(0).text == "今天真开"
    assert "encoding utf-8, not gb18030" in table.columns


def test_a_stream_of_utf_8_is_read_as_such_whatever_the_run_s_encoding(write):
    """A pipe into `predict` of a model whose train file was in GB18030; its last character is cut in half
    where it is looked at."""
    trained = trained_with(write("a.csv", b"").parent, {"encoding": "gb18030", "text_column": 0})
    for text, encoding, is_read_as in [
        ("今天真开\n气死我了\n", "utf-8", "utf-8"),
        ("今天真开\n气死我了\n", "utf-8-sig", "utf-8"),
        ("今天真开\n气死我了\n", "utf-16", "utf-16"),
        ("今天真开\n气死我了\n", "gb18030", "gb18030"),
        ("a" + "今" * 200_000 + "\n", "utf-8", "utf-8"),
    ]:
        stream = Stream("<stdin>", io.BufferedReader(io.BytesIO(text.encode(encoding))))
        options = options_of_run(stream, trained)
        assert options.encoding == is_read_as
        assert [row.text for row in open_rows(stream, options, need_label=False).rows()] == text.split()


def test_three_short_lines_of_gb18030_are_read(write):
    path = write("a.csv", "评论内容\n很好\n太差\n".encode("gb18030"))
    assert [row.text for row in open_file(str(path), TrainedModel(path.parent), {}).rows("error")] == [
        "很好",
        "太差",
    ]


def test_a_mark_inside_of_a_file_is_no_part_of_a_value(opened):
    first = "\ufefftext,label\n" + "".join(f"{text},{label}\n" for text, label in REVIEWS)
    with pytest.raises(InputError, match="line 62: the names of the columns come again"):
        opened("csv", train=(first + first).encode())
    second = "\ufeff" + "".join(f"{text},{label}\n" for text, label in REVIEWS)
    table = opened("csv", train=(first + second).encode()).files["train"]
    assert table.label_values == ["0", "1"]
    assert table.row(60).text == REVIEWS[0][0]


def test_what_comes_after_much_ascii_counts_too(write):
    ascii_only = b"ok\t1\n" * 300_000
    path = write("a.tsv", ascii_only + BARE.encode("gb18030"))
    assert (file_encoding(path, "UTF8"), file_encoding(path, "big5")) == ("gb18030", "big5")
    assert file_encoding(write("b.tsv", ascii_only), "utf-8") == "utf-8"


SHEET = [["内容", "类别"], ["今天真开心", "高兴"], ["气死我了😀", "愤怒"], ["第一行\n第二行", "其他"]]
OF_SHEET = [tuple(row) for row in SHEET[1:]]


@pytest.fixture
def book(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install -r requirements/dev.txt")

    def write(*sheets, change=lambda sheet: None):
        """Write a workbook of sheets, each a list of rows, and return its path."""
        workbook = openpyxl.Workbook()
        for number, rows in enumerate(sheets):
            sheet = workbook.worksheets[0] if number == 0 else workbook.create_sheet(f"表{number}")
            for row in rows:
                sheet.append(row)
        change(workbook.active)
        workbook.save(tmp_path / "a.xlsx")
        return tmp_path / "a.xlsx"

    return write


def test_what_a_sheet_holds(book):
    header = [None, "id", "标签", "文本", "备注"]
    blank = [None] * 5
    path = book([], [header, [], [0, 7, 1, "今天", None], [], [1, 8, 0.0, "气死", "?"], blank], [])
    assert rows(path) == [("今天", "1"), ("气死", "0")]
    assert [row.line for row in read(path)] == [3, 5]
    # A column of notes without a title is kept
    notes = [["文本", "标签"], ["今天", "高兴", "看看"], ["气死", "愤怒"]]
    assert [row.record for row in open_rows(book(notes), ReadOptions()).rows(with_records=True)] == [
        {"文本": "今天", "标签": "高兴", "": "看看"},
        {"文本": "气死", "标签": "愤怒", "": None},
    ]
    # Without column names
    sheet = [["今天", "高兴"], ["气死", "愤怒", "a note beside the table"]]
    assert rows(book(sheet)) == TWO
    assert rows(book([["甲", "乙"], *sheet]), text_column="甲") == TWO
    assert [row.text for row in read(book([["今天"], ["好"]]), need_label=False)] == ["今天", "好"]


def test_texts_are_as_excel_shows_them(book):
    def change(sheet):
        sheet["A2"] = "=1+1"
        sheet["A2"].data_type = "s"
        sheet["A3"] = "行_x000D_\n末_x005F_x000D_"

    path = book([["text", "label"], ["", "1"], ["", "0"]], change=change)
    assert rows(path) == [("=1+1", "1"), ("行\r\n末_x000D_", "0")]


NO_TEXT = "the text is empty, found null"
NO_LABEL = "the label must be a string or an integer, found null"
ODD_ROWS = [
    (["=A1&B1", 1], NO_TEXT),
    ([666, 1], None),
    ([datetime.date(2026, 1, 2), 1], 'found "2026-01-02'),
    (["#N/A", 1], NO_TEXT),
    ([None, 1], NO_TEXT),
    (["好", None], NO_LABEL),
    (["合并", "正"], None),
    (["合并", None], NO_LABEL),
    # A date is a label
    (["合并", datetime.datetime(2026, 1, 2, 3)], None),
    ([" \u3000", 1], NO_TEXT),
]


def test_cells_that_are_no_text_are_named(book):
    sheet = [["text", "label"], *(row for row, _ in ODD_ROWS)]
    path = book(sheet, change=lambda sheet: sheet.merge_cells("B8:B9"))
    for row, (row_of_sheet, problem), line in zip(read(path), ODD_ROWS, range(2, 12), strict=True):
        assert row.line == line
        if problem is None:
            assert row.text == str(row_of_sheet[0])
        else:
            assert problem in row.problem


NO_WORKBOOK = "the file cannot be read: .*a workbook without a password"
REFUSED = [
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000), NO_WORKBOOK),
    (b"PK\x03\x04 nothing", NO_WORKBOOK),
    (b"text,label\n", NO_WORKBOOK),
    ([[], []], "a sheet with values is needed, found none in the workbook; fill it in"),
    ([SHEET[:1]], "only a header"),
    ([[["评论数据集"], *SHEET]], "which column is the label.*remove what is above a header"),
]


@pytest.mark.parametrize(("content", "message"), REFUSED)
def test_files_that_are_no_workbook_and_workbooks_without_one_sheet_of_rows(write, book, content, message):
    path = write("a.xlsx", content) if isinstance(content, bytes) else book(*content)
    with pytest.raises(InputError, match=message):
        read(path)


def facts_of(path: Path, **options) -> str:
    """Return what people are told of the columns of a file."""
    return open_rows(path, ReadOptions(**options)).columns.facts.in_english()


def test_the_sheet_of_a_workbook(book):
    """Numbers count all sheets from 0, as those of columns do; without a setting it is the first one with
    values that people see, and the others are named."""

    def hide(sheet):
        sheet.sheet_state = "hidden"

    header = ["文本", "标签"]
    tables = ([header, ["今天", "高兴"]], [header, ["气死", "愤怒"]])
    path = book([["a note"], ["another"]], [], *tables, change=hide)
    columns = "text '文本', label '标签'"
    others = "only its sheet '表2' is read, not 'Sheet', '表3': --data.sheet names another one"
    assert rows(path) == [("今天", "高兴")]
    assert facts_of(path) == f"{columns}; {others}"
    assert open_rows(path, ReadOptions()).columns.assumed["sheet"] == "表2"
    for sheet in ("表3", 3):
        assert rows(path, sheet=sheet) == [("气死", "愤怒")]
        assert facts_of(path, sheet=sheet) == f"{columns}; sheet '表3'"
        assert "sheet" not in open_rows(path, ReadOptions(sheet=sheet)).columns.assumed
    for sheet in ("表4", 4):
        rule = (
            f"there is no sheet {sheet!r}, the first one is number 0; set data.sheet to one of 'Sheet', '表"
        )
        with pytest.raises(InputError, match=rule):
            read(path, sheet=sheet)
        assert rows(path, sheet=sheet, sheet_if_there=True) == [("今天", "高兴")]
        assert others in facts_of(path, sheet=sheet, sheet_if_there=True)
    with pytest.raises(InputError, match="a sheet with values is needed, found none in sheet '表1'"):
        read(path, sheet="表1")
    path = book([header, ["今天", "高兴"]])
    assert facts_of(path) == columns
    assert facts_of(path, sheet="表3", sheet_if_there=True) == f"{columns}; sheet 'Sheet'"


def test_a_sheet_that_is_set_for_a_file_without_sheets_is_named(write):
    path = write("a.csv", "文本,标签\n今天,高兴\n气死,愤怒\n")
    columns = "text '文本', label '标签'"
    assert facts_of(path, sheet="表1") == f"{columns}; no workbook, so data.sheet '表1' is not used"
    assert facts_of(path, sheet="表1", sheet_if_there=True) == columns


def test_fixes_are_in_a_workbook_of_one_sheet(book):
    table = [["text", "label"], ["今天", "高兴"]]
    with pytest.raises(InputError, match="one sheet with values is needed, found 'Sheet', '表1'; save it"):
        open_records(book(table, table), ReadOptions())
    assert open_records(book(table, []), ReadOptions()).names == ["text", "label"]


def test_a_workbook_without_calamine(book, monkeypatch):
    path = book(SHEET)
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match="Excel files need a package: pip install python-calamine"):
        read(path)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 1000), marks=pytest.mark.slow)], ids=str)
def test_damaged_workbooks_give_rows_or_one_error(book, seeds):
    """Bits of the archive, or of the XML inside it, are changed."""
    path = book(SHEET)
    whole = path.read_bytes()
    messages = []
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    for seed in seeds:
        draw = random.Random(seed)
        name = draw.choice(list(entries))
        content = bytearray(entries[name] if seed % 2 else whole)
        for _ in range(4):
            content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
        if seed % 2:
            with zipfile.ZipFile(path, "w") as file:
                for entry, old in entries.items():
                    file.writestr(entry, content if entry == name else old)
        else:
            path.write_bytes(content)
        try:
            read(path)
        except InputError as error:
            messages.append(str(error))
    assert all(len(message) < 1000 for message in messages)
    assert len(messages) > len(seeds) / 4


ODS = """<?xml version="1.0" encoding="UTF-8"?>
<office:document-content xmlns:office="urn:oasis:names:tc:opendocument:xmlns:office:1.0"
 xmlns:table="urn:oasis:names:tc:opendocument:xmlns:table:1.0"
 xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"><office:body><office:spreadsheet>
<table:table table:name="表">{rows}</table:table>
</office:spreadsheet></office:body></office:document-content>"""
CELL = '<table:table-cell office:value-type="string"><text:p>{}</text:p></table:table-cell>'


def test_a_sheet_of_libreoffice(tmp_path):
    pytest.importorskip("python_calamine")
    lines = ["".join(map(CELL.format, row)) for row in SHEET[:3]]
    content = ODS.format(rows="".join(f"<table:table-row>{line}</table:table-row>" for line in lines))
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("content.xml", content)
        file.writestr("META-INF/manifest.xml", "<manifest/>")
    assert recognised(tmp_path / "a.ods", ReadOptions()).format == "xlsx"
    assert rows(tmp_path / "a.ods") == OF_SHEET[:2]
