"""Files that are read again for a run: python -m pytest tests/data/test_options_of_run.py"""

import pytest

from app.data.read import ReadOptions, options_of_run
from app.data.rows import read_rows
from app.errors import InputError
from app.prediction.model_folder import settings_of_reading

TITLES = "content,title,label\n正文一,标题一,a\n正文二,标题二,b\n"


def texts(path, recorded, asked=None, need_label=False):
    rows = read_rows(path, options_of_run(path, recorded, asked, need_label), need_label)
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
    rows = texts(titles, recorded, asked)
    assert rows[0] == expected
    assert len(rows) == 2


@pytest.mark.parametrize(
    ("recorded", "message"),
    [
        ({"text_column": "标题"}, r"new\.csv, line 1: there is no text column '标题'.*found: content, title"),
        ({"text_column": "title", "text_pair_column": "q"}, "there is no second text column 'q'"),
    ],
)
def test_a_recorded_column_that_is_missing_is_an_error(titles, recorded, message):
    with pytest.raises(InputError, match=message):
        texts(titles, recorded)


@pytest.mark.parametrize("train", ["data/x.csv", ["data/x.csv", "data/y.csv"]])
def test_what_an_exported_folder_keeps_of_the_train_files(train):
    assert settings_of_reading({"train": train, "long": "cut", "labels": ["y"]}) == {
        "train": "x.csv",
        "long": "cut",
    }


def test_labels_are_those_of_the_run(write):
    path = write("rows.csv", "text,label,category\n好,a,x|y\n坏,b,x\n")
    recorded = {"label_column": "category"}
    assert texts(path, recorded, need_label=True)[0] == ("好", None, "x|y")
    sets = recorded | {"task": "multi_label", "label_separator": "|"}
    assert texts(path, sets, need_label=True)[0] == ("好", None, '["x", "y"]')
    by_columns = {"task": "multi_label", "label_columns": ["x", "y"]}
    assert options_of_run(path, sets, by_columns, need_label=True) == ReadOptions(
        "csv", task="multi_label", label_columns=["x", "y"]
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
        ("a.txt", "好\n坏\n", {"train": "x.txt"}, {}, "text"),
        ("a.txt", "好,0\n坏,1\n", {"train": "x.txt", "format": "csv"}, {}, "csv"),
        ("a.data", "好,0\n坏,1\n", {"train": "x.txt", "format": "csv"}, {}, "csv"),
        ("a.tsv", "好\t0\n坏\t1\n", {"train": "x.txt", "format": "csv"}, {}, "tsv"),
        ("a.csv", '[["好", 0], ["坏", 1]]', {"train": "x.csv", "format": "csv"}, {}, "json"),
        ("a.csv", "好\n坏\n", {"train": "x.csv"}, {"format": "text"}, "text"),
    ],
)
def test_the_format_is_that_of_the_content_the_run_or_the_name(write, name, content, recorded, asked, format):
    assert options_of_run(write(name, content), recorded, asked).format == format


def test_the_encoding_is_that_of_the_run(write):
    path = write("a.txt", "今天\n真好\n".encode("gb18030"))
    assert [text for text, _, _ in texts(path, {"encoding": "gb18030"})] == ["今天", "真好"]
    path = write("a.txt", '{"text": "今天"}\n'.encode("gb18030"))
    options = options_of_run(path, {"encoding": "gb18030", "remove_spaces": True})
    assert options == ReadOptions("jsonl", encoding="gb18030", remove_spaces=True)
