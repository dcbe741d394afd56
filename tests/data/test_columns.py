"""Which columns are texts and labels, and what labels are."""

import json

import numpy as np
import pandas as pd
import pytest

from app import load
from app.data.labels import sort_labels
from app.data.read import ReadOptions
from app.data.report import doubtful_labels
from app.data.row_reader import open_rows
from app.data.tokens import open_store
from app.errors import InputError, excerpt
from app.prediction.open_model import OpenedModel
from app.prediction.sources import options_of_run
from app.prediction.trained_model import read_trained_model, trained_with
from tests.multi_label_runs import read_predictions
from tests.saved_classifier import save_checkpoint
from tests.verbs import predict


def texts_of_run(path, recorded, asked=None, need_label=False):
    options = options_of_run(path, trained_with(path.parent, recorded), asked, need_label)
    rows = open_rows(path, options, need_label).rows()
    return [(row.text, row.pair, row.label) for row in rows]


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
def test_columns_are_those_asked_for_then_those_of_the_run(write, recorded, asked, expected):
    path = write("new.csv", "content,title,label\n正文一,标题一,a\n正文二,标题二,b\n")
    rows = texts_of_run(path, recorded, asked)
    assert (rows[0], len(rows)) == (expected, 2)


def test_labels_are_those_of_the_run(write):
    path = write("rows.csv", "text,label,category\n好,a,x|y\n坏,b,x\n")
    recorded = {"label_column": "category"}
    assert texts_of_run(path, recorded, need_label=True)[0] == ("好", None, "x|y")
    sets = recorded | {"task": "multi_label", "label_separator": "|"}
    assert texts_of_run(path, sets, need_label=True)[0] == ("好", None, '["x", "y"]')
    by_columns = {"task": "multi_label", "label_columns": ["x", "y"]}
    options = options_of_run(path, trained_with(path.parent, sets), by_columns, need_label=True)
    assert options == ReadOptions("csv", quoting="double", **by_columns)
    asked = {"label_column": "label", "label_separator": "|"}
    options = options_of_run(path, trained_with(path.parent, by_columns), asked, need_label=True)
    assert (options.label_columns, options.label_column) == (None, "label")


@pytest.mark.parametrize(
    ("name", "content", "recorded", "asked", "format"),
    [
        ("a.txt", '{"text": "好"}\n{"text": "坏"}\n', {}, {}, "jsonl"),
        ("a.txt", "好\n坏\n", {"text_column": "title", "train": "x.csv"}, {}, "text"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": "x.csv"}, {}, "text"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": "x.txt"}, {}, "tsv"),
        ("a.txt", "好\t0\n坏\t1\n", {"train": ["x.txt", "y.csv"]}, {}, "tsv"),
        ("a.txt", "好\n坏\n", {"train": "x.txt"}, {}, "tsv"),
        ("a.txt", "好,0\n坏,1\n", {"train": "x.txt", "format": "csv"}, {}, "csv"),
        ("a.tsv", "好\t0\n坏\t1\n", {"train": "x.txt", "format": "csv"}, {}, "tsv"),
        ("a.csv", '[["好", 0], ["坏", 1]]', {"train": "x.csv", "format": "csv"}, {}, "json"),
        ("a.csv", "好\n坏\n", {"train": "x.csv"}, {"format": "text"}, "text"),
    ],
)
def test_the_format_is_that_of_the_content_the_run_or_the_name(write, name, content, recorded, asked, format):
    path = write(name, content)
    assert options_of_run(path, trained_with(path.parent, recorded), asked).format == format


TEXT_COLUMNS = ["标题", "正文"]
ROWS = [("今天真好", "手机不错"), ("气死我了", " 快递太差"), ("", "喜欢"), ("电影", "")]
JOINED = ["今天真好[SEP]手机不错", "气死我了[SEP]快递太差", "喜欢", "电影"]
TABLE = "label,标题,id,正文\n"
TABLE += "".join(f"{number % 2},{title},x,{body}\n" for number, (title, body) in enumerate(ROWS * 5))


@pytest.mark.parametrize("columns", [TEXT_COLUMNS, [1, 3], [1, "正文"]])
def test_the_tokenizers_separator_stands_between_the_texts(opened, tmp_path, tiny_tokenizer, columns):
    table = opened("csv", train=TABLE, text_column=columns).files["train"]
    assert table.columns == "text '标题', '正文', label 'label'; not used: 'id'"
    store = open_store(table, tiny_tokenizer, 64, str(tmp_path / "cache"))
    assert [store.row(row).tolist() for row in range(4)] == tiny_tokenizer(JOINED)["input_ids"]


def test_a_row_needs_a_text_in_one_column(write):
    path = write("a.jsonl", '{"a": "好", "b": null}\n{"a": " ", "b": ""}\n{"a": "好", "b": 5}\n{"a": "好"}\n')
    rows = list(open_rows(path, ReadOptions(text_column=["a", "b"]), need_label=False).rows())
    assert rows[0].text == "好"
    rules = ["the text is empty", "the text must be a string", "the column 'b' is missing"]
    assert [row.problem.partition(",")[0] for row in rows[1:]] == rules


def test_predict_serve_and_python_take_the_same_columns(write, tmp_path, monkeypatch):
    rows_of = pytest.importorskip("app.serving.requests", exc_type=ImportError).rows_of
    checkpoint = save_checkpoint(tmp_path / "model")
    write("model/config.yaml", f"data: {{text_column: [{', '.join(TEXT_COLUMNS)}]}}\n")
    model = load(checkpoint, device="cpu")
    plain = load(save_checkpoint(tmp_path / "plain"), device="cpu")
    expected = plain.predict_proba(JOINED)
    frame = pd.DataFrame(ROWS, columns=TEXT_COLUMNS).assign(id=1)
    for texts in (frame, frame.to_dict("records"), ROWS):
        np.testing.assert_allclose(model.predict_proba(texts), expected, atol=1e-6)
    opened = OpenedModel(read_trained_model(checkpoint), model._opened.predictor)
    rows = rows_of([dict(zip(TEXT_COLUMNS, row, strict=True)) for row in ROWS], opened)
    np.testing.assert_allclose(model.predict_proba([row.text for row in rows]), expected, atol=1e-6)
    monkeypatch.chdir(tmp_path)
    words = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", str(write("rows.csv", TABLE))]
    assert predict([*words, "--output", "labels.csv"]) == 0
    predictions = read_predictions("labels.csv")[:4]
    assert [row["predicted_label"] for row in predictions] == plain.predict(JOINED).tolist()
    assert predict([*words, "--output", "b.csv", "--text_column", "[标题, 正文]"]) == 0


# "²" and "١" are digits to str.isdigit, but no numbers
ORDERS = ["1 9 10", "-1 0 1", "10 9 a b", "1 ²", "--1 1", "- 1", f"{'1' * 5000} 2", "2 ١"]


@pytest.mark.parametrize("in_order", list(map(str.split, ORDERS)), ids=lambda labels: " ".join(labels)[:9])
def test_the_order_of_labels_of_the_train_file(in_order):
    assert sort_labels(in_order[::-1]) == in_order


def test_the_data_report_warns_of_labels_that_look_alike_or_like_a_missing_value(opened, report_of):
    alike = [["好", "好\u200b"], ["1", "\uff11", "01"], ["caf\u00e9", "cafe\u0301"], ["好 评", "好\u3000评"]]
    alike += [["❤", "❤\ufe0f"], ["AI", "ai"], ["体 育", "体育"], ["坏。", "坏"], ["“差”", "差"]]
    different = ["中", "10", "-1", "a", "b", "1.0", "0", "nano"]
    missing = ["nan", "None", "NA", "N/A", "null", "<NA>"]
    wanted = [*(name for names in alike for name in names), *missing]
    assert doubtful_labels([*wanted, *different]) == list(map(excerpt, wanted))
    dataset = opened(train="".join(f"文本{label}\t{label}\n" for label in ("好", "1", "01", "nan")))
    [line] = [line for line in report_of(dataset).splitlines() if "  warning: labels" in line]
    assert line.endswith("are separate classes: '01', '1', 'nan'")


@pytest.mark.parametrize(
    ("labels", "is_asked"),
    [
        (["0", "1", "2", "3", "4", "5"], True),
        (["1", "2.5", "-3"], True),
        (["0", "1"], False),
        (["1", "5"], False),
        (["1", "2", "three"], False),
    ],
)
def test_the_data_report_asks_whether_numbers_are_classes(opened, report_of, labels, is_asked):
    rows = [f"文本{label}\t{label}\n" for label in labels]
    dataset = opened(train="".join(["text\tlabel\n", *rows]))
    lines = [line for line in report_of(dataset).splitlines() if "are numbers" in line]
    assert len(lines) == is_asked
    for line in lines:
        assert line.startswith(f"  note: the {len(labels)} labels are numbers, and are trained as classes")
        assert "for scores set --data.task regression, for ordered labels such as stars --data.task o" in line
    assert "are numbers" not in report_of(dataset, is_task_chosen=True)


TEXTS = ["甲一", "乙二", "丙三", "丁四", "戊五", "己六"]
SETS = [["b", "a"], [], ["c"], ["a", "a"], ["b", "c"], ["a", "b", "c"]]
MATRIX = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1]]
COLUMNS = {"label_columns": ["a", "b", "c"]}


def table_of(cells, separator: str = "\t") -> str:
    return "".join(f"{text}{separator}{cell}\n" for text, cell in zip(TEXTS, cells, strict=False))


FRAME = pd.DataFrame({"text": TEXTS, "labels": SETS})
MANY = pd.DataFrame(MATRIX, columns=["a", "b", "c"])
AS_LINES = {"orient": "records", "lines": True}


@pytest.mark.parametrize(
    ("ending", "content", "settings"),
    [
        ("jsonl", FRAME.to_json(**AS_LINES), {}),
        ("tsv", table_of(map(json.dumps, SETS)), {}),
        ("tsv", table_of(map("|".join, SETS)), {"label_separator": "|"}),
        ("tsv", table_of(map("、".join, SETS)), {"label_separator": "、"}),
        ("csv", table_of([f'"{", ".join(labels)}"' for labels in SETS], ","), {"label_separator": ","}),
        ("csv", MANY.assign(text=TEXTS).to_csv(index=False), COLUMNS),
        ("jsonl", MANY.astype(bool).assign(text=TEXTS).to_json(**AS_LINES), COLUMNS),
        ("parquet", FRAME.to_parquet(), {}),
    ],
    ids=["lists", "cells", "bars", "marks", "commas", "columns", "objects", "parquet"],
)
def test_lists_separators_and_columns_say_the_same(opened, ending, content, settings):
    dataset = opened(ending, train=content, task="multi_label", **settings)
    assert dataset.label_names == ["a", "b", "c"]
    assert np.asarray(dataset.splits["train"].labels).tolist() == MATRIX
    assert dataset.statistics["train"]["classes"] == {"a": 3, "b": 3, "c": 3}


@pytest.mark.parametrize(
    ("labels", "settings", "names", "matrix"),
    [
        ([None, "", ["x", 3]], {}, ["3", "x"], [[0, 0], [0, 0], [1, 1]]),
        # Ids are those of the names in the settings
        ([[1, 0], ["好"]], {"labels": ["坏", "好"]}, ["坏", "好"], [[1, 1], [0, 1]]),
    ],
)
def test_empty_cells_and_ids(opened, labels, settings, names, matrix):
    rows = pd.DataFrame({"text": TEXTS[: len(labels)], "labels": labels}).to_json(**AS_LINES)
    dataset = opened("jsonl", train=rows, task="multi_label", **settings)
    assert (dataset.label_names, dataset.splits["train"].labels.tolist()) == (names, matrix)


def rows_with(labels: list[str], again: int = 12) -> str:
    return "".join(f"第{n}行{at}\t{label}\n" for n in range(again) for at, label in enumerate(labels))


LISTS = table_of(map(json.dumps, SETS))
A_B = "text\ta\tb\n甲\t0\t1\n"
NO_C = "text\ta\tb\tc\n甲\t0\t1\t0\n乙\t1\t1\t0\n"
ONE = ["体育-球类-足球", "体育 - 田径", "体育", "财经-股票"]
OF_ONE = rows_with(ONE)
PATH_NAMES = ["体育", "体育-球类-足球", "体育-田径", "财经-股票"]
SEVERAL = ["体育|体育-球类|体育-球类-足球", "财经-股票|体育-田径", "", "财经-股票"]
TWO_PATHS = ["体育-球类|财经-股票", "体育-球类", "财经-股票"]
PATHS = {"task": "single_path", "label_hierarchy": "-"}
SLASHES = PATHS | {"label_hierarchy": "/"}


@pytest.mark.parametrize(
    ("train", "settings", "message"),
    [
        ("甲\ta，b\n乙\ta\n", {}, r"line 1: cannot tell .* one label or several: found 'a，b'; set"),
        ("甲\t['a', 'b\n乙\ta\n丙\tb\n", {}, "line 1: cannot tell whether this is one label or several"),
        ('甲\t["a", ""]\n乙\ta\n丙\tb\n', {}, "line 1: the label is empty"),
        ('甲\t["a", ["b"]]\n乙\ta\n', {}, "line 1: the label must be a string or an integer"),
        (A_B + "乙\t1\t2\n", {"label_columns": ["a", "b"]}, "line 3: the column 'b' of data.label"),
        (A_B + "乙\t1\t0\n", {"label_columns": ["a", "c"]}, "there is no label column 'c'"),
        (NO_C, COLUMNS | {"dev": NO_C + "庚\t0\t1\t1\n"}, "train.tsv: label 'c' is absent from train"),
        (LISTS, {"dev": '庚\t["a", "d"]\n'}, "dev.tsv, line 1: unknown label 'd'"),
        (OF_ONE, SLASHES, "labels must have two or more levels, with '/' between them"),
        (OF_ONE, PATHS | {"labels": [*PATH_NAMES, "体育-"]}, "label '体育-' is absent from train"),
        (rows_with(TWO_PATHS), PATHS, r"set --data\.task multi_path --data\.label_separator '\|'"),
    ],
)
def test_labels_that_are_not_clear_or_not_in_train_are_errors(opened, train, settings, message):
    with pytest.raises(InputError, match=message):
        opened(**{"train": train, "task": "multi_label"} | settings)


@pytest.fixture(params=["single_path", "multi_path"])
def open_paths(request, opened):
    return lambda **settings: opened(**{"task": request.param, "label_hierarchy": "-"} | settings)


def test_levels_are_read_without_white_space_and_a_path_with_all_its_levels_is_one(opened):
    assert opened(train=OF_ONE, **PATHS).label_names == PATH_NAMES
    settings = {"task": "multi_path", "label_hierarchy": "-", "label_separator": "|"}
    several = opened(train=rows_with(SEVERAL), **settings)
    assert several.label_names == ["体育-球类-足球", "体育-田径", "财经-股票"]
    assert {int(row.sum()) for row in several.splits["train"].labels} == {0, 1, 2}


@pytest.mark.parametrize("label", ["体育-", "-足球", "体育--足球", "体育- -足球"])
def test_an_empty_level_is_refused_with_its_line(open_paths, label):
    with pytest.raises(InputError, match=r"train\.tsv, line 3: level [12] of the label is empty, found"):
        open_paths(train=rows_with([*ONE[:2], label], again=1))
    assert open_paths(train=rows_with([*ONE, label]), on_bad_row="skip").label_names


@pytest.mark.parametrize(("label", "nearest"), [("财经-股标", "财经-股票"), ("体育-球类", "体育-球类-足球")])
def test_an_unknown_label_is_refused_with_its_line_and_the_nearest_name(open_paths, label, nearest):
    files = {"train": OF_ONE, "dev": rows_with(["财经-股票", label], again=1)}
    wanted = rf"dev\.tsv, line 2: unknown label '{label}'; did you mean '{nearest}'\? \(known: "
    with pytest.raises(InputError, match=wanted):
        open_paths(**files)
