"""Rows with any number of labels, in every form, and their splits: python -m pytest
tests/data/test_multi_label_rows.py"""

import json
from dataclasses import replace
from shlex import split

import numpy as np
import pytest

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import Dataset, open_dataset
from app.errors import InputError

ROWS = [
    ("甲一", ["b", "a"]),
    ("乙二", []),
    ("丙三", ["c"]),
    ("丁四", ["a", "a"]),
    ("戊五", ["b", "c"]),
    ("己六", ["a", "b", "c"]),
]
MATRIX = [[1, 1, 0], [0, 0, 0], [0, 0, 1], [1, 0, 0], [0, 1, 1], [1, 1, 1]]


def opened(tmp_path, **settings) -> Dataset:
    config = DataConfig(task="multi_label", dev_size=0, test_size=0, cache_dir=str(tmp_path / "cache"))
    return open_dataset(
        replace(config, **{key: str(v) if key == "train" else v for key, v in settings.items()})
    )


def matrix(dataset: Dataset) -> list[list[int]]:
    return np.asarray(dataset.splits["train"].labels).tolist()


def columns_of(names: str, separator: str) -> str:
    lines = [separator.join(["text", *names])]
    lines += [separator.join([text, *(str(int(name in labels)) for name in names)]) for text, labels in ROWS]
    return "\n".join(lines) + "\n"


def json_lines(key: str = "labels") -> str:
    return "".join(json.dumps({"text": text, key: labels}) + "\n" for text, labels in ROWS)


def test_lists_separators_and_columns_say_the_same(tmp_path, write):
    lists = opened(tmp_path, train=write("lists.jsonl", json_lines()))
    quoted = "\n".join(f"{text}\t{json.dumps(labels)}" for text, labels in ROWS) + "\n"
    cells = opened(tmp_path, train=write("cells.tsv", quoted))
    found = [lists, cells]
    for number, separator in enumerate(("|", "、")):
        lines = "".join(f"{text}\t{separator.join(labels)}\n" for text, labels in ROWS)
        found.append(opened(tmp_path, train=write(f"{number}.tsv", lines), label_separator=separator))
    commas = "".join(f'{text},"{", ".join(labels)}"\n' for text, labels in ROWS)
    found.append(opened(tmp_path, train=write("commas.csv", commas), label_separator=","))
    found.append(
        opened(tmp_path, train=write("columns.csv", columns_of("abc", ",")), label_columns=["a", "b", "c"])
    )
    objects = "".join(json.dumps({"text": t} | {n: n in labels for n in "abc"}) + "\n" for t, labels in ROWS)
    found.append(opened(tmp_path, train=write("objects.jsonl", objects), label_columns=["a", "b", "c"]))
    for dataset in found:
        assert dataset.label_names == ["a", "b", "c"]
        assert matrix(dataset) == MATRIX
    statistics = lists.statistics["train"]
    assert statistics["classes"] == {"a": 3, "b": 3, "c": 3}
    assert statistics["unlabelled"] == 1


def test_parquet_lists_and_columns(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    texts, labels = map(list, zip(*ROWS, strict=True))
    numbers = {name: [float(name in row) for row in labels] for name in "abc"}
    parquet.write_table(
        pyarrow.table({"text": texts, "labels": labels, **numbers}), tmp_path / "rows.parquet"
    )
    assert matrix(opened(tmp_path, train=tmp_path / "rows.parquet")) == MATRIX
    columns = opened(tmp_path, train=tmp_path / "rows.parquet", label_columns=["c", "b", "a"])
    assert columns.label_names == ["c", "b", "a"]
    assert matrix(columns) == [row[::-1] for row in MATRIX]


def test_null_and_empty_cells_are_rows_without_labels(tmp_path, write):
    lines = (
        '{"text": "甲", "labels": null}\n{"text": "乙", "labels": ""}\n{"text": "丙", "labels": ["x", 3]}\n'
    )
    dataset = opened(tmp_path, train=write("rows.jsonl", lines))
    assert dataset.label_names == ["3", "x"]
    assert matrix(dataset) == [[0, 0], [0, 0], [1, 1]]


def test_ids_in_lists_are_the_names_of_the_settings(tmp_path, write):
    lines = '{"text": "甲", "labels": [1, 0]}\n{"text": "乙", "labels": ["好"]}\n'
    dataset = opened(tmp_path, train=write("rows.jsonl", lines), labels=["坏", "好"])
    assert matrix(dataset) == [[1, 1], [0, 1]]


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "a|b",
            "line 1: cannot tell whether this is one label or several: found 'a|b'; set "
            "--data.label_separator '|'",
        ),
        ("a，b", "set --data.label_separator '，'"),
        ("['a', 'b']", "line 1: a list of labels must be JSON"),
        ('["a", ""]', "line 1: the label is empty"),
        ('["a", ["b"]]', "line 1: the label must be a string or an integer"),
    ],
)
def test_cells_that_are_not_clear_are_errors(cell, message, tmp_path, write):
    path = write("rows.tsv", f"甲\t{cell}\n乙\ta\n丙\tb\n")
    with pytest.raises(InputError) as raised:
        opened(tmp_path, train=path)
    assert message in str(raised.value)


def test_a_column_that_is_neither_0_nor_1_is_an_error(tmp_path, write):
    path = write("rows.csv", "text,a,b\n甲,0,1\n乙,1,2\n")
    with pytest.raises(
        InputError, match="line 3: the column 'b' of data.label_columns must be 0 or 1, found '2'"
    ):
        opened(tmp_path, train=path, label_columns=["a", "b"])
    with pytest.raises(InputError, match="there is no label column 'c'"):
        opened(tmp_path, train=path, label_columns=["a", "c"])


def test_an_unknown_label_in_dev_is_named(tmp_path, write):
    train = write("train.jsonl", json_lines())
    dev = write("dev.jsonl", '{"text": "庚", "labels": ["a", "d"]}\n')
    with pytest.raises(InputError, match="dev.jsonl, line 1: unknown label 'd'"):
        opened(tmp_path, train=train, dev=str(dev))


def test_a_label_that_train_has_not_is_an_error(tmp_path, write):
    path = write("rows.csv", "text,a,b,c\n甲,0,1,0\n乙,1,1,0\n")
    dev = write("dev.csv", "text,a,b,c\n丙,0,1,0\n丁,0,1,1\n")
    with pytest.raises(
        InputError, match="label 'c' is absent from train .the first of its 1 dev rows is .*dev.csv, line 3"
    ):
        opened(tmp_path, train=path, dev=str(dev), label_columns=["a", "b", "c"])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            ["--data.label_separator", "|"],
            "data.label_separator must be left out unless data.task is multi_label",
        ),
        (["--data.task", "multi_label"], "data.train must be a file with data.task multi_label"),
        (
            [
                *split("--data.task multi_label --data.train x.csv --data.label_columns"),
                "[a, b]",
                "--data.label_column",
                "a",
            ],
            "data.label_column must be left out with data.label_columns",
        ),
    ],
)
def test_settings_that_do_not_go_together(settings, message):
    with pytest.raises(InputError, match=message):
        load_config(settings)
