"""Data files -> dataset: labels, splits, statistics, the embedded sample set: python -m pytest
tests/data/test_dataset.py"""

import random
from pathlib import Path

import numpy as np
import pytest

from app.config.schema import DataConfig
from app.data.dataset import SPLITS, open_dataset
from app.data.labels import label_ids, sort_labels
from app.data.report import length_line, render
from app.data.tokens import open_store

MOODS = ["愤怒", "高兴", "😀"]
ROWS = "".join(f"text {number}\t{MOODS[number % 3]}\n" for number in range(90))


@pytest.fixture
def opened(write, tmp_path):
    """Open a dataset whose files are given as text: opened(train=ROWS, dev=..., **settings)."""

    def open_files(ending="tsv", **settings):
        files = {name: str(write(f"{name}.{ending}", settings[name])) for name in SPLITS if name in settings}
        return open_dataset(DataConfig(**settings | files, cache_dir=str(tmp_path / "cache")))

    return open_files


def texts(dataset, name):
    split = dataset.splits[name]
    return [split.table.text(row) for row in split.rows]


def labelled(dataset, *names):
    """Return (text, label name) of each row of splits."""
    labels = [dataset.label_names[label] for name in names for label in dataset.splits[name].labels]
    return list(zip([text for name in names for text in texts(dataset, name)], labels, strict=True))


@pytest.fixture
def stores_of(tmp_path, tiny_tokenizer):
    """Encode the splits of a dataset: stores_of(dataset, max_length)."""
    cache = str(tmp_path / "cache")
    return lambda dataset, length: {
        name: open_store(split.table, tiny_tokenizer, length, cache) for name, split in dataset.splits.items()
    }


def lines(rows):
    return [tuple(line.split("\t")) for line in rows.splitlines()]


# "²" and "١" are digits to str.isdigit, but no numbers
ORDERS = ["1 9 10", "-1 0 1", "10 9 a b", "1 ²", "--1 1", "- 1", f"{'1' * 5000} 2", "2 ١"]


@pytest.mark.parametrize("in_order", list(map(str.split, ORDERS)), ids=lambda labels: " ".join(labels)[:9])
def test_the_order_of_labels_of_the_train_file(in_order):
    assert sort_labels(in_order[::-1]) == in_order


def test_labels_by_name_and_by_id():
    assert label_ids(("愤怒", "高兴")) == {"愤怒": 0, "高兴": 1, "0": 0, "1": 1}
    assert label_ids(("0", "1.0", "3")) == {"0": 0, "1": 1, "1.0": 1, "3": 2}
    assert label_ids(("-1", "-2")) == {"-1": 0, "-2": 1}
    # Among labels of the train file, ids have no meaning
    assert label_ids(("坏", "好"), accept_ids=False) == {"坏": 0, "好": 1}


def test_integers_in_the_file_are_ids_into_given_labels(opened):
    train = "".join(f"text {number}\t{number % 3}\n" for number in range(30)) + "one more\t高兴\n"
    dataset = opened(train=train, labels=MOODS, dev_size=0, test_size=0)
    assert labelled(dataset, "train")[:4] == [(f"text {number}", MOODS[number % 3]) for number in range(4)]
    assert labelled(dataset, "train")[30] == ("one more", "高兴")


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"dev_size": 0.1, "test_size": 0.2}, {"train": 63, "dev": 9, "test": 18}),
        ({"test": "真\t😀\n", "dev_size": 9}, {"train": 81, "dev": 9, "test": 1}),
        ({"dev_size": 0, "test_size": 0}, {"train": 90}),
        ({"dev": ROWS, "limit": 30, "test_size": 6}, {"train": 24, "dev": 90, "test": 6}),
    ],
)
def test_sizes_of_the_splits(opened, settings, sizes):
    """A limit cuts the train file before the split, and no other file; the labels are sorted."""
    dataset = opened(train=ROWS, **settings)
    assert {name: len(split) for name, split in dataset.splits.items()} == sizes
    assert list(dataset.statistics) == list(sizes)
    of_train = [name for name in sizes if name not in settings]
    assert sorted(labelled(dataset, *of_train)) == sorted(lines(ROWS)[: settings.get("limit", 90)])
    assert dataset.label_names == MOODS


def test_statistics(opened):
    train = ROWS + "甲\t愤怒\n甲\t愤怒\n甲\t高兴\n乙\t高兴\n乙\t😀\n text 0 \t愤怒\n"
    dev, test = "甲\t愤怒\n甲\t愤怒\n丙\t高兴\n", "甲\t愤怒\n丙\t高兴\n丁\t😀\n"
    dataset = opened(train=train, dev=dev, test=test)
    assert [labelled(dataset, name) for name in ("dev", "test")] == [lines(dev), lines(test)]
    assert [Path(table.source).name for table in dataset.tables] == ["train.tsv", "dev.tsv", "test.tsv"]
    assert dataset.statistics["train"] == {
        "rows": 96,
        "classes": {"愤怒": 33, "高兴": 32, "😀": 31},
        "repeated": 4,
        "conflicting": 2,
        "also_in": {},
    }
    assert dataset.statistics["dev"]["repeated"] == 1
    assert dataset.statistics["dev"]["also_in"] == {"train": 2}
    assert dataset.statistics["test"]["also_in"] == {"train": 1, "dev": 2}
    assert dataset.statistics["test"]["conflicting"] == 0


def test_pairs_are_the_same_only_as_a_whole(opened):
    train = "".join(f"甲\t{number}\t{number % 2}\n" for number in range(20))
    settings = {"text_column": 0, "text_pair_column": 1, "label_column": 2, "dev_size": 0, "test_size": 0}
    dataset = opened(train=train + "甲\t1\t1\n甲 1\tx\t0\n甲\t1 x\t0\n", **settings)
    assert dataset.statistics["train"]["repeated"] == 1
    assert dataset.splits["train"].table.texts(np.arange(20, 23)) == [
        ("甲", "1"),
        ("甲 1", "x"),
        ("甲", "1 x"),
    ]


def test_the_report_for_people(opened, stores_of):
    rows = "".join(f"{MOODS[n % 2]},今天{'真' * n}\n" for n in range(20))
    train = f'label,text\n愤怒,"好,1\n高兴,坏"\n{rows}高兴,今天\n'
    dataset = opened("csv", train=train, dev="label,text\n愤怒,今天\n", test_size=0)
    assert dataset.label_names == ["愤怒", "高兴"]
    text = render(dataset, stores_of(dataset, 12))
    assert "train.csv: 22 rows (text 'text', label 'label')" in text
    assert "train: 22 rows; 愤怒 11 (50.0%), 高兴 11 (50.0%)" in text
    assert "11 rows (50.0%) cut at 12" in text
    assert "1 repeated texts; 1 texts with conflicting labels" in text
    assert "dev: 1 rows; 愤怒 1 (100.0%), 高兴 0 (0.0%)" in text
    assert "1 rows whose text is also in train" in text


def test_the_report_of_many_classes_and_of_hostile_labels(opened, stores_of):
    labels = ["\x1b[2J" + "长" * 300, *(f"类{number}" for number in range(50))]
    train = "".join(f"今天{'真' * n}好{m}\t{label}\n" for n, label in enumerate(labels) for m in range(3 + n))
    dataset = opened(train=train, dev_size=0, test_size=0)
    text = render(dataset, stores_of(dataset, 12))
    assert "51 classes, the largest 类49 53 (3.7%), 类48 52" in text
    assert len(text) < 1000
    assert all(character == "\n" or character.isprintable() for character in text)


def test_percentiles_of_lengths(opened, stores_of):
    generator = random.Random(0)
    train = "".join(f"{'好' * generator.randint(1, 40)}\t{n % 2}\n" for n in range(301))
    dataset = opened(train=train, dev_size=30, test_size=0.2, split="random")
    for name, store in stores_of(dataset, 32).items():
        lengths = [min(32, len(text) + 2) for text in texts(dataset, name)]
        wanted = np.percentile(lengths, [5, 50, 95, 99, 100], method="inverted_cdf").astype(int)
        names, num_cut = (
            ["5 %", "50 %", "95 %", "99 %", "longest"],
            sum(len(t) > 30 for t in texts(dataset, name)),
        )
        shown = ", ".join(f"{name} {length}" for name, length in zip(names, wanted, strict=True))
        line = length_line(store, dataset.splits[name].rows)
        assert line.startswith(f"tokens by percentile: {shown}; {num_cut} rows (")


def test_a_change_of_the_file_or_of_a_setting_is_never_missed(opened):
    """The file's content counts, not its time or size."""
    first = opened(train=ROWS)
    changed = opened(train=ROWS.replace("text 0", "text x"))
    assert "text x" in dict(labelled(changed, *SPLITS))
    folders = {first.folder, changed.folder}
    for settings in ({"split_seed": 1}, {"split": "random"}, {"labels": MOODS[::-1]}):
        folders.add(opened(train=ROWS, **settings).folder)
    assert len(folders) == 5


def test_the_embedded_sample_set(tmp_path):
    dataset = open_dataset(DataConfig(cache_dir=str(tmp_path / "cache")))
    assert dataset.label_names == ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
    assert list(dataset.splits) == ["train", "dev", "test"]
    assert sum(map(len, dataset.splits.values())) >= 1500
    found = [text for name in SPLITS for text in texts(dataset, name)]
    assert len(found) == len(set(found)) == len({"".join(text.split()) for text in found})
    for name, statistics in dataset.statistics.items():
        assert min(statistics["classes"].values()) >= 0.1 * statistics["rows"], name
        assert (statistics["repeated"], statistics["conflicting"]) == (0, 0)
        assert not any(statistics["also_in"].values())
