"""Several labels a row, and labels that are paths: python -m pytest tests/data/test_labels.py"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import Dataset, open_dataset
from app.data.report import doubtful_labels, render
from app.data.tokens import open_store
from app.errors import InputError, excerpt
from app.words import in_language


def opened(path: Path | str, **settings) -> Dataset:
    """Return the dataset of a file without dev and test rows; settings are those of `data`."""
    config = DataConfig(train=str(path), dev_size=0, test_size=0, cache_dir=f"{path}-cache")
    return open_dataset(replace(config, **settings))


def test_the_data_report_warns_of_labels_that_look_alike_or_like_a_missing_value():
    alike = [["好", "好\u200b"], ["1", "\uff11", "01"], ["caf\u00e9", "cafe\u0301"], ["好 评", "好\u3000评"]]
    alike += [["❤", "❤\ufe0f"], ["AI", "ai"], ["体 育", "体育"], ["坏。", "坏"], ["“差”", "差"]]
    different = ["中", "10", "-1", "a", "b", "1.0", "0", "nano"]
    missing = ["nan", "None", "NA", "N/A", "null", "<NA>"]
    wanted = [*(name for names in alike for name in names), *missing]
    assert doubtful_labels([*wanted, *different]) == list(map(excerpt, wanted))


def test_the_warning_is_one_line_of_the_data_report(tmp_path, tiny_tokenizer):
    path = tmp_path / "a.tsv"
    lines = [f"文本{number}{label}\t{label}\n" for number in range(4) for label in ("好", "1", "01", "nan")]
    path.write_text("".join(lines), encoding="utf-8")
    dataset = opened(path)
    stores = {"train": open_store(dataset.tables[0], tiny_tokenizer, 8, str(tmp_path / "cache"))}
    [line] = [line for line in render(dataset, stores).splitlines() if "  warning" in line]
    assert line.endswith("are separate classes: '01', '1', 'nan'")


# Several labels a row

TEXTS = ["甲一", "乙二", "丙三", "丁四", "戊五", "己六"]
SETS = [["b", "a"], [], ["c"], ["a", "a"], ["b", "c"], ["a", "b", "c"]]
MATRIX = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1]]
COLUMNS = {"label_columns": ["a", "b", "c"]}


def table_of(cells: list[str], separator: str = "\t") -> str:
    return "".join(f"{text}{separator}{cell}\n" for text, cell in zip(TEXTS, cells, strict=True))


def json_rows(values: list[dict]) -> str:
    rows = zip(TEXTS, values, strict=True)
    return "".join(json.dumps({"text": text} | value, ensure_ascii=False) + "\n" for text, value in rows)


@pytest.mark.parametrize(
    ("name", "content", "settings"),
    [
        ("lists.jsonl", json_rows([{"labels": labels} for labels in SETS]), {}),
        ("cells.tsv", table_of(map(json.dumps, SETS)), {}),
        ("bars.tsv", table_of(map("|".join, SETS)), {"label_separator": "|"}),
        ("marks.tsv", table_of(map("、".join, SETS)), {"label_separator": "、"}),
        ("a.csv", table_of([f'"{", ".join(one)}"' for one in SETS], ","), {"label_separator": ","}),
        ("columns.csv", "text,a,b,c\n" + table_of([",".join(map(str, row)) for row in MATRIX], ","), COLUMNS),
        ("objects.jsonl", json_rows([{n: n in labels for n in "abc"} for labels in SETS]), COLUMNS),
        ("rows.parquet", SETS, {}),
    ],
)
def test_lists_separators_and_columns_say_the_same(write, name, content, settings):
    if name == "rows.parquet":
        buffer = pa.BufferOutputStream()
        parquet.write_table(pa.table({"text": TEXTS, "labels": content}), buffer)
        content = buffer.getvalue().to_pybytes()
    dataset = opened(write(name, content), task="multi_label", **settings)
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
def test_empty_cells_and_ids(write, labels, settings, names, matrix):
    lines = "".join(json.dumps({"text": t, "labels": v}) + "\n" for t, v in zip(TEXTS, labels, strict=False))
    dataset = opened(write("rows.jsonl", lines), task="multi_label", **settings)
    assert (dataset.label_names, dataset.splits["train"].labels.tolist()) == (names, matrix)


A_B = "text\ta\tb\n甲\t0\t1\n"


@pytest.mark.parametrize(
    ("content", "settings", "message"),
    [
        (
            "甲\ta，b\n乙\ta\n",
            {},
            "line 1: cannot tell whether this is one label or several: found 'a，b'; set",
        ),
        ("甲\t['a', 'b\n乙\ta\n丙\tb\n", {}, "line 1: cannot tell whether this is one label or several"),
        ('甲\t["a", ""]\n乙\ta\n丙\tb\n', {}, "line 1: the label is empty"),
        ('甲\t["a", ["b"]]\n乙\ta\n丙\tb\n', {}, "line 1: the label must be a string or an integer"),
        (A_B + "乙\t1\t2\n", {"label_columns": ["a", "b"]}, "line 3: the column 'b' of data.label_columns"),
        (A_B + "乙\t1\t0\n", {"label_columns": ["a", "c"]}, "there is no label column 'c'"),
    ],
)
def test_cells_that_are_not_clear_are_errors(write, content, settings, message):
    with pytest.raises(InputError) as raised:
        opened(write("rows.tsv", content), task="multi_label", **settings)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("dev", "message"),
    [
        (
            "text,a,b,c\n庚,0,1,0\n辛,0,1,1\n",
            "train.csv: label 'c' is absent from train",
        ),
        ('{"text": "庚", "labels": ["a", "d"]}\n', "dev.jsonl, line 1: unknown label 'd'"),
    ],
)
def test_a_label_of_dev_that_train_has_not_is_an_error(write, dev, message):
    rows, kind, settings = "text,a,b,c\n甲,0,1,0\n乙,1,1,0\n", "csv", COLUMNS
    if dev.startswith("{"):
        rows, kind, settings = json_rows([{"labels": labels} for labels in SETS]), "jsonl", {}
    files = {"path": write(f"train.{kind}", rows), "dev": str(write(f"dev.{kind}", dev))}
    with pytest.raises(InputError) as raised:
        opened(**files, task="multi_label", **settings)
    assert message in str(raised.value)


SEVERAL_COLUMNS = ["--data.task", "multi_label", "--data.train", "x.csv", "--data.label_columns", "[a, b]"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--data.label_separator", "|"], "label_separator must be left out unless data.task is multi_label"),
        (["--data.task", "multi_label"], "data.train must be a file with data.task multi_label"),
        ([*SEVERAL_COLUMNS, "--data.label_column", "a"], "label_column must be left out with data.label_"),
        (["--data.label_hierarchy", "-"], "left out unless data.task is single_path or multi_path, found -"),
    ],
)
def test_settings_that_do_not_go_together(words, message):
    with pytest.raises(InputError, match=message):
        load_config(words)


# Labels that are paths

ONE = ["体育-球类-足球", "体育 - 田径", "体育", "财经-股票"]
PATH_NAMES = ["体育", "体育-球类-足球", "体育-田径", "财经-股票"]
SEVERAL = ["体育|体育-球类|体育-球类-足球", "财经-股票|体育-田径", "", "财经-股票"]


def write_rows(path: Path, labels: list, again: int = 12) -> Path:
    """Write JSON Lines with each label several times."""
    lines = [{"text": f"第{n}行{i}", "label": label} for n in range(again) for i, label in enumerate(labels)]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return path


def open_paths(path: Path, task: str = "single_path", **settings) -> Dataset:
    return opened(path, **{"task": task, "label_hierarchy": "-"} | settings)


@pytest.mark.parametrize(
    ("task", "labels", "names", "counts"),
    [
        # Levels are read without the white space around them
        ("single_path", ONE, PATH_NAMES, None),
        # A path that names each of its levels is one path
        ("multi_path", SEVERAL, ["体育-球类-足球", "体育-田径", "财经-股票"], {0, 1, 2}),
    ],
)
def test_paths(tmp_path, task, labels, names, counts):
    separator = "|" if task == "multi_path" else None
    dataset = open_paths(write_rows(tmp_path / "a.jsonl", labels), task, label_separator=separator)
    assert dataset.label_names == names
    if counts:
        assert {int(row.sum()) for row in dataset.splits["train"].labels} == counts


@pytest.mark.parametrize("label", ["体育-", "-足球", "体育--足球", "体育- -足球"])
@pytest.mark.parametrize("task", ["single_path", "multi_path"])
def test_an_empty_level_is_refused_with_its_line(tmp_path, task, label):
    path = write_rows(tmp_path / "a.jsonl", [*ONE[:2], label], again=1)
    with pytest.raises(InputError, match=r"a\.jsonl, line 3: level [12] of the label is empty, found"):
        open_paths(path, task)
    assert open_paths(write_rows(tmp_path / "b.jsonl", [*ONE, label]), task, on_bad_row="skip").label_names


@pytest.mark.parametrize(("label", "nearest"), [("财经-股标", "财经-股票"), ("体育-球类", "体育-球类-足球")])
@pytest.mark.parametrize("task", ["single_path", "multi_path"])
def test_an_unknown_label_is_refused_with_its_line_and_the_nearest_name(tmp_path, label, nearest, task):
    dev = write_rows(tmp_path / "dev.jsonl", ["财经-股票", label], again=1)
    with pytest.raises(InputError) as caught:
        open_paths(write_rows(tmp_path / "a.jsonl", ONE), task, dev=str(dev))
    wanted = f"dev.jsonl, line 2: unknown label '{label}'; did you mean '{nearest}'? (known: "
    assert wanted in str(caught.value)
    with in_language("zh"), pytest.raises(InputError, match="第 2 行：未知的标签"):
        open_paths(tmp_path / "a.jsonl", task, dev=str(dev))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_hierarchy": "/"}, "labels must have two or more levels, with '/' between them"),
        ({"labels": [*PATH_NAMES, "体育-"]}, "label '体育-' is absent from train"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        open_paths(write_rows(tmp_path / "a.jsonl", ONE), **settings)


def test_several_paths_in_one_label_are_told_with_the_task_for_them(tmp_path):
    labels = ["体育-球类|财经-股票", "体育-球类", "财经-股票"]
    with pytest.raises(InputError, match=r"set --data\.task multi_path --data\.label_separator '\|'"):
        open_paths(write_rows(tmp_path / "a.jsonl", labels))
