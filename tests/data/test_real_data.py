"""Public data sets, which their authors did not write for us: python -m pytest tests/data/test_real_data.py

The rows are read here a second time with nothing but Python's string methods, csv and json.
"""

import csv
import json
from functools import cache
from pathlib import Path

import pytest

from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokens import load_tokenizer, open_store
from tests.real_data import REAL_DATA, needs_real_data

pytestmark = needs_real_data

SMP = REAL_DATA / "smp2020_ewect_usual"
CSL_COLUMNS = {"text_column": 1, "label_column": 2, "header": False}
PAIR_COLUMNS = {"text_column": 0, "text_pair_column": 1, "label_column": 2, "header": False}
SETS = {
    "weibo": (REAL_DATA / "weibo_emotion6" / "train.json", {"remove_spaces": True}, 40_133, 6),
    "waimai": (REAL_DATA / "waimai_10k" / "waimai_10k.csv", {}, 11_987, 2),
    "smp": (SMP / "train.tsv", {}, 27_766, 6),
    "tnews": (REAL_DATA / "tnews" / "train.tsv", {"header": False}, 53_360, 15),
    "csl": (REAL_DATA / "csl13" / "train.tsv", CSL_COLUMNS, 8000, 13),
    "afqmc": (REAL_DATA / "afqmc" / "train.txt", PAIR_COLUMNS, 34_334, 2),
}


@cache
def plain(path: Path) -> list[tuple[str, ...]]:
    """Return (text, label), or (text, second text, label), of each row, read without any of our code."""
    content = path.read_bytes().decode("utf-8")
    if path.suffix == ".json":
        return [("".join(text.split()), str(label)) for text, label in json.loads(content)]
    if path.suffix == ".csv":
        rows = list(csv.reader(content.splitlines(keepends=True)))[1:]
        return [(text.strip(), label) for label, text in rows]
    lines = filter(None, content.replace("\r\n", "\n").split("\n"))
    rows = [[field.strip() for field in line.split("\t")] for line in lines]
    if path.parent == SMP:
        return [(text, label) for label, text in rows[1:]]
    return [tuple(row[1:]) if path.parent.name == "csl13" else tuple(row) for row in rows]


@pytest.mark.parametrize(("path", "settings", "num_rows", "num_labels"), SETS.values(), ids=SETS.keys())
def test_every_row_is_read(tmp_path, path, settings, num_rows, num_labels):
    build_table(tmp_path, str(path), ReadOptions(**settings), False, None)
    table = Table(tmp_path)
    assert (table.num_rows, table.skipped, len(table.label_values)) == (num_rows, 0, num_labels)
    labels = [table.label_values[code] for code in table.labels]
    found = [(table.text(row), table.pair(row), label) for row, label in enumerate(labels)]
    assert found == [(*row[:-1], *[None] * (3 - len(row)), row[-1]) for row in plain(path)]


def test_tokens_of_the_vocabulary_of_bert(tmp_path):
    """Its file has U+2028 and the like among its 21,128 lines, which must not end lines."""
    cache_dir = str(tmp_path / "cache")
    sizes = {"dev_size": 0, "test_size": 0}
    dataset = open_dataset(DataConfig(train=str(SMP / "dev.tsv"), cache_dir=cache_dir, **sizes))
    config = ModelConfig(vocab_file=str(REAL_DATA / "vocab" / "google_zh_vocab.txt"))
    tokenizer = load_tokenizer(config, dataset, 48, cache_dir)
    assert len(tokenizer) == 21_128
    table = dataset.splits["train"].table
    store = open_store(table, tokenizer, 48, cache_dir)
    texts = [text for text, _ in plain(SMP / "dev.tsv")]
    wanted = tokenizer(texts, truncation=True, max_length=48)["input_ids"]
    assert [store.row(row).tolist() for row in range(table.num_rows)] == wanted
    assert store.tokens.dtype == "uint16"
    assert 0 < int(store.cut.sum()) < 2000
    assert store.unknown_tokens < 0.02 * len(store.tokens)
