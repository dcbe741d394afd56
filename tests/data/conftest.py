"""Fixtures of the tests of data."""

import json

import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.read import ReadOptions
from app.data.report import render
from app.data.table import open_table
from app.data.tokens import open_store


def tokens_of_file(source: str, cache: str, tokenizer) -> list[list[int]]:
    """Return the tokens of the rows of a data file, at most 16; another process need not import more."""
    table = open_dataset(DataConfig(train=source, dev_size=0, test_size=0, cache_dir=cache)).tables[0]
    store = open_store(table, tokenizer, 16, cache)
    return [store.row(row).tolist() for row in range(table.num_rows)]


@pytest.fixture
def opened(write, tmp_path):
    """Open a dataset: opened(ending, train=..., dev=..., **settings), with all rows in train unless sizes are
    given. A file is its path, or its content, which is written."""

    def open_files(ending="tsv", **settings):
        for name in ("train", "dev", "test", "relabel"):
            value = settings.get(name)
            if isinstance(value, bytes) or (isinstance(value, str) and "\n" in value):
                settings[name] = str(write(f"{name}.{ending}", value))
        usual = {"dev_size": 0, "test_size": 0, "cache_dir": str(tmp_path / "cache")}
        return open_dataset(DataConfig(**usual | settings))

    return open_files


@pytest.fixture
def table_of(write, tmp_path):
    """Return the table of rows, which are written as rows.json: table_of(rows, **options)."""

    def write_and_open(rows, **options):
        path = write("rows.json", json.dumps(rows))
        return open_table(str(path), ReadOptions(**options), str(tmp_path / "cache"))

    return write_and_open


@pytest.fixture
def report_of(tmp_path, tiny_tokenizer):
    """Return the data report of a dataset in which a row has at most `max_length` tokens."""

    def report(dataset, max_length=8, is_task_chosen=False):
        stores = {}
        for name, split in dataset.splits.items():
            stores[name] = open_store(split.table, tiny_tokenizer, max_length, str(tmp_path / "cache"))
        return render(dataset, stores, is_task_chosen)

    return report
