"""Labels in a hierarchy, read from files: python -m pytest tests/data/test_label_paths.py"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.command_line import load_config
from app.data.dataset import open_dataset
from app.data.read import ReadOptions
from app.data.relabel import read_fixes
from app.errors import InputError
from app.words import in_language

ONE = ["体育-球类-足球", "体育 - 田径", "体育", "财经-股票"]
SEVERAL = ["体育|体育-球类|体育-球类-足球", "财经-股票|体育-田径", "", "财经-股票"]


def write_rows(path: Path, labels: list, again: int = 12) -> Path:
    """Write JSON Lines with each label several times."""
    lines = [{"text": f"第{n}行{i}", "label": label} for n in range(again) for i, label in enumerate(labels)]
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), encoding="utf-8")
    return path


def open_rows(path: Path, task: str = "single_path", **settings):
    """Return the dataset of a file; settings are written label_hierarchy for data.label_hierarchy."""
    values = {"train": path, "task": task, "cache_dir": path.parent / "cache", "label_hierarchy": "-"}
    words = [
        word for key, value in (values | settings).items() if value for word in (f"--data.{key}", str(value))
    ]
    return open_dataset(load_config(words).data)


def test_levels_are_read_without_the_white_space_around_them(tmp_path):
    dataset = open_rows(write_rows(tmp_path / "a.jsonl", ONE))
    assert dataset.label_names == ["体育", "体育-球类-足球", "体育-田径", "财经-股票"]


def test_a_path_that_names_each_of_its_levels_is_one_path(tmp_path):
    path = write_rows(tmp_path / "a.jsonl", SEVERAL)
    dataset = open_rows(path, "multi_path", label_separator="|")
    assert dataset.label_names == ["体育-球类-足球", "体育-田径", "财经-股票"]
    train = dataset.splits["train"]
    assert {int(row.sum()) for row in train.labels} == {0, 1, 2}


def test_each_level_may_have_its_own_column(tmp_path):
    path = tmp_path / "a.csv"
    rows = ["体育,球类,足球", "体育,田径,", "财经,股票,", "体育,,"]
    lines = [f"第{n}行{i},{row}" for n in range(12) for i, row in enumerate(rows)]
    path.write_text("\n".join(["text,一级,二级,三级", *lines]), encoding="utf-8")
    dataset = open_rows(path, label_columns="[一级, 二级, 三级]", label_hierarchy="/")
    assert dataset.label_names == ["体育", "体育/球类/足球", "体育/田径", "财经/股票"]
    assert "label '一级' and 2 more, one level in each: '三级'" in dataset.tables[0].columns


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("体育,,足球", "line 3: the level '二级' is empty, and '三级' below it is not; fill it in"),
        (",,", "line 3: the level '一级' is empty; fill it in"),
        ("体育,球/类,", "line 3: the level '二级' must not have '/', which is between levels, found '球/类'"),
    ],
)
def test_a_level_that_is_missing_or_has_the_separator_is_refused_with_its_line(tmp_path, row, message):
    path = tmp_path / "a.csv"
    path.write_text(f"text,一级,二级,三级\n甲,体育,球类,足球\n乙,{row}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        open_rows(path, label_columns="[一级, 二级, 三级]", label_hierarchy="/")
    assert f"{path}, {message}" in str(caught.value)


@pytest.mark.parametrize("label", ["体育-", "-足球", "体育--足球", "体育- -足球"])
@pytest.mark.parametrize("task", ["single_path", "multi_path"])
def test_an_empty_level_is_refused_with_its_line(tmp_path, task, label):
    path = write_rows(tmp_path / "a.jsonl", [*ONE[:2], label], again=1)
    with pytest.raises(InputError, match=r"a\.jsonl, line 3: level [12] of the label is empty, found"):
        open_rows(path, task)
    assert open_rows(write_rows(tmp_path / "b.jsonl", [*ONE, label]), task, on_bad_row="skip").label_names


@pytest.mark.parametrize(
    ("label", "nearest"),
    [
        ("财经-股标", "财经-股票"),
        ("体盲-球类-足球", "体育-球类-足球"),
        ("体育-球类-足球-青年", "体育-球类-足球"),
        ("体育-球类", "体育-球类-足球"),
    ],
)
@pytest.mark.parametrize("task", ["single_path", "multi_path"])
def test_an_unknown_label_is_refused_with_its_line_and_the_nearest_name(tmp_path, label, nearest, task):
    dev = write_rows(tmp_path / "dev.jsonl", ["财经-股票", label], again=1)
    with pytest.raises(InputError) as caught:
        open_rows(write_rows(tmp_path / "a.jsonl", ONE), task, dev=dev)
    wanted = f"dev.jsonl, line 2: unknown label '{label}'; did you mean '{nearest}'? (known: "
    assert wanted in str(caught.value)
    with in_language("zh"), pytest.raises(InputError, match="第 2 行：未知的标签"):
        open_rows(tmp_path / "a.jsonl", task, dev=dev)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"label_hierarchy": None}, "data.label_hierarchy must be what is between the levels"),
        ({"label_hierarchy": "/"}, "labels must have two or more levels .* and none has '/'"),
        (
            {"labels": "[体育-球类-足球, 体育-田径, 体育, 财经-股票, 体育-]"},
            "data.labels: level 2 of the label is empty, found '体育-'",
        ),
        (
            {"task": "multi_path", "label_separator": "-"},
            "data.label_hierarchy and data.label_separator must",
        ),
        ({"task": "single_label"}, "left out unless data.task is single_path or multi_path, found -"),
    ],
)
def test_settings_that_do_not_fit_are_refused(tmp_path, settings, message):
    with pytest.raises(InputError, match=message):
        open_rows(write_rows(tmp_path / "a.jsonl", ONE), **settings)


def test_several_paths_in_one_label_are_told_with_the_task_for_them(tmp_path):
    labels = ["体育-球类|财经-股票", "体育-球类", "财经-股票"]
    with pytest.raises(InputError, match=r"set --data\.task multi_path --data\.label_separator '\|'"):
        open_rows(write_rows(tmp_path / "a.jsonl", labels))


def test_fixes_are_written_as_labels_are(write):
    options = ReadOptions(label_hierarchy="-", label_separator="|", task="multi_path")

    def labels_of(label: str, task: str) -> list[str]:
        return read_fixes(write("fixes.csv", f"text,label\n甲,{label}\n"), replace(options, task=task)).labels

    assert labels_of(" 体育 - 球类 ", "single_path") == ["体育-球类"]
    assert labels_of("体育|体育-球类", "multi_path") == ['["体育-球类"]']
    with pytest.raises(InputError, match=r"fixes\.csv, line 2: level 2 of the label is empty"):
        labels_of("体育-", "single_path")
