"""Folders that are a data set: python -m pytest tests/data/test_folders.py"""

import json
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from app.errors import InputError
from tests.data.brought import NAMES, ROWS, lines, opened, rows_of


@pytest.fixture
def read(tmp_path):
    return partial(opened, tmp_path)


@pytest.mark.parametrize("ending", [".txt", ""])
@pytest.mark.parametrize("encoding", ["utf-8", "gb18030"])
def test_a_folder_for_each_label(tmp_path, read, ending, encoding):
    for at, (text, label) in enumerate(ROWS):
        (tmp_path / "news" / label).mkdir(parents=True, exist_ok=True)
        (tmp_path / "news" / label / f"{at}{ending}").write_text(f"{text}\n第二行", encoding=encoding)
    (tmp_path / "news" / ".DS_Store").write_text("")
    dataset = read("news")
    assert sorted(rows_of(dataset)) == sorted((f"{text}\n第二行", label) for text, label in ROWS)
    (tmp_path / "news" / "体育" / "0.pdf").write_text("")
    with pytest.raises(InputError, match="there are no files"):
        read("news")


FEATURES = {"label": {"names": NAMES, "_type": "ClassLabel"}, "text": {"dtype": "string", "_type": "Value"}}


def hugging_face_table(rows, features=None, several: bool = False) -> pa.Table:
    ids = [NAMES.index(label) for _text, label in rows]
    columns = {
        "text": [text for text, _label in rows],
        "label": [[label, 3] for label in ids] if several else ids,
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features or FEATURES}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def save_arrow(folder: Path, table: pa.Table) -> None:
    folder.mkdir(parents=True)
    with (
        (folder / "data-00000-of-00001.arrow").open("wb") as file,
        pa.ipc.new_stream(file, table.schema) as to,
    ):
        to.write_table(table)
    (folder / "state.json").write_text("{}")
    (folder / "dataset_info.json").write_text("{}")


@pytest.mark.parametrize("validation", ["validation", "dev"])
def test_a_folder_of_save_to_disk(tmp_path, read, validation):
    for split, rows in (("train", ROWS[:60]), (validation, ROWS[60:68]), ("test", ROWS[68:])):
        save_arrow(tmp_path / "disk" / split, hugging_face_table(rows))
    (tmp_path / "disk" / "dataset_dict.json").write_text('{"splits": []}')
    dataset = read("disk")
    assert [rows_of(dataset, name) for name in ("train", "dev", "test")] == [
        ROWS[:60],
        ROWS[60:68],
        ROWS[68:],
    ]
    save_arrow(tmp_path / "alone", hugging_face_table(ROWS))
    assert rows_of(read("alone")) == ROWS
    (tmp_path / "alone" / "data-00000-of-00001.arrow").write_bytes(b"nothing")
    with pytest.raises(InputError, match="not a readable Parquet file"):
        read("alone")


@pytest.mark.parametrize("inside", ["", "data"])
def test_a_folder_of_the_hub(tmp_path, read, inside):
    folder = tmp_path / "hub" / inside
    folder.mkdir(parents=True)
    for name, rows in (
        ("train-00000-of-00002", ROWS[:40]),
        ("train-00001-of-00002", ROWS[40:60]),
        ("test-00000-of-00001", ROWS[60:]),
    ):
        parquet.write_table(hugging_face_table(rows), folder / f"{name}.parquet")
    (tmp_path / "hub" / "README.md").write_text("---\n---\n")
    dataset = read("hub")
    assert rows_of(dataset) == ROWS[:60]
    assert rows_of(dataset, "test") == ROWS[60:]
    # A file that is named stands before that of the folder
    other = tmp_path / "other.tsv"
    other.write_text(lines("text\tlabel", "好\t体育"), encoding="utf-8")
    assert rows_of(read("hub", test=str(other)), "test") == [("好", "体育")]


@pytest.mark.parametrize("kind", [[FEATURES["label"]], {"feature": FEATURES["label"], "_type": "Sequence"}])
def test_lists_of_classes_with_names(tmp_path, read, kind):
    parquet.write_table(hugging_face_table(ROWS, {"label": kind}, several=True), tmp_path / "a.parquet")
    assert read("a.parquet", task="multi_label").label_names == NAMES


def test_other_parquet_files_of_a_folder_are_one_set(tmp_path, read):
    (tmp_path / "posts").mkdir()
    for name, rows in (("train.parquet", ROWS[:40]), ("more.parquet", ROWS[40:])):
        table = hugging_face_table(rows, {"text": {}})
        parquet.write_table(table, tmp_path / "posts" / name)
    assert read("posts").files["train"].num_rows == 80
