"""The formats of files of predictions: valid JSON, and the types of columns."""

import csv
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

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
    with open("labels.csv", encoding="utf-8", newline="") as file:
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


def test_csv_has_the_values_as_text(predict, typed_file):
    assert predict("--input", typed_file, "--output", "labels.csv") == 0
    with open("labels.csv", encoding="utf-8", newline="") as file:
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
