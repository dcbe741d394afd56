"""Files of every format and encoding -> rows: python -m pytest tests/data/test_formats.py"""

import csv
import io
import json
import random
from typing import NamedTuple, get_args

import pyarrow
import pytest
from pyarrow import parquet

from app.config.data_settings import FormatName
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.files import file_encoding
from app.data.read import FORMATS, BadRow, ReadOptions, options_of_run, recognised
from app.data.rows import RowReader
from app.data.table import open_table
from app.errors import InputError
from app.prediction.open_model import settings_of_reading
from app.prediction.sources import open_file
from tests.spoken import spoken_in

PAIRS = [("今天真开心", "高兴"), ("气死我了😀", "愤怒"), ("好，坏", "其他")]
OBJECTS = [{"id": 7, "label": label, "text": text} for text, label in PAIRS]
TWO = [("今天", "高兴"), ("气死", "愤怒")]
TSV = "".join(f"{text}\t{label}\n" for text, label in PAIRS)
CSV = TSV.replace("\t", ",")


def rows(path, **options):
    """Return (text, label) of each row; any bad row fails the test."""
    found = list(RowReader(path, ReadOptions(**options)).rows())
    assert not [row for row in found if isinstance(row, BadRow)]
    return [(row.text, row.label) for row in found]


def content_of(format: str, pairs=PAIRS) -> bytes:
    """Return a file of a format with the columns id, label and text."""
    table = [["id", "label", "text"], *([7, label, text] for text, label in pairs)]
    objects = [dict(zip(table[0], row, strict=True)) for row in table[1:]]
    file, text = io.BytesIO(), io.StringIO(newline="")
    if format == "parquet":
        parquet.write_table(pyarrow.Table.from_pylist(objects), file, row_group_size=2)
    elif format == "xlsx":
        workbook = pytest.importorskip("openpyxl").Workbook()
        for row in table:
            workbook.active.append(row)
        workbook.save(file)
    elif format in ("json", "jsonl"):
        dumped = [json.dumps(record, ensure_ascii=False) for record in objects]
        text.write(f"[{','.join(dumped)}]" if format == "json" else "\n".join(dumped))
    elif format == "text":
        text.write("\n".join(one for one, _label in pairs))
    else:
        csv.writer(text, delimiter=FORMATS[format].delimiter, lineterminator="\n").writerows(table)
    return file.getvalue() or text.getvalue().encode()


def test_the_setting_names_the_formats_there_are():
    assert get_args(FormatName) == ("auto", *FORMATS)


@pytest.mark.parametrize("format", FORMATS)
def test_the_contract_of_a_format(write, format):
    """Every format has the same rows, numbered as its unit says, keeps records, and obeys the limit."""
    path, need_label = write("rows", content_of(format)), format != "text"
    found = list(RowReader(path, ReadOptions(format), need_label).rows(keep_records=True))
    assert [row.text for row in found] == [text for text, _ in PAIRS]
    assert [row.label for row in found] == [label if need_label else None for _, label in PAIRS]
    assert [row.line for row in found] == [number + FORMATS[format].has_header for number in (1, 2, 3)]
    record = found[0].record
    values = list(record.values()) if isinstance(record, dict) else record
    assert list(map(str, values)) == ["7", "高兴", PAIRS[0][0]] or values == PAIRS[0][0]
    limited = list(RowReader(path, ReadOptions(format, limit=2), need_label).rows())
    assert [row.text for row in limited] == [text for text, _ in PAIRS[:2]]
    for suffix in FORMATS[format].suffixes:
        assert recognised(write(f"A{suffix.upper()}", content_of(format)), ReadOptions()).format == format


class Case(NamedTuple):
    """A file, its settings, the rows that it has, and their lines."""

    name: str
    content: str
    expected: list[tuple[str, str]]
    options: dict = {}
    lines: list[int] | None = None


KEYS = '{"话": "今天", "甲": 1, "心情": "高兴"}\n{"心情": "愤怒", "话": "气死", "甲": 2}\n'
NAMED = "id,话,心情\n1,今天,高兴\n2,气死,愤怒\n"
CASES = {
    "tabs": Case("a.txt", TSV, PAIRS),
    "commas": Case("a.csv", CSV, PAIRS),
    "other columns": Case("a.csv", "id,label,text,when\n7,高兴,今天,x\n8,愤怒,气死,y\n", TWO, {}, [2, 3]),
    "one usual name": Case("a.csv", "text,心情\n今天,高兴\n", TWO[:1], {"header": True}),
    "no header": Case("a.tsv", "text\tlabel\n今天\t高兴\n", [("text", "label"), TWO[0]], {"header": False}),
    "a header": Case("a.tsv", "甲\t乙\n今天\t高兴\n", TWO[:1], {"header": True, "text_column": 0}),
    "keys in any order": Case(
        "a.jsonl",
        '{"id": 1, "text": "今天", "label": "高兴"}\n\n{"label": 2, "when": null, "text": "气死"}\n',
        [("今天", "高兴"), ("气死", "2")],
        {},
        [1, 3],
    ),
    "chosen keys": Case("a.jsonl", KEYS, TWO, {"text_column": "话", "label_column": "心情"}),
    "keys by number": Case("a.jsonl", KEYS, TWO, {"text_column": 0, "label_column": 2}),
    "no last line end": Case("a.tsv", "\n" + TSV.rstrip("\n"), PAIRS, {}, [2, 3, 4]),
    "blank lines": Case("a.csv", "\n\n" + CSV.replace("\n", "\n\n") + "\r\n", PAIRS, {}, [3, 5, 7]),
    "quotes": Case(
        "a.csv",
        'label,text\n高兴,"好,""坏"""\n愤怒,"气死\n我\r\n了"\n"其他",好\n',
        [('好,"坏"', "高兴"), ("气死\n我\r\n了", "愤怒"), ("好", "其他")],
        {},
        [2, 3, 6],
    ),
    "quotes of tabs": Case("a.tsv", '"今天\t1\n好"坏\t2\n', [('"今天', "1"), ('好"坏', "2")]),
    "quotes turned on": Case("a.tsv", '"今\t天"\t高兴\n', [("今\t天", "高兴")], {"quoting": "double"}),
    "quotes turned off": Case("a.csv", '"今天,高兴\n真"开心,高兴\n', [('"今天', "高兴"), ('真"开心', "高兴")],
                              {"quoting": "none"}),
    "a very long text": Case("a.csv", f'"{"好" * 300_000}",高兴\n', [("好" * 300_000, "高兴")]),
    "the first rows only": Case("a.tsv", TSV + "broken\n", PAIRS, {"limit": 3}),
    "a format that is set": Case("a.json", json.dumps(PAIRS[0]), PAIRS[:1], {"format": "jsonl"}),
    "white space": Case("a.json", '[["  今天 真\u3000开 心 \\n", "高兴"]]', [("今天 真\u3000开 心", "高兴")]),
    "no white space": Case("a.json", '[["  今天 真\u3000开 心 \\n", "高兴"]]', [("今天真开心", "高兴")],
                           {"remove_spaces": True}),
    **{
        f"the header {header}": Case("a.csv", f"{header}\n{CSV}", PAIRS, {}, [2, 3, 4])
        for header in ("text,label", "sentence,category", "文本,标签", " Text ,LABEL", "内容,类别")
    },
    **{
        f"the columns {text}, {label}": Case(
            "a.csv", NAMED, TWO, {"text_column": text, "label_column": label, "header": True}
        )
        for text, label in (("话", "心情"), (1, 2), (-2, -1), ("话", 2), (1, "心情"))
    },
    **{
        f"the label {value}": Case("a.jsonl", f'["今天", {value}]\n', [("今天", label)])
        for value, label in (("-3", "-3"), ("3.0", "3"), ('"03"', "03"), ('" 高 "', "高"), ('"1.5"', "1.5"))
    },
    **{
        f"line ends of Windows in {name}": Case(name, content.replace("\n", "\r\n"), PAIRS)
        for name, content in (("a.csv", CSV), ("a.tsv", TSV), ("a.json", json.dumps(PAIRS, indent=0)))
    },
    # str.splitlines would cut such a text in two
    **{
        f"{text!a} in {name}": Case(name, line.format(text) * 2, [(text, "高兴")] * 2)
        for text in (f"今天{separator}真开心" for separator in "\u2028\u2029\x0b\x0c\x1c\x85")
        for name, line in (("a.csv", "{},高兴\n"), ("a.tsv", "{}\t高兴\n"), ("a.jsonl", '["{}", "高兴"]\n'))
        if name != "a.jsonl" or text[2] >= "\x85"
    },
    **{
        f"{text!a} in {name}": Case(name, content, [(text, text)])
        for text in ("😀", "👨‍👩‍👧‍👦 一家", "𠮷野家", "❤️", "e\u0301", "ﷺ", "\u202e反", "a\x00b")
        for name, content in (("a.csv", f"{text},{text}\n"), ("a.json", json.dumps([[text, text]])))
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_rows_and_their_lines(write, case):
    path = write(case.name, case.content)
    assert rows(path, **case.options) == case.expected
    if case.lines:
        assert [row.line for row in RowReader(path, ReadOptions(**case.options)).rows()] == case.lines


def test_second_texts_lone_quotes_and_texts_without_labels(write):
    path = write("a.tsv", "借呗\t花呗\t0\n好\t坏\t1\n")
    found = list(RowReader(path, ReadOptions(text_column=0, text_pair_column=1, label_column=2)).rows())
    assert [(row.text, row.pair, row.label) for row in found] == [("借呗", "花呗", "0"), ("好", "坏", "1")]
    lone = RowReader(write("b.tsv", '今天\t2\n"\n好\t1\n坏"\t1\n'), ReadOptions())
    assert [row.line for row in lone.rows()] == [1, 2, 3, 4]
    found = list(RowReader(write("a.jsonl", '"今天"\n["气死"]\n'), ReadOptions(), need_label=False).rows())
    assert [(row.text, row.label) for row in found] == [("今天", None), ("气死", None)]


def test_many_groups_of_a_parquet_file_under_any_name(tmp_path):
    texts, labels = [f"{text}{i}" for i in range(4000) for text, _ in PAIRS], [0, 1, 2] * 4000
    columns = {"id": range(12000), "label": labels, "text": pyarrow.array(texts).dictionary_encode()}
    path = tmp_path / "train-00000-of-00001"
    parquet.write_table(pyarrow.table(columns), path, row_group_size=5000)
    assert rows(path) == list(zip(texts, map(str, labels), strict=True))
    assert [row.line for row in RowReader(path, ReadOptions()).rows()] == list(range(1, 12001))
    assert rows(path, text_column=2, label_column="label", limit=1) == [(texts[0], "0")]


LAYOUTS = {
    "lines of objects": "\n".join(json.dumps(record, ensure_ascii=False) for record in OBJECTS),
    "lines of arrays": "\ufeff" + "\r\n\r\n".join(json.dumps(pair) for pair in PAIRS),
    "one array": json.dumps(OBJECTS, ensure_ascii=False),
    "one indented array": "\n" + json.dumps(PAIRS, indent=2),
    "an array with a row on each line": "[" + ",\n".join(json.dumps(record) for record in OBJECTS) + "]\n",
}


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt", "a.csv", "a.tsv", "a.data", "a"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_json_of_any_layout_under_any_name(write, name, layout):
    path = write(name, LAYOUTS[layout])
    assert rows(path) == PAIRS
    assert options_of_run(path, {}).format == ("jsonl" if "lines of" in layout else "json")


def test_rows_longer_than_what_is_looked_at(write):
    objects = [{"text": "好" * 500_000, "label": 1}, {"text": "坏", "label": 0}]
    text = "\n".join(json.dumps(record, ensure_ascii=False) for record in objects)
    assert len(rows(write("a.jsonl", text))) == 2
    many = json.dumps([{"text": "好" * 50, "label": 1}] * 9000, ensure_ascii=False)
    assert recognised(write("b.txt", many), ReadOptions()).format == "json"


NOT_JSON = [
    "[微笑] 今天真好\t1\n{doge} 气死\t0\n",
    "[1]\n[2]\n",
    "[1]\t1\n",
    "[]\n{}\n",
    '{"a": 1}\t1\n["b"]\t0\n',
]
NOT_JSON += ['["好"] 他说\t1\n', '["好", 1\n["坏", 0]\n', '{"a":\t1\n', '{"a": 1}\n今天\n']


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv"])
@pytest.mark.parametrize("content", NOT_JSON)
def test_texts_with_brackets_are_not_json(write, name, content):
    # Two lines with the same separator say more than the name
    of_lines = [key for key, separator in (("tsv", "\t"), ("csv", ",")) if content.count("\n") > 1
                and all(separator in line for line in content.splitlines())]  # fmt: skip
    expected = (of_lines or ["csv" if name == "a.csv" else "tsv"])[0]
    assert recognised(write(name, content), ReadOptions()).format == expected


def test_a_format_that_is_set_is_used(write, tmp_path):
    path = write("a.csv", LAYOUTS["lines of arrays"])
    assert next(RowReader(path, ReadOptions("text"), need_label=False).rows()).text.startswith('["')
    by_name = open_table(str(path), ReadOptions("csv", header=False), str(tmp_path), skip_bad_rows=True)
    assert by_name.key != open_table(str(path), ReadOptions(header=False), str(tmp_path)).key


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl", "a.txt"])
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16", "utf-16-le", "utf-16-be"])
def test_encodings_and_byte_order_marks(write, name, encoding):
    content = content_of(name[2:] if name != "a.txt" else "jsonl").decode()
    settings = {} if encoding == "utf-8-sig" else {"encoding": encoding}
    assert rows(write(name, content.encode(encoding)), **settings) == PAIRS
    if encoding[-3:] in ("-le", "-be"):
        # A mark is never text
        assert rows(write(name, ("\ufeff" + content).encode(encoding)), **settings) == PAIRS


@pytest.mark.parametrize("spelling", ["utf16", "UTF_16", "U16", "GB18030-2000", "GBK", "Utf-8"])
def test_other_spellings_of_encodings(write, spelling):
    assert rows(write("a.tsv", "今天\t高兴\n气死\t愤怒\n".encode(spelling)), encoding=spelling) == TWO


WORDS = ("今天", "真好", "太慢了", "味道", "老板人不错", "送餐", "时间", "价格", "推荐", "失望", "😀", "ＡＢ")
REVIEWS = [("，".join(random.Random(n).sample(WORDS, 4)) + f"第{n}次", f"{n % 2}") for n in range(60)]
CONTENTS = {name: content_of(name[2:], REVIEWS).decode() for name in ("a.csv", "a.tsv", "a.jsonl")}
BARE = "".join(f"{text}\t{label}\n" for text, label in REVIEWS)
CONTENTS["a.txt"] = BARE
TRADITIONAL = "今天天氣真好\t1\n這家餐廳的服務態度很差\t0\n臺灣的夜市小吃種類很多\t1\n手機的螢幕有刮痕\t0\n"


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_in_gb18030_is_read_as_the_same_one_in_utf8(tmp_path, name):
    found = {}
    for encoding in ("utf-8", "gb18030"):
        path = tmp_path / encoding / name
        path.parent.mkdir()
        path.write_text(CONTENTS[name], encoding=encoding)
        assert file_encoding(path, "utf-8") == encoding
        table = open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache"))).files["train"]
        assert ("; encoding gb18030" in table.columns) == (encoding == "gb18030")
        # It is read again, by `predict` and `suggest`, as each file is, whatever the run's were
        column = 0 if name == "a.txt" else "text"
        source = open_file(str(path), {"train": str(path), "encoding": "utf-8", "text_column": column}, {})
        texts = [table.text(row) for row in range(table.num_rows)]
        assert [row.text for row in source.rows("error")] == texts == [text for text, _ in REVIEWS]
        assert ("encoding gb18030" in source.summary()) == (encoding == "gb18030")
        found[encoding] = table.label_values
    assert found["gb18030"] == found["utf-8"]

    def summary() -> str:
        list(source.rows("error"))
        return source.summary()

    assert "；编码：gb18030)" in spoken_in("zh", summary)


NOT_GB18030 = {
    "bad byte": (BARE.encode().replace("第9次".encode(), b"\xff"), 10),
    "bad byte in GBK": (BARE.encode("gb18030").replace("第9次".encode("gb18030"), b"\xff"), 1),
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
    with pytest.raises(
        InputError, match=rf"a\.tsv, line {line}: (.|\n)*invalid byte.*--data\.encoding.*big5"
    ):
        list(open_file(str(path), {"text_column": 0}, {}).rows("error"))


def test_what_comes_after_much_ascii_counts_too(write):
    ascii_only = b"ok\t1\n" * 300_000
    path = write("a.tsv", ascii_only + BARE.encode("gb18030"))
    assert (file_encoding(path, "UTF8"), file_encoding(path, "big5")) == ("gb18030", "big5")
    assert file_encoding(write("b.tsv", ascii_only), "utf-8") == "utf-8"


TITLES = "content,title,label\n正文一,标题一,a\n正文二,标题二,b\n"


def texts_of_run(path, recorded, asked=None, need_label=False):
    rows = RowReader(path, options_of_run(path, recorded, asked, need_label), need_label).rows()
    return [(row.text, row.pair, row.label) for row in rows]


@pytest.fixture
def titles(write):
    return write("new.csv", TITLES)


@pytest.mark.parametrize(
    ("recorded", "asked", "expected"),
    [
        ({}, {}, ("正文一", None, None)),
        ({"text_column": "title"}, {}, ("标题一", None, None)),
        ({"text_column": "title"}, {"text_column": None, "format": "auto"}, ("标题一", None, None)),
        ({"text_column": "title"}, {"text_column": "content"}, ("正文一", None, None)),
        ({"text_column": 1, "header": True}, {}, ("标题一", None, None)),
        ({"text_column": "title", "text_pair_column": "content"}, {}, ("标题一", "正文一", None)),
        ({"text_column": "title", "limit": 1, "label_column": "no such"}, {}, ("标题一", None, None)),
    ],
)
def test_columns_are_those_asked_for_then_those_of_the_run(titles, recorded, asked, expected):
    rows = texts_of_run(titles, recorded, asked)
    assert rows[0] == expected
    assert len(rows) == 2


def test_a_recorded_column_that_is_missing_is_an_error(titles):
    with pytest.raises(
        InputError, match=r"new\.csv, line 1: .* no text column '标题'.*found: content, title"
    ):
        texts_of_run(titles, {"text_column": "标题"})
    with pytest.raises(InputError, match="there is no second text column 'q'"):
        texts_of_run(titles, {"text_column": "title", "text_pair_column": "q"})


@pytest.mark.parametrize("train", ["data/x.csv", ["data/x.csv", "data/y.csv"]])
def test_what_an_exported_folder_keeps_of_the_train_files(train):
    assert settings_of_reading({"train": train, "long": "cut", "labels": ["y"]}) == {
        "train": "x.csv",
        "long": "cut",
    }


def test_labels_are_those_of_the_run(write):
    path = write("rows.csv", "text,label,category\n好,a,x|y\n坏,b,x\n")
    recorded = {"label_column": "category"}
    assert texts_of_run(path, recorded, need_label=True)[0] == ("好", None, "x|y")
    sets = recorded | {"task": "multi_label", "label_separator": "|"}
    assert texts_of_run(path, sets, need_label=True)[0] == ("好", None, '["x", "y"]')
    by_columns = {"task": "multi_label", "label_columns": ["x", "y"]}
    assert options_of_run(path, sets, by_columns, need_label=True) == ReadOptions(
        "csv", quoting="double", task="multi_label", label_columns=["x", "y"]
    )
    asked = {"label_column": "label", "label_separator": "|"}
    options = options_of_run(path, by_columns, asked, need_label=True)
    assert (options.label_columns, options.label_column) == (None, "label")


@pytest.mark.parametrize(
    ("name", "content", "recorded", "asked", "format"),
    [
        ("a.txt", '{"text": "好"}\n{"text": "坏"}\n', {}, {}, "jsonl"),
        ("a.txt", "好\n坏\n", {"text_column": "title", "train": "x.csv"}, {}, "text"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": "x.csv"}, {}, "text"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": "x.txt"}, {}, "tsv"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": ["x.txt", "y.csv"]}, {}, "tsv"),
        ("a.txt", "好\n坏\n", {"train": "x.txt"}, {}, "tsv"),
        ("a.txt", "好,0\n坏,1\n", {"train": "x.txt", "format": "csv"}, {}, "csv"),
        ("a.tsv", "好\t0\n坏\t1\n", {"train": "x.txt", "format": "csv"}, {}, "tsv"),
        ("a.csv", '[["好", 0], ["坏", 1]]', {"train": "x.csv", "format": "csv"}, {}, "json"),
        ("a.csv", "好\n坏\n", {"train": "x.csv"}, {"format": "text"}, "text"),
    ],
)
def test_the_format_is_that_of_the_content_the_run_or_the_name(write, name, content, recorded, asked, format):
    assert options_of_run(write(name, content), recorded, asked).format == format


def test_the_encoding_is_that_of_the_run(write):
    path = write("a.txt", "今天\n真好\n".encode("gb18030"))
    assert [text for text, _, _ in texts_of_run(path, {"encoding": "gb18030"})] == ["今天", "真好"]
    path = write("a.txt", '{"text": "今天"}\n'.encode("gb18030"))
    options = options_of_run(path, {"encoding": "gb18030", "remove_spaces": True})
    assert options == ReadOptions("jsonl", encoding="gb18030", quoting="none", remove_spaces=True)
