"""The ranges of a file are the whole file, row by row: python -m pytest tests/data/test_file_cuts.py"""

import csv
import json
import random

import pytest

from app.data.read import ReadOptions
from app.data.rows import cut_file, read_rows
from app.errors import InputError

PIECE = 4


def rows_of(path, options, span=None):
    return list(read_rows(path, options, need_label=False, keep_records=True, span=span))


def check(path, options, least_pieces):
    """Compare the rows of all pieces, with their numbers, with those of the whole file."""
    cut = cut_file(path, options, PIECE)
    pieces = [rows_of(path, options, span) for _, span in cut.pieces]
    assert [len(piece) for piece in pieces] == [rows for rows, _ in cut.pieces]
    whole = rows_of(path, options)
    assert [row for piece in pieces for row in piece] == whole
    assert len(pieces) >= least_pieces
    joined = cut.joined(3)
    assert [row for _, span in joined for row in rows_of(path, options, span)] == whole
    assert sum(rows for rows, _ in joined) == len(whole)
    return cut


def write_csv(path, header, count, encoding="utf-8", end="\r\n"):
    generator = random.Random(count)
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerows([header] if header else [])
        for number in range(count):
            text = "".join(generator.choices('真好"\n,\r\n 今天', k=generator.randint(1, 12))).strip()
            writer.writerow([number, text, "x\ny" if number % 3 else ""])


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("header", [["id", "text", "note"], None])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_csv_with_line_ends_in_quotes(tmp_path, encoding, header, end):
    path = tmp_path / "a.csv"
    write_csv(path, header, 50, encoding, end)
    encoding = "utf-8" if encoding == "utf-8-sig" else encoding
    check(path, ReadOptions("csv", text_column=1, header=bool(header), encoding=encoding), 50 // PIECE)


def test_damaged_csv_is_never_cut_within_an_invalid_record(tmp_path):
    path = tmp_path / "a.csv"
    good = 'id,text\n1,"a\nb"\n\n2,c\n3,"d""e"\n'
    bad = '4,"f"g\n5,"h\n6,i"x\n7,"j\n\nk",l"\n'
    path.write_text(good + bad * 5 + "8,k\n" * 9 + '9,"l\nm\n', encoding="utf-8")
    cut = check(path, ReadOptions("csv"), 3)
    assert any(rows > PIECE for rows, _ in cut.pieces)


def test_a_header_like_row_in_a_later_piece_is_a_row_of_a_file_without_header(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("1,a\n" * 4 + "text,b\n" + "2,c,d\n", encoding="utf-8")
    check(path, ReadOptions("csv", text_column=0), 2)


@pytest.mark.parametrize("quoting", ["auto", "none"])
def test_tables_and_texts_without_quotes(tmp_path, quoting):
    path = tmp_path / "a.tsv"
    path.write_text('id\ttext\n\n1\t"a\n\n2\tb"\n3\tc\rd\n' * 4, encoding="utf-8")
    check(path, ReadOptions("tsv", quoting=quoting), 2)
    path.write_text("今天\n\n \n真好\n\x0c\u2028好\n气死\n" * 3, encoding="utf-8")
    check(path, ReadOptions("text"), 3)


def test_json_lines(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [
        {"text": "今\u2028天", "id": number} | ({"late": 1} if number == 9 else {}) for number in range(11)
    ]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines[3] = "{no JSON"
    path.write_text("\n\n".join(lines), encoding="utf-8")
    cut = check(path, ReadOptions("jsonl"), 3)
    assert list(cut.keys) == ["text", "id", "late"]
    assert cut.is_table
    path.write_text('"今天"\n"真好"\n' * 5, encoding="utf-8")
    assert not check(path, ReadOptions("jsonl"), 3).is_table


@pytest.mark.parametrize("group", [3, 7, 1000])
def test_parquet_whatever_the_groups_of_rows_are(tmp_path, group):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": range(33), "text": [f"好{number}" for number in range(33)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=group)
    check(tmp_path / "a.parquet", ReadOptions("parquet"), 33 // PIECE)


def test_what_cannot_be_cut_is_one_piece(tmp_path):
    for name, encoding in (("a.json", "utf-8"), ("a.csv", "utf-16")):
        path = tmp_path / name
        rows = json.dumps([{"text": "好"}] * 9) if name == "a.json" else "id,text\n" + "1,好\n" * 9
        path.write_text(rows, encoding=encoding)
        cut = check(path, ReadOptions(path.suffix[1:], encoding=encoding), 1)
        assert cut.pieces == [(9, None)]


def test_a_file_without_rows_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("id,text\n", encoding="utf-8")
    with pytest.raises(InputError, match="there are no rows in the file"):
        cut_file(tmp_path / "a.csv", ReadOptions("csv"), PIECE)
