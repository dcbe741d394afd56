"""Files of every format -> rows: python -m pytest tests/data/test_readers.py"""

import json

import pytest

from app.data.read import BadRow, ReadOptions
from app.data.rows import RowReader, read_rows

PAIRS = [("今天真开心", "高兴"), ("气死我了😀", "愤怒"), ("好，坏", "其他")]
OBJECTS = [{"text": text, "label": label} for text, label in PAIRS]
TSV = "".join(f"{text}\t{label}\n" for text, label in PAIRS)
CSV = "今天真开心,高兴\n气死我了😀,愤怒\n好，坏,其他\n"


def rows(path, **options):
    """Return (text, label) of each row; any bad row fails the test."""
    found = list(read_rows(path, ReadOptions(**options)))
    assert not [row for row in found if isinstance(row, BadRow)]
    return [(row.text, row.label) for row in found]


def lines(path, **options):
    return [row.line for row in read_rows(path, ReadOptions(**options))]


@pytest.mark.parametrize("name", ["a.tsv", "a.txt", "a.tab", "A.TSV"])
def test_tabs_without_a_header(write, name):
    assert rows(write(name, TSV)) == PAIRS


def test_csv_without_a_header(write):
    assert rows(write("a.csv", CSV)) == PAIRS


@pytest.mark.parametrize(
    "header",
    ["text,label", "sentence,category", "review,sentiment", "文本,标签", " Text ,LABEL", "内容,类别"],
)
def test_a_header_is_known_by_the_names_of_the_columns(write, header):
    path = write("a.csv", f"{header}\n{CSV}")
    assert rows(path) == PAIRS
    assert lines(path) == [2, 3, 4]


def test_usual_names_are_found_in_any_order_among_other_columns(write):
    assert rows(write("a.csv", "id,label,text,when\n7,高兴,今天,x\n8,愤怒,气死,y\n")) == [
        ("今天", "高兴"),
        ("气死", "愤怒"),
    ]


def test_one_usual_name_leaves_the_other_column(write):
    assert rows(write("a.csv", "text,心情\n今天,高兴\n"), header=True) == [("今天", "高兴")]


def test_a_header_can_be_ruled_out_and_in(write):
    path = write("a.tsv", "text\tlabel\n今天\t高兴\n")
    assert rows(path, header=False) == [("text", "label"), ("今天", "高兴")]
    path = write("b.tsv", "甲\t乙\n今天\t高兴\n")
    assert rows(path, header=True, text_column=0) == [("今天", "高兴")]


@pytest.mark.parametrize(
    ("text", "label"),
    [("话", "心情"), (1, 2), (-2, -1), ("话", 2), (1, "心情")],
    ids=lambda column: str(column),
)
def test_columns_by_name_and_by_number(write, text, label):
    path = write("a.csv", "id,话,心情\n1,今天,高兴\n2,气死,愤怒\n")
    found = rows(path, text_column=text, label_column=label, header=True)
    assert found == [("今天", "高兴"), ("气死", "愤怒")]


def test_a_column_by_name_means_that_there_is_a_header(write):
    assert rows(write("a.csv", "话,心情\n今天,高兴\n"), text_column="话") == [("今天", "高兴")]


def test_columns_by_number_without_a_header(write):
    path = write("a.tsv", "to category\t今天\t高兴\nto category\t气死\t愤怒\n")
    assert rows(path, text_column=1, label_column=2) == [("今天", "高兴"), ("气死", "愤怒")]


def test_second_texts(write):
    path = write("a.tsv", "借呗\t花呗\t0\n好\t坏\t1\n")
    found = list(read_rows(path, ReadOptions(text_column=0, text_pair_column=1, label_column=2)))
    assert [(row.text, row.pair, row.label) for row in found] == [("借呗", "花呗", "0"), ("好", "坏", "1")]


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "indented"])
def test_json_arrays(write, indent):
    assert rows(write("a.json", json.dumps(PAIRS, ensure_ascii=indent is None, indent=indent))) == PAIRS
    assert rows(write("b.json", json.dumps(OBJECTS, indent=indent))) == PAIRS


def test_json_lines(write):
    assert rows(write("a.jsonl", "".join(json.dumps(pair) + "\n" for pair in PAIRS))) == PAIRS
    path = write("a.ndjson", "\n".join(json.dumps(record, ensure_ascii=False) for record in OBJECTS))
    assert rows(path) == PAIRS
    assert lines(path) == [1, 2, 3]


def test_objects_may_have_their_keys_in_any_order_and_more_keys(write):
    path = write(
        "a.jsonl",
        '{"id": 1, "text": "今天", "label": "高兴"}\n\n{"label": 2, "when": null, "text": "气死"}\n',
    )
    assert rows(path) == [("今天", "高兴"), ("气死", "2")]
    assert lines(path) == [1, 3]


def test_columns_of_objects_by_name_and_by_number(write):
    path = write(
        "a.jsonl", '{"话": "今天", "甲": 1, "心情": "高兴"}\n{"心情": "愤怒", "话": "气死", "甲": 2}\n'
    )
    wanted = [("今天", "高兴"), ("气死", "愤怒")]
    assert rows(path, text_column="话", label_column="心情") == wanted
    assert rows(path, text_column=0, label_column=2) == wanted


def test_parquet(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, which is not installed")
    from pyarrow import parquet

    texts, labels = [f"{text}{i}" for i in range(4000) for text, _ in PAIRS], [0, 1, 2] * 4000
    table = pyarrow.table(
        {"id": range(12000), "label": labels, "text": pyarrow.array(texts).dictionary_encode()}
    )
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5000)
    assert rows(tmp_path / "a.parquet") == list(zip(texts, map(str, labels), strict=True))
    assert lines(tmp_path / "a.parquet") == list(range(1, 12001))
    assert rows(tmp_path / "a.parquet", text_column=2, label_column="label", limit=2) == [
        (texts[0], "0"),
        (texts[1], "1"),
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", f"text,label\n{CSV}"),
        ("a.tsv", TSV),
        ("a.json", json.dumps(PAIRS)),
        ("a.jsonl", json.dumps(PAIRS[0])),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8-sig", "gb18030", "utf-16", "utf-16-le", "utf-32"])
def test_encodings_and_byte_order_marks(write, name, content, encoding):
    path = write(name, content.encode(encoding))
    settings = {} if encoding == "utf-8-sig" else {"encoding": encoding}
    assert rows(path, **settings) == PAIRS[: 1 if name == "a.jsonl" else 3]


@pytest.mark.parametrize("spelling", ["utf16", "UTF_16", "U16", "GB18030-2000", "GBK", "Utf-8"])
def test_other_spellings_of_encodings(write, spelling):
    text = "今天\t高兴\n气死\t愤怒\n"
    assert rows(write("a.tsv", text.encode(spelling)), encoding=spelling) == [
        ("今天", "高兴"),
        ("气死", "愤怒"),
    ]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_a_byte_order_mark_is_never_text(write, encoding):
    path = write("a.tsv", ("\ufeff" + TSV).encode(encoding))
    assert rows(path, encoding=encoding) == PAIRS


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.json", "a.jsonl"])
def test_line_ends_of_windows(write, name):
    content = {"a.csv": CSV, "a.tsv": TSV, "a.json": json.dumps(PAIRS, indent=0)}
    text = content.get(name, "".join(json.dumps(pair) + "\n" for pair in PAIRS)).replace("\n", "\r\n")
    assert rows(write(name, text)) == PAIRS


def test_a_last_line_without_an_end_and_blank_lines(write):
    assert rows(write("a.tsv", "\n" + TSV.rstrip("\n"))) == PAIRS
    path = write("b.csv", "\n\n" + CSV.replace("\n", "\n\n") + "\r\n")
    assert rows(path) == PAIRS
    assert lines(path) == [3, 5, 7]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85"])
@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl"])
def test_only_a_line_feed_ends_a_line(write, name, separator):
    """str.splitlines would cut such a text in two."""
    text = f"今天{separator}真开心"
    line = json.dumps([text, "高兴"], ensure_ascii=False) if name == "a.jsonl" else f"{text},高兴"
    content = f"{line}\n{line}\n"
    assert (
        rows(write(name, content.replace(",高兴", "\t高兴") if name == "a.tsv" else content))
        == [(text, "高兴")] * 2
    )


def test_quoted_fields_of_csv(write):
    content = 'label,text\n高兴,"好,""坏"""\n愤怒,"气死\n我\r\n了"\n"其他",好\n'
    reader = RowReader(write("a.csv", content), ReadOptions())
    found = list(reader.rows())
    assert [(row.line, row.text, row.label) for row in found] == [
        (2, '好,"坏"', "高兴"),
        (3, "气死\n我\r\n了", "愤怒"),
        (6, "好", "其他"),
    ]
    assert (reader.multiline, reader.first_multiline) == (1, 3)


def test_rows_merged_by_unpaired_quotes_are_noted_even_if_spaces_are_removed(write):
    """Two lone quotes make one row of three lines: valid CSV, but hardly ever what was meant."""
    path = write("a.csv", '"好,1\n坏,0\n真",1\n今,0\n')
    reader = RowReader(path, ReadOptions(remove_spaces=True))
    assert len(list(reader.rows())) == 2
    assert (reader.multiline, reader.first_multiline) == (1, 1)


def test_line_feeds_inside_json_are_no_sign_of_lone_quotes(write):
    reader = RowReader(write("a.json", json.dumps([["好\n坏", 1]])), ReadOptions())
    assert next(reader.rows()).text == "好\n坏"
    assert reader.multiline == 0


def test_quotes_in_tabs_are_text_and_lose_no_row(write):
    texts = ['"今天', '好"坏', '"', '"真""', '""']
    content = "label\ttext_a\n" + "".join(f"{number}\t{text}\n" for number, text in enumerate(texts))
    assert rows(write("a.tsv", content)) == [(text, str(number)) for number, text in enumerate(texts)]


def test_quoting_can_be_turned_on_for_tabs_and_off_for_csv(write):
    assert rows(write("a.tsv", '"今\t天"\t高兴\n'), quoting="double") == [("今\t天", "高兴")]
    assert rows(write("a.csv", '"今天,高兴\n真"开心,高兴\n'), quoting="none") == [
        ('"今天', "高兴"),
        ('真"开心', "高兴"),
    ]


def test_a_very_long_text(write):
    """Python's csv refuses fields of more than 131,072 characters by default."""
    text = "好" * 300_000
    assert rows(write("a.csv", f'"{text}",高兴\n')) == [(text, "高兴")]


@pytest.mark.parametrize("text", ["😀", "👨‍👩‍👧‍👦 一家", "𠮷野家", "❤️", "e\u0301", "ﷺ", "\u202e反", "a\x00b"])
def test_characters_that_other_readers_get_wrong(write, text):
    for name, content in (("a.csv", f"{text},{text}\n"), ("a.json", json.dumps([[text, text]]))):
        assert rows(write(name, content)) == [(text, text)]


@pytest.mark.parametrize(
    ("value", "label"),
    [("3", "3"), ("-1", "-1"), ("3.0", "3"), ('"03"', "03"), ('" 高兴 "', "高兴"), ('"1.5"', "1.5")],
)
def test_labels_are_strings_or_integers(write, value, label):
    assert rows(write("a.jsonl", f'["今天", {value}]\n')) == [("今天", label)]


def test_white_space_around_texts_is_removed_and_inside_only_when_asked_for(write):
    path = write("a.json", json.dumps([["  今天 真\u3000开 心 \n", "高兴"]]))
    assert rows(path) == [("今天 真\u3000开 心", "高兴")]
    assert rows(path, remove_spaces=True) == [("今天真开心", "高兴")]


def test_limit_reads_the_first_rows_only(write):
    path = write("a.tsv", TSV + "broken\n")
    assert rows(path, limit=3) == PAIRS
    assert rows(path, limit=1) == PAIRS[:1]


def test_the_format_can_be_given_if_the_name_does_not_have_it(write):
    assert rows(write("rows", TSV), format="tsv") == PAIRS
    assert rows(write("a.txt", CSV), format="csv") == PAIRS
    assert rows(write("a.json", json.dumps(PAIRS[0])), format="jsonl") == PAIRS[:1]


def test_texts_without_labels(write):
    found = list(read_rows(write("a.jsonl", '"今天"\n["气死"]\n'), ReadOptions(), need_label=False))
    assert [(row.text, row.label) for row in found] == [("今天", None), ("气死", None)]
