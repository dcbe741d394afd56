"""A format is recognised by the content of a file, whatever its name: python -m pytest
tests/data/test_formats.py"""

import json
from pathlib import Path
from typing import get_args

import pytest

from app.config.data_settings import FormatName
from app.data.file_formats import FORMATS
from app.data.read import ReadOptions, file_format
from app.data.rows import read_rows
from app.data.run_options import options_of_run
from app.data.table import open_table
from app.errors import InputError

PAIRS = [["今天真开心", "高兴"], ["气死我了", "愤怒"], ["[微笑] 好", "其他"]]
OBJECTS = [{"content": text, "label_desc": label, "label": label} for text, label in PAIRS]
LAYOUTS = {
    "lines of objects": "\n".join(json.dumps(record, ensure_ascii=False) for record in OBJECTS),
    "lines of arrays": "\ufeff" + "\r\n\r\n".join(json.dumps(pair) for pair in PAIRS),
    "one array": json.dumps(OBJECTS, ensure_ascii=False),
    "one indented array": "\n" + json.dumps(PAIRS, indent=2),
    "an array with a row on each line": "[" + ",\n".join(json.dumps(record) for record in OBJECTS) + "]\n",
    "an array in an object": json.dumps({"version": "1.0", "data": OBJECTS}),
    "an array in an indented object": json.dumps({"data": PAIRS}, indent=4),
}


def test_the_setting_names_the_formats_there_are():
    assert get_args(FormatName) == ("auto", *FORMATS)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.txt", "a.csv", "a.tsv", "a.data", "a"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_json_of_any_layout_under_any_name(write, name, layout):
    path = write(name, LAYOUTS[layout])
    assert [[row.text, row.label] for row in read_rows(path, ReadOptions())] == PAIRS
    assert options_of_run(path, {}).format == ("jsonl" if "lines of" in layout else "json")


def test_columns_as_pandas_writes_them_are_told_how_to_become_rows(write):
    columns = {"text": {"0": "今天", "1": "气死"}, "label": {"0": 1, "1": 0}}
    with pytest.raises(InputError, match=r"an array of pairs or of objects is needed.*orient=\"records\""):
        list(read_rows(write("a.json", json.dumps(columns)), ReadOptions()))


def test_rows_longer_than_what_is_looked_at(write):
    objects = [{"text": "好" * 500_000, "label": 1}, {"text": "坏", "label": 0}]
    lines = "\n".join(json.dumps(record, ensure_ascii=False) for record in objects)
    assert len(list(read_rows(write("a.jsonl", lines), ReadOptions()))) == 2
    many = json.dumps([{"text": "好" * 50, "label": 1}] * 9000, ensure_ascii=False)
    assert file_format(write("b.txt", many), "auto", "utf-8") == "json"
    assert file_format(write("c.txt", f'{{"data": {many}}}'), "auto", "utf-8") == "json"


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16", "utf-32"])
def test_the_encoding_of_the_settings_is_used(write, encoding):
    path = write("a.txt", LAYOUTS["lines of objects"].encode(encoding))
    rows = read_rows(path, ReadOptions(encoding=encoding))
    assert [[row.text, row.label] for row in rows] == PAIRS


NOT_JSON = {
    "emoji in brackets": "[微笑] 今天真好\t1\n{doge} 气死\t0\n",
    "a footnote": "[1]\n[2]\n",
    "a footnote with a label": "[1]\t1\n",
    "an empty array": "[]\n{}\n",
    "JSON in a field": '{"a": 1}\t1\n["b"]\t0\n',
    "quotes in brackets": '["好"] 他说\t1\n',
    "a broken array": '["好", 1\n["坏", 0]\n',
    "a text that begins an object": '{"a":\t1\n',
    "JSON in the first line only": '{"a": 1}\n今天\n',
}


@pytest.mark.parametrize("name", ["a.txt", "a.tsv", "a.csv"])
@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON)
def test_texts_with_brackets_are_not_json(write, name, content):
    lines, by_name = content.splitlines(), "csv" if name == "a.csv" else "tsv"
    # Two lines with the same separator say more than the name
    by_lines = [
        key for key, separator in (("tsv", "\t"), ("csv", ",")) if all(separator in one for one in lines)
    ]
    expected = by_lines[0] if by_lines and len(lines) > 1 else by_name
    assert file_format(write(name, content), "auto", "utf-8") == expected


def test_a_format_that_is_set_is_used(write):
    path = write("a.csv", LAYOUTS["lines of arrays"])
    assert file_format(path, "csv", "utf-8") == "csv"
    assert [row.text for row in read_rows(path, ReadOptions("text"), need_label=False)][0].startswith('["')


def test_an_unknown_ending_of_a_name(write):
    with pytest.raises(InputError, match=r"known endings: \.csv.*--data\.format"):
        file_format(write("a.dat", "今天\t1\n"), "auto", "utf-8")
    with pytest.raises(InputError, match="a gzip file"):
        file_format(write("a.dat", b"\x1f\x8b\x08"), "auto", "utf-8")
    with pytest.raises(InputError, match="no such file"):
        file_format(Path("missing.xyz"), "auto", "utf-8")


def test_parquet_under_any_name(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs pyarrow, which is not installed")
    from pyarrow import parquet

    path = tmp_path / "train-00000-of-00001"
    parquet.write_table(pyarrow.table({"text": ["今天"], "label": [1]}), path)
    assert [row.text for row in read_rows(path, ReadOptions())] == ["今天"]


def test_a_table_read_by_the_name_is_not_taken_for_one_read_by_the_content(write, tmp_path):
    path = str(write("a.csv", LAYOUTS["lines of arrays"]))
    by_name = open_table(path, ReadOptions("csv", header=False), str(tmp_path), skip_bad_rows=True)
    found = open_table(path, ReadOptions(header=False), str(tmp_path))
    assert [found.text(row) for row in range(found.num_rows)] == [text for text, _ in PAIRS]
    assert by_name.key != found.key
