"""What came is kept beside the predictions: python -m pytest tests/prediction/test_output.py"""

import csv
import io
import json
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow
import pytest
from pyarrow import parquet

from app.data.read import ReadOptions
from app.data.rows import RowReader
from app.errors import InputError
from app.prediction import output as output_module
from app.prediction.sources import free_names, open_file
from tests.saved_classifier import LABELS, save_checkpoint
from tests.verbs import predict as main

ADDED = ["probability", *(f"p_{label}" for label in LABELS)]
CSV = '编号,内容,时间,label\n007,今天真开心,2026-01-05,a\n008," ","1,5",b\n9,"真\n好",,c\n'
NEEDS_OPENPYXL = "needs openpyxl: pip install -r requirements/dev.txt"
NEEDS_EXCEL = "needs the packages of Excel files: pip install -r requirements/excel.txt"


@pytest.fixture
def predict(tmp_path, checkpoint, monkeypatch):
    """Return a function that predicts an input of a name, and returns its rows; the content of the input is
    written first, where it is given."""
    monkeypatch.chdir(tmp_path)

    def run(source: str, output: str, *options: str, content: str | bytes | None = None) -> list[dict]:
        if output.endswith(".xlsx"):
            pytest.importorskip("xlsxwriter", reason=NEEDS_EXCEL)
        if content is not None:
            Path(source).write_bytes(content if isinstance(content, bytes) else content.encode())
        files = ["--input", source, "--output", output]
        assert main(["--checkpoint", str(checkpoint), "--device", "cpu", *files, *options]) == 0
        if output.endswith(".xlsx"):
            return []
        if output.endswith(".parquet"):
            return parquet.read_table(output)
        with Path(output).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file)) if output.endswith(".csv") else list(map(json.loads, file))

    return run


def test_all_columns_of_a_csv_file_and_the_reason_of_a_bad_row(predict, capsys):
    rows = predict("posts.csv", "labels.csv", content=CSV)
    kept = ["编号", "内容", "时间", "label"]
    assert list(rows[0]) == [*kept, "predicted_label", *ADDED, "reason"]
    assert [[row[name] for name in kept] for row in rows] == list(csv.reader(io.StringIO(CSV)))[1:]
    assert [row["predicted_label"] in LABELS for row in rows] == [True, False, True]
    assert [rows[1][name] for name in ["predicted_label", *ADDED]] == [""] * (2 + len(LABELS))
    reason = "line 3: the text is empty, found ''; fill it in or remove the row"
    assert [row["reason"] for row in rows] == ["", reason, ""]
    assert "2 rows (text '内容'), 1 without label\n  line 3: the text is empty" in capsys.readouterr().err
    fewer = predict("posts.csv", "fewer.csv", "--on_bad_row", "skip")
    assert [row["predicted_label"] for row in fewer] == [rows[index]["predicted_label"] for index in (0, 2)]


def test_a_file_without_bad_rows_has_no_reasons_and_its_output_can_be_read_again(predict):
    first = predict("posts.csv", "first.csv", content="id,text\n1,今天\n2,真好\n")
    assert list(first[0]) == ["id", "text", "label", *ADDED]
    again = predict("first.csv", "again.csv")
    assert list(again[0]) == [*first[0], "predicted_label", *(f"predicted_{name}" for name in ADDED)]
    assert [row["predicted_label"] for row in again] == [row["label"] for row in first]


GOOD, BAD = "今天".encode(), "天".encode()[:2]
INVALID = {
    "a text.csv": (b"text,other\n%b,a\n%b,b\n" % (GOOD, BAD), "text,other"),
    "a key.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o%b": 1}\n' % (GOOD, GOOD, BAD), "text,o\ufffd\ufffd"),
    "a list.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": ["%b"]}\n' % (GOOD, GOOD, BAD), "text,o"),
    "half a character.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": "\\ud800"}\n' % (GOOD, GOOD), "text,o"),
}


@pytest.mark.parametrize("where", INVALID)
@pytest.mark.parametrize("output", ["o.csv", "o.jsonl"])
def test_bytes_that_are_no_characters_are_replaced(predict, where, output):
    content, names = INVALID[where]
    rows = predict(where, output, content=content)
    assert len(rows) == 2
    assert rows[0]["label"] in LABELS
    assert "\ufffd" in Path(output).read_text(encoding="utf-8")
    if output == "o.csv":
        assert ",".join(rows[0]).startswith(f"{names},label")
    assert (rows[1]["label"] in LABELS) is (where != "a text.csv")


def test_columns_without_names_and_columns_of_one_name(predict):
    content = "7\t今天\tx\n8\n9\t真好\tz\n10\ta\tb\tc\td\n"
    rows = predict("rows.tsv", "labels.csv", "--text_column", "1", content=content)
    assert list(rows[0])[:3] == ["column_0", "text", "column_2"]
    assert [list(row.values())[:3] for row in rows] == [
        ["7", "今天", "x"],
        ["8", "", ""],
        ["9", "真好", "z"],
        ["10", "a", "b,c,d"],
    ]
    assert rows[3]["reason"].startswith("line 4: 3 columns are needed as in the first row, found 5")
    [row] = predict("twice.csv", "twice.jsonl", content="id,id,text\n1,2,今天\n")
    assert (row["id"], row["id_2"], row["text"]) == ("1", "2", "今天")
    taken = ["label", "predicted_label", "x"]
    assert free_names(["label", "p_a"], taken, "predicted_") == ["predicted_label_2", "p_a"]


LINES = [
    {"id": 1, "text": "今天", "likes": [1, 2], "ok": True},
    {"text": "真好", "id": 2.5, "user": {"name": "张"}, "label": "old"},
    {"id": None, "text": ""},
]


@pytest.mark.parametrize("is_stream", [False, True])
def test_objects_keep_their_keys_and_types(predict, monkeypatch, is_stream):
    Path("posts.jsonl").write_text("\n".join([*map(json.dumps, LINES), "{not JSON"]), encoding="utf-8")
    with Path("posts.jsonl").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        source = "-" if is_stream else "posts.jsonl"
        rows = predict(source, "labels.jsonl", "--format", "jsonl")
    assert [{key: row[key] for key in of} for row, of in zip(rows, LINES, strict=False)] == LINES
    assert [list(row)[: len(of)] for row, of in zip(rows, LINES, strict=False)] == [list(of) for of in LINES]
    assert [row["predicted_label"] in LABELS for row in rows] == [True, True, False, False]
    assert [row["reason"] and row["reason"][:7] for row in rows] == [None, None, "line 3:", "line 4:"]
    if not is_stream:
        table = predict("posts.jsonl", "labels.csv")
        assert list(table[0])[:6] == ["id", "text", "likes", "ok", "user", "label"]
        assert [row["likes"] for row in table] == ["[1, 2]", "", "", ""]
        assert (table[0]["ok"], table[1]["user"]) == ("true", '{"name": "张"}')


def test_a_key_that_comes_late_in_a_stream_is_an_error(checkpoint, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    lines = [*[{"text": "今天"}] * 2100, {"text": "真好", "late": 1}]
    Path("posts.jsonl").write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    options = ["--checkpoint", str(checkpoint), "--device", "cpu", "--format", "jsonl"]
    with Path("posts.jsonl").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert main([*options, "--input", "-", "--output", "labels.csv"]) == 2
    assert (
        "line 2101: the first rows of a stream have all columns, found the key late"
        in capsys.readouterr().err
    )
    assert not Path("labels.csv").exists()


def test_parquet_keeps_its_types(predict):
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
    parquet.write_table(table, "posts.parquet")
    written = predict("posts.parquet", "labels.parquet")
    assert written.select(table.column_names).equals(table)
    assert written.schema.metadata[b"made by"] == b"a test"
    assert written.column_names[5:] == ["predicted_label", *ADDED, "reason"]
    assert [row for row in range(count) if not written["predicted_label"][row].is_valid] == [4200]
    reason = "row 4201: the text is empty, found ''; fill it in or remove the row"
    assert written["reason"][4200].as_py() == reason
    fewer = predict("posts.parquet", "fewer.parquet", "--on_bad_row", "skip")
    assert fewer["id"].to_pylist() == [row for row in range(count) if row != 4200]
    rows = predict("posts.parquet", "labels.jsonl")
    assert (rows[1]["id"], rows[1]["price"], rows[1]["label"]) == (1, "1.10", None)
    assert rows[0]["when"].startswith("2026-01-05T00:00:00")


def test_excel_keeps_numbers_and_dates_and_texts_are_text_cells(predict):
    openpyxl = pytest.importorskip("openpyxl", reason=NEEDS_OPENPYXL)
    book, day = openpyxl.Workbook(), datetime(2026, 1, 5, 8, 30)
    rows = [
        ["编号", "内容", "时间", "分", "公式", "长号"],
        [7, "今天", day, 4.5, "=1+1", 10**15],
        [8, None, None, None, None, None],
    ]
    for row in rows:
        book.active.append(row)
    book.save("posts.xlsx")
    predict("posts.xlsx", "labels.xlsx", "--text_column", "内容")
    written = list(openpyxl.load_workbook("labels.xlsx").active.iter_rows())
    # Nobody has computed the formula; Excel has no more than 15 digits
    rows[1][4:] = [None, str(10**15)]
    assert [[cell.value for cell in row[:6]] for row in written] == rows
    assert (written[0][6].value, written[0][-1].value) == ("label", "reason")
    assert written[2][-1].value.startswith("row 3: the text is empty, found null")
    assert predict("posts.xlsx", "labels.csv", "--text_column", "内容")[0]["时间"] == "2026-01-05 08:30:00"


def test_texts_are_the_same_when_a_sheet_is_read_again(predict):
    texts = ["今天真开心", "=1+1", "\x1b[2J\x00好", "_x0041_ _x_", "第一行\r\n第二行", "@SUM(A1)", "😀"]
    lines = [json.dumps({"text": text, "pair": "{=A1}", "url": "http://a"}) for text in texts]
    options = ["--text_column", "text", "--text_pair_column", "pair"]
    predict("a.jsonl", "a.xlsx", *options, content="\n".join(lines))
    reading = ReadOptions(text_column="text", text_pair_column="pair", label_column="label")
    openpyxl = pytest.importorskip("openpyxl", reason=NEEDS_OPENPYXL)
    sheet = openpyxl.load_workbook("a.xlsx").active
    assert {cell.data_type for row in sheet.iter_rows() for cell in row} == {"s", "n"}
    rows = list(RowReader("a.xlsx", reading).rows())
    assert [(row.text, row.pair) for row in rows] == [(text, "{=A1}") for text in texts]
    assert all(row.label in LABELS for row in rows)


def test_what_does_not_fit_into_a_sheet(predict, checkpoint, monkeypatch, caplog, capsys):
    predict("a.txt", "a.xlsx", content="好" * 40_000)
    assert "1 texts are longer than an Excel cell, and were cut at 32767" in caplog.text
    files = ["--checkpoint", str(checkpoint), "--input", "b.txt", "--output"]
    Path("b.txt").write_text("好\n" * 3, encoding="utf-8")
    monkeypatch.setattr(output_module, "MAX_ROWS", 3)
    assert main([*files, "b.xlsx"]) == 2
    assert "an Excel sheet has 3 rows and 16,384 columns, and there are more" in capsys.readouterr().err


def test_formulas_are_written_as_they_were_read(predict):
    """A quote put before them would make other texts of them; docs/data.md says so."""
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", '=HYPERLINK("http://a","b")', "\t=1", "a\r=1"]
    content = "\n".join(json.dumps({"text": text}) for text in formulas)
    assert [row["text"] for row in predict("a.jsonl", "a.csv", content=content)] == formulas


def test_what_people_see_holds_no_control_characters(tmp_path, capsys, monkeypatch):
    """Escape sequences in a text would steer the terminal."""
    names = {0: "=正面", 1: "\x07" + "长" * 99}
    label2id = {name: number for number, name in names.items()}
    folder = save_checkpoint(tmp_path, num_labels=2, id2label=names, label2id=label2id)
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["--checkpoint", str(folder), "--device", "cpu", "\x1b[2J\x00好\x9b31m\u202e"]) == 0
    shown = capsys.readouterr().out
    assert "\\x1b[2J\\x00好\\x9b31m\\u202e" in shown
    assert "\\x07长" in shown
    assert "长" * 20 not in shown
    assert all(character == "\n" or character.isprintable() for character in shown)


@pytest.mark.parametrize("change", ["今天,b\n" * 5000, ""])
def test_an_input_that_changes_between_its_two_readings_is_an_error(tmp_path, change):
    path = tmp_path / "posts.csv"
    path.write_text("text,other\n" + "今天,a\n" * 5, encoding="utf-8")
    source = open_file(str(path), {}, {})
    assert source.count("keep") == 5
    path.write_text(f"text,other\n今天,a\n{change}", encoding="utf-8")
    with pytest.raises(InputError, match="posts.csv: a data file must not change while it is read"):
        list(source.rows("keep"))
