"""The formats of files of predictions: valid JSON, and the types of columns."""

import codecs
import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet
from pyarrow.csv import write_csv

from app.data.read import ReadOptions
from app.data.row_reader import open_rows
from app.prediction.many_files import csv_column
from tests.verbs import predict as main

COLUMNS = {
    "text": pa.array(["今天真好", "气死我了", None]),
    "number": pa.array([3, None, -(2**62)], pa.int64()),
    "share": pa.array([0.5, float("nan"), float("-inf")], pa.float64()),
    "is_new": pa.array([True, False, None]),
    "price": pa.array([Decimal("1.50"), None, Decimal("-3.25")], pa.decimal128(9, 2)),
    "day": pa.array([date(2026, 11, 28), None, date(1999, 1, 2)]),
    "moment": pa.array([datetime(2026, 11, 28, 12, 30), None, datetime(2000, 1, 1)], pa.timestamp("ns")),
    "moment_utc": pa.array([datetime(2026, 11, 28, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
    "tags": pa.array([["新", None], [], None], pa.list_(pa.string())),
    "scores": pa.array([[1.0, float("inf")], None, []], pa.list_(pa.float64())),
    "place": pa.array([{"city": "北京", "zip": 1}, None, None]),
    "content": pa.array([b"\x00\xff", None, b""]),
}
SHANGHAI = timezone(timedelta(hours=8))
NANOSECONDS = 1_767_225_600_123_456_789  # 2026-01-01 00:00:00.123456789
MAP = pa.map_(pa.string(), pa.int64())
# One value of each type that an input may have, as Arrow, CSV, JSON and Excel (by openpyxl) have it
TYPES = {
    "uint8": (pa.array([255], pa.uint8()), "255", 255, 255),
    "int64": (pa.array([2**53 + 1]), "9007199254740993", 2**53 + 1, "9007199254740993"),
    "uint64": (pa.array([2**64 - 1], pa.uint64()), "18446744073709551615", 2**64 - 1, "18446744073709551615"),
    "digits": (pa.array([123456789012345]), "123456789012345", 123456789012345, 123456789012345),
    "double": (pa.array([0.1]), "0.1", 0.1, 0.1),
    "single": (pa.array([0.1], pa.float32()), "0.1", 0.1, 0.1),
    "singles": (pa.array([[0.1, None]], pa.list_(pa.float32())), "[0.1, null]", [0.1, None], "[0.1, null]"),
    "large_double": (pa.array([1e20]), "1e+20", 1e20, 1e20),
    "double_of_an_id": (
        pa.array([1234567890123456.0]),
        "1234567890123456.0",
        1234567890123456.0,
        "1234567890123456.0",
    ),
    "nan": (pa.array([float("nan")]), "", None, None),
    "infinity": (pa.array([float("inf")]), "inf", None, "inf"),
    "true": (pa.array([True]), "true", True, True),
    "decimal": (pa.array([Decimal("1.10")]), "1.10", "1.10", 1.1),
    "long_decimal": (pa.array([Decimal("1234567890123456.78")]), *["1234567890123456.78"] * 3),
    "date": (pa.array([date(2026, 2, 28)]), "2026-02-28", "2026-02-28", datetime(2026, 2, 28)),
    "old_date": (pa.array([date(1899, 12, 31)]), *["1899-12-31"] * 3),
    "seconds": (
        pa.array([datetime(2026, 1, 2, 3, 4, 5)], pa.timestamp("s")),
        "2026-01-02 03:04:05",
        "2026-01-02T03:04:05",
        datetime(2026, 1, 2, 3, 4, 5),
    ),
    "nanoseconds": (
        pa.array([NANOSECONDS], pa.timestamp("ns")),
        "2026-01-01 00:00:00.123456789",
        "2026-01-01T00:00:00.123456789",
        datetime(2026, 1, 1, 0, 0, 0, 123000),
    ),
    "zone": (
        pa.array([datetime(2026, 1, 2, tzinfo=SHANGHAI)], pa.timestamp("us", "Asia/Shanghai")),
        "2026-01-02 00:00:00+08:00",
        "2026-01-02T00:00:00+08:00",
        "2026-01-02 00:00:00+08:00",
    ),
    "time": (pa.array([time(23, 59, 59, 999_999)]), *["23:59:59.999999"] * 2, time(23, 59, 59, 999_000)),
    "time_of_nanoseconds": (pa.array([1], pa.time64("ns")), *["00:00:00.000000001"] * 3),
    "far_time": (pa.array([253_402_300_800_000], pa.timestamp("ms")), *["10000-01-01 00:00:00.000"] * 3),
    "duration": (pa.array([timedelta(days=1, seconds=3)]), *["1 day, 0:00:03"] * 3),
    "list": (
        pa.array([[2**60 + 1, None]]),
        "[1152921504606846977, null]",
        [2**60 + 1, None],
        "[1152921504606846977, null]",
    ),
    "dates": (pa.array([[date(2026, 1, 1)]]), '["2026-01-01"]', ["2026-01-01"], '["2026-01-01"]'),
    "struct": (
        pa.array([{"a": 1, "b": None}]),
        '{"a": 1, "b": null}',
        {"a": 1, "b": None},
        '{"a": 1, "b": null}',
    ),
    "map": (pa.array([[("a", 1)]], MAP), '[["a", 1]]', [["a", 1]], '[["a", 1]]'),
    "dictionary": (pa.array(["北京"]).dictionary_encode(), *["北京"] * 3),
    "dictionary_of_numbers": (pa.array([5]).dictionary_encode(), "5", 5, 5),
    "null": (pa.nulls(1), "", None, None),
    "binary": (pa.array([b"\x00\xff"]), *["AP8="] * 3),
    "large_text": (pa.array(["007"], pa.large_string()), *["007"] * 3),
    "space": (pa.array([" "]), *[" "] * 3),
}
# Arrow only has these as views, without functions for them; they are the text "x" in all formats
VIEWS = {
    "view": pa.array(["x", None], pa.string_view()),
    "view_in_list": pa.array([["x"], None], pa.list_(pa.string_view())),
    "view_in_struct": pa.array([{"a": "x"}, None], pa.struct([("a", pa.string_view())])),
    "binary_view": pa.array([b"x", None], pa.binary_view()),
}


@pytest.fixture
def predict(checkpoint, tmp_path, monkeypatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(["--checkpoint", str(checkpoint), "--device", "cpu", *words])


@pytest.fixture(params=["parquet", "arrow"])
def typed_file(request, tmp_path) -> str:
    """A file whose columns have types, with metadata, and an invalid last row."""
    table = pa.table(COLUMNS).replace_schema_metadata({"made by": "a test"})
    path = tmp_path / f"rows.{request.param}"
    if request.param == "parquet":
        parquet.write_table(table, path)
    else:
        with ipc.new_file(path, table.schema) as writer:
            writer.write_table(table)
    return str(path)


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def json_records(path: str) -> list[dict]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    return [json.loads(line, parse_constant=refuse) for line in lines]


def test_json_lines_have_null_for_what_json_has_no_number_for(predict):
    line = '{"text": "好", "a": Infinity, "b": [1, NaN, [-Infinity]], "c": {"d": NaN, "e": [2.5]}}\n'
    Path("rows.jsonl").write_text(line, encoding="utf-8")
    assert predict("--input", "rows.jsonl", "--output", "labels.jsonl") == 0
    [record] = json_records("labels.jsonl")
    assert record["a"] is None
    assert record["b"] == [1, None, [None]]
    assert record["c"] == {"d": None, "e": [2.5]}
    assert predict("--input", "rows.jsonl", "--output", "labels.csv") == 0
    with open("labels.csv", encoding="utf-8-sig", newline="") as file:
        [cells] = csv.DictReader(file)
    assert json.loads(cells["b"], parse_constant=refuse) == [1, None, [None]]
    assert json.loads(cells["c"], parse_constant=refuse) == {"d": None, "e": [2.5]}


@pytest.mark.parametrize("on_bad_row", ["keep", "skip"])
def test_parquet_keeps_all_columns_with_their_types(predict, typed_file, on_bad_row):
    assert predict("--input", typed_file, "--output", "labels.parquet", "--on_bad_row", on_bad_row) == 0
    table = parquet.read_table("labels.parquet")
    num_rows = 3 if on_bad_row == "keep" else 2
    assert table.num_rows == num_rows
    assert table.schema.metadata[b"made by"] == b"a test"
    expected = pa.table(COLUMNS).slice(0, num_rows)
    for name in COLUMNS:
        assert table.schema.field(name).type == expected.schema.field(name).type
        # NaN is not equal to itself
        assert str(table[name].to_pylist()) == str(expected[name].to_pylist())
    assert table.schema.field("label").type == pa.string()
    assert table.schema.field("probability").type == pa.float64()
    assert all(table["label"].to_pylist()[:2])
    assert ("reason" in table.column_names) == (on_bad_row == "keep")


def test_json_lines_keep_the_types_that_json_has(predict, typed_file):
    assert predict("--input", typed_file, "--output", "labels.jsonl") == 0
    first, second, third = json_records("labels.jsonl")
    assert first["number"] == 3
    assert third["number"] == -(2**62)
    assert [first["share"], second["share"], third["share"]] == [0.5, None, None]
    assert [first["is_new"], second["is_new"], third["is_new"]] == [True, False, None]
    assert first["price"] == "1.50"
    assert first["day"] == "2026-11-28"
    assert first["moment"] == "2026-11-28T12:30:00"
    assert first["tags"] == ["新", None]
    assert second["tags"] == []
    assert first["scores"] == [1.0, None]
    assert first["place"] == {"city": "北京", "zip": 1}
    assert first["content"] == "AP8="
    assert isinstance(first["probability"], float)


def test_excel_keeps_numbers_truth_values_and_dates(predict, typed_file):
    openpyxl = pytest.importorskip("openpyxl")
    pytest.importorskip("xlsxwriter")
    assert predict("--input", typed_file, "--output", "labels.xlsx") == 0
    names, first, _second, third = openpyxl.load_workbook("labels.xlsx").active.iter_rows(values_only=True)
    cells = dict(zip(names, first, strict=True))
    assert cells["number"] == 3
    assert cells["share"] == 0.5
    assert cells["is_new"] is True
    assert cells["price"] == 1.5
    assert cells["day"] == datetime(2026, 11, 28)
    assert cells["moment"] == datetime(2026, 11, 28, 12, 30)
    assert cells["tags"] == '["新", null]'
    # Excel keeps 15 digits of a number
    assert dict(zip(names, third, strict=True))["number"] == str(-(2**62))


def test_files_of_csv_have_the_mark_that_excel_in_china_needs_and_pipes_have_none(predict, capsys):
    """Our own readers read it, also in the middle of files that were joined."""
    Path("lines.txt").write_text("今天真好\n气死我了\n", encoding="utf-8")
    assert predict("--input", "lines.txt", "--output", "labels.csv") == 0
    assert predict("--input", "lines.txt", "--output", "labels.jsonl") == 0
    content = Path("labels.csv").read_bytes()
    assert content.startswith(codecs.BOM_UTF8 + b"line,text,label,")
    assert content.count(codecs.BOM_UTF8) == 1
    assert codecs.BOM_UTF8 not in Path("labels.jsonl").read_bytes()
    capsys.readouterr()
    assert predict("--input", "lines.txt") == 0
    assert capsys.readouterr().out.startswith("line,text,label,")
    rows = [(row.text, row.label) for row in open_rows("labels.csv", ReadOptions()).rows()]
    assert [text for text, _label in rows] == ["今天真好", "气死我了"]
    Path("joined.csv").write_bytes(content + content)
    first, second, header, *others = open_rows("joined.csv", ReadOptions()).rows()
    assert [(row.text, row.label) for row in (first, second)] == rows
    assert "the names of the columns come again" in header.problem
    assert [(row.text, row.label) for row in others] == rows


def test_csv_has_the_values_as_text(predict, typed_file):
    assert predict("--input", typed_file, "--output", "labels.csv") == 0
    with open("labels.csv", encoding="utf-8-sig", newline="") as file:
        first, second, _third = csv.DictReader(file)
    expected = {
        "number": "3",
        "share": "0.5",
        "is_new": "true",
        "price": "1.50",
        "day": "2026-11-28",
        "moment": "2026-11-28 12:30:00",
        "tags": '["新", null]',
        "scores": "[1.0, null]",
        "place": '{"city": "北京", "zip": 1}',
        "content": "AP8=",
    }
    assert first.items() >= expected.items()
    assert second.items() >= {"number": "", "share": "", "is_new": "false", "tags": "[]"}.items()


@pytest.fixture
def file_of_types(tmp_path) -> str:
    """A Parquet file of two rows: the value of each type, and none."""
    columns = {"text": pa.array(["今天真好", "气死我了"])}
    for name, (value, *_expected) in TYPES.items():
        columns[name] = pa.concat_arrays([value, pa.nulls(1, value.type)])
    parquet.write_table(pa.table(columns), tmp_path / "types.parquet")
    return str(tmp_path / "types.parquet")


def test_each_type_in_each_format(predict, file_of_types, caplog):
    """An empty cell is None in Excel and JSON, and nothing in CSV."""
    pytest.importorskip("xlsxwriter")
    openpyxl = pytest.importorskip("openpyxl")
    for suffix in ("csv", "jsonl", "xlsx", "parquet"):
        assert predict("--input", file_of_types, "--output", f"labels.{suffix}") == 0
    with open("labels.csv", encoding="utf-8", newline="") as file:
        in_csv, empty_in_csv = csv.DictReader(file)
    in_json, empty_in_json = json_records("labels.jsonl")
    names, *rows = openpyxl.load_workbook("labels.xlsx").active.iter_rows(values_only=True)
    in_excel, empty_in_excel = (dict(zip(names, row, strict=True)) for row in rows)
    before = parquet.read_table(file_of_types)
    after = parquet.read_table("labels.parquet")
    for name, (_value, csv_cell, json_value, excel_cell) in TYPES.items():
        assert (name, in_csv[name]) == (name, csv_cell)
        assert (name, in_json[name], type(in_json[name])) == (name, json_value, type(json_value))
        assert (name, in_excel[name], type(in_excel[name])) == (name, excel_cell, type(excel_cell))
        assert after.schema.field(name) == before.schema.field(name)
        assert str(after[name]) == str(before[name])
        assert (empty_in_csv[name], empty_in_json[name], empty_in_excel[name]) == ("", None, None)
    assert "Excel keeps milliseconds; with more digits, which .csv keeps: 2 times" in caplog.text


@pytest.mark.parametrize("name", TYPES)
def test_csv_of_many_files_has_each_type_as_that_of_one(tmp_path, name):
    value, csv_cell, *_others = TYPES[name]
    if name == "double_of_an_id":
        csv_cell = "1.234567890123456e+15"
    write_csv(pa.table({"text": ["好"], name: csv_column(value)}), tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", encoding="utf-8", newline="") as file:
        assert [row[name] for row in csv.DictReader(file)] == [csv_cell]


def test_texts_that_arrow_has_as_views(predict, tmp_path):
    table = pa.table({"text": pa.array(["今天真好", "气死我了"], pa.string_view()), **VIEWS})
    with ipc.new_file(tmp_path / "views.arrow", table.schema) as writer:
        writer.write_table(table)
    assert predict("--input", "views.arrow", "--output", "labels.parquet") == 0
    labels = parquet.read_table("labels.parquet")
    for name in table.column_names:
        assert labels[name].to_pylist() == table[name].to_pylist()
    assert predict("--input", "views.arrow", "--output", "labels.jsonl") == 0
    first, _second = json_records("labels.jsonl")
    assert (first["view"], first["view_in_list"], first["view_in_struct"]) == ("x", ["x"], {"a": "x"})
