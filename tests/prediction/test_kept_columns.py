"""What came is kept beside the predictions: python -m pytest tests/prediction/test_kept_columns.py"""

import csv
import io
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from app.prediction.input_columns import free_names
from tests.saved_classifier import LABELS
from tests.verbs import predict as main

ADDED = ["probability", *(f"p_{label}" for label in LABELS)]
CSV = '编号,内容,时间,label\n007,今天真开心,2026-01-05,a\n008," ","1,5",b\n9,"真\n好",,c\n'


@pytest.fixture
def predict(tmp_path, checkpoint):
    """Return a function that predicts an input of a name, and returns its rows in a format of the output."""

    def run(source: str, output: str, *options: str) -> list[dict]:
        path = tmp_path / output
        files = ["--input", str(tmp_path / source), "--output", str(path)]
        assert main(["--checkpoint", str(checkpoint), "--device", "cpu", *files, *options]) == 0
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)) if path.suffix == ".csv" else list(map(json.loads, file))

    return run


def test_all_columns_of_a_csv_file_and_the_reason_of_a_bad_row(tmp_path, predict, capsys):
    (tmp_path / "posts.csv").write_text(CSV, encoding="utf-8")
    rows = predict("posts.csv", "labels.csv")
    kept = ["编号", "内容", "时间", "label"]
    assert list(rows[0]) == [*kept, "predicted_label", *ADDED, "reason"]
    assert [[row[name] for name in kept] for row in rows] == list(csv.reader(io.StringIO(CSV)))[1:]
    assert [row["predicted_label"] in LABELS for row in rows] == [True, False, True]
    assert [rows[1][name] for name in ["predicted_label", *ADDED]] == [""] * (2 + len(LABELS))
    assert [bool(row["reason"]) for row in rows] == [False, True, False]
    assert rows[1]["reason"] == "line 3: the text is empty, found ''; fill it in or remove the row"
    assert "2 rows (text '内容'), 1 without label\n  line 3: the text is empty" in capsys.readouterr().err
    fewer = predict("posts.csv", "fewer.csv", "--on_bad_row", "skip")
    assert [row["predicted_label"] for row in fewer] == [rows[index]["predicted_label"] for index in (0, 2)]


def test_a_file_without_bad_rows_has_no_reasons_and_its_output_can_be_read_again(tmp_path, predict):
    (tmp_path / "posts.csv").write_text("id,text\n1,今天\n2,真好\n", encoding="utf-8")
    first = predict("posts.csv", "first.csv")
    assert list(first[0]) == ["id", "text", "label", *ADDED]
    again = predict("first.csv", "again.csv")
    assert list(again[0]) == [*first[0], "predicted_label", *(f"predicted_{name}" for name in ADDED)]
    assert [row["predicted_label"] for row in again] == [row["label"] for row in first]


GOOD, BAD = "今天".encode(), "天".encode()[:2]
INVALID = {
    "a text.csv": (b"text,other\n%b,a\n%b,b\n" % (GOOD, BAD), "text,other"),
    "a copied column.csv": (b"text,other\n%b,a\n%b,%b\n" % (GOOD, GOOD, BAD), "text,other"),
    "the end of a file.csv": (b"text,other\n%b,a\n%b,b%b" % (GOOD, GOOD, BAD), "text,other"),
    "too few columns.csv": (b"text,other\n%b,a\n%b" % (GOOD, BAD), "text,other"),
    "a key.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o%b": 1}\n' % (GOOD, GOOD, BAD), "text,o\ufffd\ufffd"),
    "a list.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": ["%b"]}\n' % (GOOD, GOOD, BAD), "text,o"),
    "half a character.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": "\\ud800"}\n' % (GOOD, GOOD), "text,o"),
}


@pytest.mark.parametrize("where", INVALID)
@pytest.mark.parametrize("output", ["o.csv", "o.jsonl"])
def test_bytes_that_are_no_characters_are_replaced_and_counted(tmp_path, predict, capsys, where, output):
    content, names = INVALID[where]
    (tmp_path / where).write_bytes(content)
    rows = predict(where, output)
    assert len(rows) == 2
    assert rows[0]["label"] in LABELS
    assert "\ufffd" in (tmp_path / output).read_text(encoding="utf-8")
    if output == "o.csv":
        assert ",".join(rows[0]).startswith(f"{names},label")
    is_row_bad = where in ("a text.csv", "too few columns.csv")
    assert bool(rows[1].get("reason")) is is_row_bad
    assert (rows[1]["label"] in LABELS) is not is_row_bad
    counted = "warning: 1 values of the input have bytes that are not in its encoding, written as U+FFFD"
    assert (counted in capsys.readouterr().err) is (where != "a key.jsonl")
    assert not list(tmp_path.glob("*.part"))


def test_columns_without_names(tmp_path, predict):
    (tmp_path / "rows.tsv").write_text("7\t今天\tx\n8\n9\t真好\tz\n10\ta\tb\tc\td\n", encoding="utf-8")
    rows = predict("rows.tsv", "labels.csv", "--text_column", "1")
    assert list(rows[0])[:3] == ["column_0", "text", "column_2"]
    assert [list(row.values())[:3] for row in rows] == [
        ["7", "今天", "x"],
        ["8", "", ""],
        ["9", "真好", "z"],
        ["10", "a", "b,c,d"],
    ]
    assert rows[3]["reason"].startswith("line 4: 3 columns are needed as in the first row, found 5")


LINES = [
    {"id": 1, "text": "今天", "likes": [1, 2], "ok": True},
    {"text": "真好", "id": 2.5, "user": {"name": "张"}, "label": "old"},
    {"id": None, "text": ""},
]


@pytest.mark.parametrize("is_stream", [False, True])
def test_objects_keep_their_keys_and_types(tmp_path, checkpoint, predict, monkeypatch, capsys, is_stream):
    lines = [*map(json.dumps, LINES), "{not JSON"]
    (tmp_path / "posts.jsonl").write_text("\n".join(lines), encoding="utf-8")
    if is_stream:
        with (tmp_path / "posts.jsonl").open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            output = tmp_path / "labels.jsonl"
            options = ["--input", "-", "--format", "jsonl", "--output", str(output)]
            assert main(["--checkpoint", str(checkpoint), *options]) == 0
        rows = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    else:
        rows = predict("posts.jsonl", "labels.jsonl")
    assert [{key: row[key] for key in of} for row, of in zip(rows, LINES, strict=False)] == LINES
    assert [list(row)[: len(of)] for row, of in zip(rows, LINES, strict=False)] == [list(of) for of in LINES]
    assert [row["predicted_label"] in LABELS for row in rows] == [True, True, False, False]
    assert [row["reason"] and row["reason"][:7] for row in rows] == [None, None, "line 3:", "line 4:"]
    if not is_stream:
        table = predict("posts.jsonl", "labels.csv")
        assert list(table[0])[:6] == ["id", "text", "likes", "ok", "user", "label"]
        assert [row["likes"] for row in table] == ["[1, 2]", "", "", ""]
        assert table[0]["ok"] == "true"
        assert table[1]["user"] == '{"name": "张"}'


def test_keys_that_come_late_in_a_stream_are_told(tmp_path, checkpoint, monkeypatch, capsys):
    lines = [*[{"text": "今天"}] * 2100, {"text": "真好", "late": 1}]
    (tmp_path / "posts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    with (tmp_path / "posts.jsonl").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main(["--checkpoint", str(checkpoint), "--input", "-", "--format", "jsonl"]) == 0
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2102
    assert "keys that no early row has are left out: late" in printed.err


def test_parquet_keeps_its_types(tmp_path, predict, capsys, checkpoint):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    count = 5000
    table = pyarrow.table(
        {
            "id": pyarrow.array(range(count), pyarrow.uint64()),
            "price": pyarrow.array([Decimal("1.10")] * count, pyarrow.decimal128(9, 2)),
            "when": pyarrow.array([datetime(2026, 1, 5, tzinfo=UTC)] * count, pyarrow.timestamp("ns", "UTC")),
            "text": ["今天" if row != 4200 else " " for row in range(count)],
            "label": pyarrow.array([["a"], None] * (count // 2)),
        },
    ).replace_schema_metadata({"made by": "a test"})
    parquet.write_table(table, tmp_path / "posts.parquet")
    output = tmp_path / "labels.parquet"
    options = ["--checkpoint", str(checkpoint), "--input", str(tmp_path / "posts.parquet")]
    assert main([*options, "--output", str(output)]) == 0
    written = parquet.read_table(output)
    assert written.select(table.column_names).equals(table)
    assert written.schema.metadata[b"made by"] == b"a test"
    assert written.column_names[5:] == ["predicted_label", *ADDED, "reason"]
    assert [row for row in range(count) if not written["predicted_label"][row].is_valid] == [4200]
    assert (
        written["reason"][4200].as_py()
        == "row 4201: the text is empty, found ''; fill it in or remove the row"
    )
    assert main([*options, "--output", str(tmp_path / "fewer.parquet"), "--on_bad_row", "skip"]) == 0
    fewer = parquet.read_table(tmp_path / "fewer.parquet")
    assert fewer["id"].to_pylist() == [row for row in range(count) if row != 4200]
    rows = predict("posts.parquet", "labels.jsonl")
    assert (rows[1]["id"], rows[1]["price"], rows[1]["label"]) == (1, "1.10", None)
    assert rows[0]["when"].startswith("2026-01-05T00:00:00")
    (tmp_path / "posts.csv").write_text("text\n今天\n", encoding="utf-8")
    assert main([*options[:3], str(tmp_path / "posts.csv"), "--output", str(tmp_path / "no.parquet")]) == 2
    assert "Parquet is written for Parquet, whose columns have types, found csv" in capsys.readouterr().err


def test_excel_keeps_numbers_and_dates(tmp_path, checkpoint):
    openpyxl = pytest.importorskip("openpyxl")
    book, day = openpyxl.Workbook(), datetime(2026, 1, 5, 8, 30)
    rows = [
        ["编号", "内容", "时间", "分", "公式"],
        [7, "今天", day, 4.5, "=1+1"],
        [8, None, None, None, None],
    ]
    for row in rows:
        book.active.append(row)
    book.save(tmp_path / "posts.xlsx")
    options = ["--checkpoint", str(checkpoint), "--input", str(tmp_path / "posts.xlsx"), "--output"]
    assert main([*options, str(tmp_path / "labels.xlsx")]) == 0
    written = list(openpyxl.load_workbook(tmp_path / "labels.xlsx").active.iter_rows())
    # Nobody has computed the formula
    rows[1][4] = None
    assert [[cell.value for cell in row[:5]] for row in written] == rows
    assert (written[0][5].value, written[0][-1].value) == ("label", "reason")
    assert written[2][-1].value.startswith("row 3: the text is empty, found null (an empty cell")
    assert main([*options, str(tmp_path / "labels.csv")]) == 0
    with (tmp_path / "labels.csv").open(encoding="utf-8", newline="") as file:
        assert list(csv.reader(file))[1][:5] == ["7", "今天", "2026-01-05 08:30:00", "4.5", ""]


def test_names_are_never_taken_twice():
    assert free_names(["label", "p_a"], "predicted_", ["label", "predicted_label", "x"]) == [
        "predicted_label_2",
        "p_a",
    ]
    assert free_names(["a", "a", "a"], "") == ["a", "a_2", "a_3"]
