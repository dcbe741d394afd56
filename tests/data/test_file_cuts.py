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


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
@pytest.mark.parametrize("header", [["id", "text", "note"], None])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_csv_with_line_ends_in_quotes(tmp_path, encoding, header, end):
    generator, path = random.Random(50), tmp_path / "a.csv"
    with path.open("w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, lineterminator=end)
        writer.writerows([header] if header else [])
        for number in range(50):
            text = "".join(generator.choices('真好"\n,\r\n 今天', k=generator.randint(1, 12))).strip()
            writer.writerow([number, text, "x\ny" if number % 3 else ""])
    encoding = encoding.removesuffix("-sig")
    check(path, ReadOptions("csv", text_column=1, header=bool(header), encoding=encoding), 50 // PIECE)


def test_damaged_csv_is_never_cut_within_an_invalid_record(write):
    good = 'id,text\n1,"a\nb"\n\n2,c\n3,"d""e"\n'
    bad = '4,"f"g\n5,"h\n6,i"x\n7,"j\n\nk",l"\n'
    cut = check(write("a.csv", good + bad * 5 + "8,k\n" * 9 + '9,"l\nm\n'), ReadOptions("csv"), 3)
    assert any(rows > PIECE for rows, _ in cut.pieces)


@pytest.mark.parametrize(
    ("options", "content", "least_pieces"),
    [
        # A row like a header in a later piece is a row of a file without a header
        (ReadOptions("csv", text_column=0), "1,a\n" * 4 + "text,b\n" + "2,c,d\n", 2),
        (ReadOptions("tsv"), 'id\ttext\n\n1\t"a\n\n2\tb"\n3\tc\rd\n' * 4, 2),
        (ReadOptions("tsv", quoting="none"), 'id\ttext\n\n1\t"a\n\n2\tb"\n3\tc\rd\n' * 4, 2),
        (ReadOptions("text"), "今天\n\n \n真好\n\x0c\u2028好\n气死\n" * 3, 3),
    ],
)
def test_tables_and_texts_without_quotes(write, options, content, least_pieces):
    check(write("rows", content), options, least_pieces)


def test_json_lines(write):
    rows = [{"text": "今\u2028天", "id": number} for number in range(11)]
    rows[9]["late"] = 1
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    lines[3] = "{no JSON"
    cut = check(write("a.jsonl", "\n\n".join(lines)), ReadOptions("jsonl"), 3)
    assert (list(cut.keys), cut.is_table) == (["text", "id", "late"], True)
    assert not check(write("a.jsonl", '"今天"\n"真好"\n' * 5), ReadOptions("jsonl"), 3).is_table


@pytest.mark.parametrize("group", [3, 7, 1000])
def test_parquet_whatever_the_groups_of_rows_are(tmp_path, group):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    table = pyarrow.table({"id": range(33), "text": [f"好{number}" for number in range(33)]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=group)
    check(tmp_path / "a.parquet", ReadOptions("parquet"), 33 // PIECE)


@pytest.mark.parametrize(
    ("format", "content", "encoding"),
    [("json", json.dumps([{"text": "好"}] * 9), "utf-8"), ("csv", "id,text\n" + "1,好\n" * 9, "utf-16")],
)
def test_what_cannot_be_cut_is_one_piece(write, format, content, encoding):
    options = ReadOptions(format, encoding=encoding)
    assert check(write("rows", content.encode(encoding)), options, 1).pieces == [(9, None)]


def test_a_file_without_rows_is_refused(write):
    with pytest.raises(InputError, match="there are no rows in the file"):
        cut_file(write("a.csv", "id,text\n"), ReadOptions("csv"), PIECE)
