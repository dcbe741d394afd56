"""Near copies of training texts in dev and test: python -m pytest tests/data/test_near_copies.py"""

import random

import numpy as np
import pytest

from app.config.schema import DataConfig
from app.data import near_copies as module
from app.data.dataset import open_dataset
from app.data.near_copies import near_copies
from app.data.report import render
from app.data.tokens import open_store

TEXTS = [
    "今天的天气真好，我们去公园里散步吧",
    "快递送了三天还没有到，客服也不回复",
    "这家店的味道不错，下次还会再来的",
    "手机的电池用半天就没有电了，想退货",
]
NEAR, OTHER = "今天的天气真好呀，我们去公园散步吧！", "电影的结局让人想不到，值得再看一遍"


def test_nearly_the_same_text_is_found_and_other_texts_are_not():
    found = near_copies(TEXTS, [NEAR, OTHER, TEXTS[2], "好", "这家店的味道很差，再也不会来的了吧"])
    assert found.tolist() == [0, -1, 2, -1, -1]


def test_they_are_those_that_a_comparison_with_every_text_finds(monkeypatch):
    """Of texts with errors in random places, compared in many batches."""
    generator = random.Random(0)
    characters = [chr(0x4E00 + number) for number in range(600)]
    train = ["".join(generator.choices(characters, k=generator.randrange(8, 40))) for _ in range(300)]
    changed = []
    for text in train[:120]:
        letters = list(text)
        for at in generator.sample(
            range(len(letters)), round(len(letters) * generator.choice([0.05, 0.1, 0.4]))
        ):
            letters[at] = generator.choice(characters)
        changed.append("".join(letters))
    monkeypatch.setattr(module, "BATCH_ROWS", 7)
    found = near_copies(train, changed)
    expected = [
        next((at for at, known in enumerate(train) if module.is_near_copy(known, text)), -1)
        for text in changed
    ]
    assert found.tolist() == expected
    assert 60 < (found >= 0).sum() < 120


@pytest.fixture
def opened(write, tmp_path):
    train = "".join(f"{text}\t{number % 2}\n" for number, text in enumerate(TEXTS * 6))
    test = f"{OTHER}\t0\n{NEAR}\t1\n{TEXTS[1]}\t1\n"
    files = {"train": str(write("train.tsv", train)), "test": str(write("test.tsv", test))}
    return open_dataset(DataConfig(**files, dev_size=0, cache_dir=str(tmp_path / "cache")))


def test_the_data_report_names_them(opened, tiny_tokenizer):
    test = opened.splits["test"]
    assert opened.splits["train"].copies is None
    assert test.copies[0] == -1
    assert opened.splits["train"].table.text(test.copies[1]) == TEXTS[0]
    statistics = opened.statistics["test"]
    assert statistics["also_in"] == {"train": 1}
    assert statistics["near_copies"]["rows"] == 1
    ((where, known),) = statistics["near_copies"]["examples"]
    assert where.endswith("test.tsv, line 2")
    assert "train.tsv, line" in known
    cache = str(opened.folder.parent)
    stores = {n: open_store(split.table, tiny_tokenizer, 32, cache) for n, split in opened.splits.items()}
    said = f"1 rows are near copies of other texts in train: {where} of {known}"
    assert said in render(opened, stores)


@pytest.mark.parametrize(("most", "looked"), [(700, []), (900, ["test"]), (9999, ["dev", "test"])])
def test_a_split_with_too_many_texts_is_left_out(write, tmp_path, monkeypatch, most, looked):
    """Of one that fits, also where train is more than half of the limit."""
    monkeypatch.setattr(module, "MAX_BYTES", most)
    lines = [f"{text}第{number}条\t{number % 2}\n" for number, text in enumerate(TEXTS * 6)]
    files = {"train": "".join(lines[:12]), "dev": "".join(lines[12:]), "test": f"{NEAR}\t0\n{OTHER}\t1\n"}
    paths = {name: str(write(f"{name}.tsv", text)) for name, text in files.items()}
    splits = open_dataset(DataConfig(**paths, cache_dir=str(tmp_path / "cache"))).splits
    assert [name for name, split in splits.items() if split.copies is not None] == looked


def test_pairs_are_compared_as_one_text(write, tmp_path):
    rows = [
        f"{one}\t{other}\t{number % 2}"
        for number, (one, other) in enumerate(zip(TEXTS, TEXTS[1:] * 2, strict=False))
    ]
    train = "\n".join(rows * 6) + "\n"
    test = f"{NEAR}\t{TEXTS[1]}\t0\n{NEAR}\t{OTHER}\t1\n"
    files = {"train": str(write("train.tsv", train)), "test": str(write("test.tsv", test))}
    columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2, "header": False}
    dataset = open_dataset(DataConfig(**files, **columns, dev_size=0, cache_dir=str(tmp_path / "cache")))
    assert (np.asarray(dataset.splits["test"].copies) >= 0).tolist() == [True, False]
