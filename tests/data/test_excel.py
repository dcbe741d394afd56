"""Excel files -> rows, or one error: python -m pytest tests/data/test_excel.py"""

import datetime
import io
import random
import sys
import zipfile

import pytest

from app.data.files import Stream
from app.data.read import ReadOptions, recognised
from app.data.rows import RowReader
from app.errors import InputError

openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install -r requirements/dev.txt")
ROWS = [["内容", "类别"], ["今天真开心", "高兴"], ["气死我了😀", "愤怒"], ["第一行\n第二行", "其他"]]
TEXTS = [(text.strip(), label) for text, label in ROWS[1:]]


@pytest.fixture
def book(tmp_path):
    def write(*sheets, name="a.xlsx", change=lambda book: None):
        """Write a workbook of sheets, each a list of rows, and return its path."""
        workbook = openpyxl.Workbook()
        for number, rows in enumerate(sheets):
            sheet = workbook.worksheets[0] if number == 0 else workbook.create_sheet(f"表{number}")
            for row in rows:
                sheet.append(row)
        change(workbook)
        workbook.save(tmp_path / name)
        return tmp_path / name

    return write


def read(path, need_label=True, **options) -> list:
    return list(RowReader(path, ReadOptions(**options), need_label).rows())


def pairs(rows) -> list:
    return [(row.text, row.label) for row in rows]


@pytest.mark.parametrize("name", ["a.xlsx", "a.csv", "a"])
def test_a_sheet_under_any_name(book, name):
    path = book(ROWS, name=name)
    assert recognised(path, ReadOptions()).format == "xlsx"
    rows = read(path)
    assert pairs(rows) == TEXTS
    assert [row.line for row in rows] == [2, 3, 4]


def test_more_columns_empty_rows_and_empty_sheets(book):
    header, blank = [None, "id", "标签", "文本", "备注"], [None] * 5
    rows = read(book([], [header, [], [0, 7, 1, "今天", None], [], [1, 8, 0.0, "气死", "?"], blank], []))
    assert pairs(rows) == [("今天", "1"), ("气死", "0")]
    assert [row.line for row in rows] == [3, 5]


def test_a_sheet_without_column_names(book):
    rows = [["今天", "高兴"], ["气死", "愤怒", "a note beside the table"]]
    expected = [("今天", "高兴"), ("气死", "愤怒")]
    assert pairs(read(book(rows))) == expected
    assert pairs(read(book([["甲", "乙"], *rows]), text_column="甲")) == expected
    assert [row.text for row in read(book([["今天"], ["好"]]), need_label=False)] == ["今天", "好"]


def test_texts_are_as_excel_shows_them(book):
    def change(workbook):
        sheet = workbook.worksheets[0]
        sheet["A2"] = "=1+1"
        sheet["A2"].data_type = "s"
        sheet["A3"] = "行_x000D_\n末_x005F_x000D_"

    rows = read(book([["text", "label"], ["", "1"], ["", "0"]], change=change))
    assert [row.text for row in rows] == ["=1+1", "行\r\n末_x000D_"]


EMPTY = "found null"
ODD_ROWS = [
    (["=A1&B1", 1], f"the text is empty, {EMPTY}"),
    ([666, 1], "the text must be a string, found 666"),
    ([datetime.date(2026, 1, 2), 1], 'found "2026-01-02'),
    (["#N/A", 1], f"the text is empty, {EMPTY}"),
    ([None, 1], f"the text is empty, {EMPTY}"),
    (["好", None], f"the label must be a string or an integer, {EMPTY}"),
    (["合并", "正"], None),
    (["合并", None], f"the label must be a string or an integer, {EMPTY}"),
    # A date is a label
    (["合并", datetime.datetime(2026, 1, 2, 3)], None),
    ([" \u3000", 1], f"the text is empty, {EMPTY}"),
]


def test_cells_that_are_no_text_are_named(book):
    rows = [["text", "label"], *(row for row, _ in ODD_ROWS)]
    path = book(rows, change=lambda it: it.active.merge_cells("B8:B9"))
    for row, (_, problem), line in zip(read(path), ODD_ROWS, range(2, 12), strict=True):
        assert row.line == line
        assert problem in row.problem if problem else row.text == "合并"


PASSWORD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(2000)


@pytest.mark.parametrize("content", [PASSWORD, b"PK\x03\x04 nothing", b"text,label\n"])
def test_a_file_that_is_no_workbook(write, content):
    with pytest.raises(InputError, match="the file cannot be read: .*a workbook without a password"):
        read(write("a.xlsx", content))


@pytest.mark.parametrize(
    ("sheets", "message"),
    [
        ([ROWS, ROWS], r"one sheet with values is needed, found Sheet, 表1; save the one"),
        ([[], []], "one sheet with values is needed, found none"),
        ([ROWS[:1]], "only a header"),
        ([[["评论数据集"], *ROWS]], "which column is the label.*remove what is above a header"),
    ],
)
def test_workbooks_without_one_sheet_of_rows(book, sheets, message):
    with pytest.raises(InputError, match=message):
        read(book(*sheets))


def test_another_format_a_stream_and_no_calamine(book, monkeypatch):
    path = book(ROWS)
    with pytest.raises(InputError, match="text is needed, found .* a workbook.*--data.format"):
        read(path, format="csv")
    with pytest.raises(InputError, match="xlsx files cannot be read from a stream"):
        read(Stream("<stdin>", io.BufferedReader(io.BytesIO(path.read_bytes()))), format="xlsx")
    monkeypatch.setitem(sys.modules, "python_calamine", None)
    with pytest.raises(InputError, match="Excel files need a package: pip install python-calamine"):
        read(path)


@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(60, 1000), marks=pytest.mark.slow)], ids=str)
def test_damaged_workbooks_give_rows_or_one_error(book, seeds):
    """Bits of the archive, or of the XML inside it, are changed."""
    path = book(ROWS)
    whole, messages = path.read_bytes(), []
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
                for other, old in entries.items():
                    file.writestr(other, content if other == name else old)
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
    rows = ["".join(map(CELL.format, row)) for row in [ROWS[0], *TEXTS[:2]]]
    content = ODS.format(rows="".join(f"<table:table-row>{row}</table:table-row>" for row in rows))
    with zipfile.ZipFile(tmp_path / "a.ods", "w") as file:
        file.writestr("mimetype", "application/vnd.oasis.opendocument.spreadsheet")
        file.writestr("content.xml", content)
        file.writestr("META-INF/manifest.xml", "<manifest/>")
    assert recognised(tmp_path / "a.ods", ReadOptions()).format == "xlsx"
    assert pairs(read(tmp_path / "a.ods")) == TEXTS[:2]
