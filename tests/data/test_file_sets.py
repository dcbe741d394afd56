"""Files as one set of rows: python -m pytest tests/data/test_file_sets.py"""

import json
import os

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.files import files_of
from app.errors import InputError
from tests.data.brought import rows_of

COMMENTS = [(f"第{number}条评论", ["好", "坏", "中"][number * number % 3]) for number in range(60)]


@pytest.fixture
def opened(tmp_path):
    """Open a dataset: opened(train) has its tables in one cache."""
    return lambda train, **settings: open_dataset(
        DataConfig(train=train, cache_dir=str(tmp_path / "cache"), **settings)
    )


def write_parts(folder, ending="csv"):
    """Write COMMENTS as three files of 10, 20 and 30 rows."""
    folder.mkdir(exist_ok=True)
    for name, rows in (("a", COMMENTS[:10]), ("b", COMMENTS[10:30]), ("c", COMMENTS[30:])):
        path = folder / f"{name}.{ending}"
        if ending == "parquet":
            columns = [pa.array(values) for values in zip(*rows, strict=True)]
            parquet.write_table(pa.table(columns, names=["text", "label"]), path)
        else:
            lines = ["text,label", *(f"{text},{label}" for text, label in rows)]
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_files_are_one_set_in_the_order_of_their_names(tmp_path, opened, write, ending):
    folder = write_parts(tmp_path / "posts", ending)
    (folder / "_SUCCESS").write_text("")
    (folder / ".hidden").write_text("x")
    dataset = opened(f"{folder}/*.{ending}")
    assert rows_of(dataset) == COMMENTS
    table, number = dataset.files["train"], 10 if ending == "parquet" else 11
    assert (table.where(9), table.where(10)) == (
        f"{folder}/a.{ending}, {table.row_unit} {number}",
        f"{folder}/b.{ending}, {table.row_unit} {number - 9}",
    )
    others = [opened(str(folder)), opened([f"{folder}/{name}.{ending}" for name in "abc"])]
    assert {other.folder for other in others} == {dataset.folder}
    one = opened(str(write("one.tsv", "".join(f"{text}\t{label}\n" for text, label in COMMENTS))))
    for name, split in one.splits.items():
        assert np.array_equal(split.rows, dataset.splits[name].rows)
        assert np.array_equal(split.labels, dataset.splits[name].labels)


def test_the_cache_follows_the_contents(tmp_path, opened):
    def tables():
        paths = (tmp_path / "cache").glob("table-*/rows.arrow")
        return {path.parent.name: path.stat().st_ctime_ns for path in paths}

    folder = write_parts(tmp_path / "posts")
    before, built = opened(str(folder)), tables()
    os.rename(folder / "b.csv", folder / "b2.csv")
    assert opened(str(folder)).folder == before.folder
    (folder / "d.csv").write_text("text,label\n新的评论,好\n", encoding="utf-8")
    table = opened(str(folder)).files["train"]
    assert (table.num_rows, table.where(60)) == (61, f"{folder}/d.csv, line 2")
    assert table.content != before.files["train"].content
    assert tables().items() >= built.items()


@pytest.mark.parametrize("limit", [25, 10])
def test_a_limit_counts_the_rows_of_all_files(tmp_path, opened, limit):
    assert rows_of(opened(str(write_parts(tmp_path / "posts")), limit=limit)) == COMMENTS[:limit]


def test_errors_and_skipped_rows_name_the_file_and_its_own_line(tmp_path, opened):
    folder = write_parts(tmp_path / "posts")
    with (folder / "b.csv").open("a", encoding="utf-8") as file:
        file.write("只有文本\n又一条,好\n")
    with pytest.raises(InputError, match=r"b\.csv, line 22: 2 columns are needed"):
        opened(str(folder))
    table = opened(str(folder), on_bad_row="skip").files["train"]
    (row,) = table.skipped_rows()
    assert (row["file"], row["line"], row["place"]) == (f"{folder}/b.csv", 22, f"{folder}/b.csv, line 22")
    assert (table.num_rows, table.where(30)) == (61, f"{folder}/b.csv, line 23")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("posts/*.json", "there are no files; write a pattern in quotes"),
        ("empty", "there are no files"),
        ("splits", "files of one split are needed, found names of test, train"),
        (["posts/a.csv", "posts/*.csv"], "each named once, found posts/a.csv"),
        ([], "must be one or more, each named once, found none"),
        (["posts/a.csv", "posts/x.csv"], "there is no such file"),
    ],
)
def test_what_names_no_files_is_refused(tmp_path, opened, monkeypatch, value, message):
    write_parts(tmp_path / "posts")
    (tmp_path / "empty").mkdir()
    (tmp_path / "splits").mkdir()
    for name in ("train-00000-of-00001.csv", "test.csv"):
        (tmp_path / "splits" / name).write_text("text,label\n好,正\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        opened(value)


def test_a_file_with_a_star_in_its_name_is_a_file(tmp_path):
    (tmp_path / "a*.csv").write_text("x")
    assert files_of(str(tmp_path / "a*.csv"), "unused") == [str(tmp_path / "a*.csv")]


def test_a_list_comes_from_yaml_and_names_the_run(tmp_path):
    (tmp_path / "run.yaml").write_text(json.dumps({"data": {"train": ["a.csv", "b.csv"]}}))
    assert load_config(["--config", str(tmp_path / "run.yaml")]).data.train == ["a.csv", "b.csv"]
    assert load_config(["--data.train", "posts/*.parquet"]).output.name == "posts"
    assert load_config(["--data.train", "*.parquet"]).output.name == "files"
