"""Rows -> train, dev and test: python -m pytest tests/data/test_splits.py"""

import random

import numpy as np
import pytest

from app.data.label_sets import LABEL_FORMS
from app.data.splits import part_of_rows, random_split, split_sizes, stratified_split
from app.errors import InputError

SIDES = ("train", "dev", "test")


def random_rows(seed: int):
    """Return class ids, hashes of texts, many of them repeated, and the names of the classes; at least 4
    texts of each without conflicts."""
    generator = random.Random(seed)
    num_classes = generator.randint(2, 12)
    labels, hashes = [], []
    for label in range(num_classes):
        texts = [generator.getrandbits(64) for _ in range(generator.choice([6, 8, 30, 300]))]
        repeated = texts + generator.choices(texts, k=generator.choice([0, len(texts) // 3]))
        labels += [label] * len(repeated)
        hashes += repeated
    # Two texts of the first class have the label of the last one as well.
    labels += [num_classes - 1] * 2
    hashes += hashes[:2]
    order = generator.sample(range(len(labels)), len(labels))
    return (
        np.array(labels)[order],
        np.array(hashes, np.uint64)[order],
        [f"类{i}😀" for i in range(num_classes)],
    )


def check_partition(split: dict[str, np.ndarray], num_rows: int) -> None:
    assert set(split) == set(SIDES)
    assert all(rows.dtype == np.int64 for rows in split.values())
    assert sorted(np.concatenate([split[side] for side in SIDES])) == list(range(num_rows))


@pytest.mark.parametrize(
    ("num_rows", "dev_size", "test_size", "sizes"),
    [
        (1000, 0.1, 0.1, (100, 100)),
        (1000, 0, 0, (0, 0)),
        (10_000, 0, 800, (0, 800)),
        (1000, 1, 0.25, (1, 250)),
        (1000, 300.0, 0.0, (300, 0)),
        # A share is at least one row
        (5, 0.1, 0.1, (1, 1)),
        (3, 1, 1, (1, 1)),
        (15, 0.1, 0.5, (2, 8)),
    ],
)
def test_sizes(num_rows, dev_size, test_size, sizes):
    assert split_sizes(num_rows, dev_size, test_size) == sizes


@pytest.mark.parametrize(("dev_size", "test_size"), [(0.5, 0.5), (10, 0), (0, 11), (0.9, 1)])
def test_rows_are_left_to_train_on(dev_size, test_size):
    with pytest.raises(InputError, match="it has 10, and dev_size .* take .*; make them smaller"):
        split_sizes(10, dev_size, test_size)


@pytest.mark.parametrize("seed", [0, 1, 42, 123, 2**40])
def test_a_random_split_is_a_shuffled_list(seed):
    rows = [f"row {number}" for number in range(1000)]
    split = random_split(len(rows), dev=150, test=80, seed=seed)
    check_partition(split, len(rows))
    shuffled = list(rows)
    random.Random(seed).shuffle(shuffled)
    assert [rows[i] for i in split["train"]] == shuffled[:770]
    assert [rows[i] for i in split["dev"]] == shuffled[770:920]
    assert [rows[i] for i in split["test"]] == shuffled[920:]


def test_the_split_of_the_reference_job():
    """random.seed(123); random.shuffle(rows); rows[:9200], rows[9200:], as its published script has it."""
    random.seed(123)
    rows = list(range(10_000))
    random.shuffle(rows)
    split = random_split(10_000, *split_sizes(10_000, 0, 800), seed=123)
    assert (split["train"].tolist(), split["test"].tolist()) == (rows[:9200], rows[9200:])
    assert len(split["dev"]) == 0


@pytest.mark.parametrize("seed", range(60))
def test_a_stratified_split(seed):
    """Sizes and proportions are met, every class is in every split, and no text is in two."""
    labels, hashes, names = random_rows(seed)
    num_rows, generator = len(labels), random.Random(seed)
    dev, test = (generator.choice([0, 1, num_rows // 20, num_rows // 10, num_rows // 5]) for _ in range(2))
    split = stratified_split(labels, hashes, dev, test, seed, names)
    check_partition(split, num_rows)
    texts = {side: set(hashes[rows].tolist()) for side, rows in split.items()}
    assert not texts["train"] & texts["dev"]
    assert not texts["train"] & texts["test"]
    assert not texts["dev"] & texts["test"]
    for side, size in (("dev", dev), ("test", test)):
        if size == 0:
            assert len(split[side]) == 0
            continue
        assert max(size, len(names)) - 4 <= len(split[side]) <= max(size, len(names)) + 4
        counts = np.bincount(labels[split[side]], minlength=len(names))
        proportions = np.bincount(labels, minlength=len(names)) * size / num_rows
        assert counts.min() >= 1
        if size >= 2 * len(names):
            assert np.abs(counts - proportions).max() < 5 + 0.05 * proportions.max()
    assert np.bincount(labels[split["train"]], minlength=len(names)).min() >= 1


def test_without_repeated_texts_proportions_are_kept_to_a_row():
    labels = np.repeat([0, 1, 2, 3], [5000, 3000, 1500, 500])
    split = stratified_split(labels, np.arange(10_000, dtype=np.uint64), 1000, 500, 7, list("甲乙丙丁"))
    assert np.abs(np.bincount(labels[split["dev"]]) - [500, 300, 150, 50]).max() <= 1
    assert np.abs(np.bincount(labels[split["test"]]) - [250, 150, 75, 25]).max() <= 1
    assert (len(split["dev"]), len(split["test"])) == (1000, 500)


@pytest.mark.parametrize("seed", range(30))
def test_a_text_that_makes_up_much_of_a_class_goes_to_train(seed):
    """On dev or test it would stand for hundreds of others."""
    labels = np.array([0] * 1000 + [1] * 1000)
    hashes = np.arange(2000, dtype=np.uint64)
    hashes[:600] = 0
    split = stratified_split(labels, hashes, 200, 200, seed, ["甲", "乙"])
    assert 0 in split["train"]
    assert (len(split["dev"]), len(split["test"])) == (200, 200)


def test_the_same_seed_gives_the_same_split_and_another_one_another():
    labels, hashes, names = random_rows(5)
    splits = [stratified_split(labels, hashes, 60, 60, seed, names) for seed in (1, 1, 2)]
    assert all((splits[0][side] == splits[1][side]).all() for side in SIDES)
    assert sorted(splits[0]["test"]) != sorted(splits[2]["test"])
    splits = [random_split(1000, 100, 100, seed) for seed in (1, 1, 2)]
    assert all((splits[0][side] == splits[1][side]).all() for side in SIDES)
    assert sorted(splits[0]["test"]) != sorted(splits[2]["test"])


def test_splits_do_not_depend_on_the_state_of_any_generator():
    labels, hashes, names = random_rows(6)
    wanted = stratified_split(labels, hashes, 20, 20, 3, names)["test"], random_split(99, 9, 9, 3)["test"]
    random.seed(99)
    np.random.seed(99)
    state = random.getstate()
    found = stratified_split(labels, hashes, 20, 20, 3, names)["test"], random_split(99, 9, 9, 3)["test"]
    assert all((a == b).all() for a, b in zip(wanted, found, strict=True))
    assert random.getstate() == state


@pytest.mark.parametrize(
    ("texts", "dev", "test", "where"),
    [
        (1, 5, 5, ["train"]),
        (2, 5, 5, ["train", "test"]),
        (1, 5, 0, ["train"]),
        (1, 0, 1, ["train"]),
        (2, 5, 0, ["train", "dev"]),
    ],
)
def test_a_class_with_few_texts_is_in_train_first(texts, dev, test, where):
    labels = np.array([0] * 100 + [1] * 10)
    hashes = np.r_[np.arange(100), 100 + np.arange(10) % texts].astype(np.uint64)
    split = stratified_split(labels, hashes, dev, test, 0, ["甲", "😀"])
    check_partition(split, 110)
    assert [name for name in ("train", "dev", "test") if (labels[split[name]] == 1).any()] == sorted(
        where, key=("train", "dev", "test").index
    )


def test_many_texts_of_classes_with_few_are_no_classes():
    labels = np.r_[np.zeros(100, int), np.arange(1, 31)]
    with pytest.raises(InputError, match="30 of 31 classes have fewer, the first is '1' with 1; add rows"):
        stratified_split(labels, np.arange(130, dtype=np.uint64), 13, 13, 0, [str(i) for i in range(31)])


def test_a_class_with_just_enough_texts_is_in_every_split():
    labels = np.array([0] * 100 + [1] * 3)
    split = stratified_split(labels, np.arange(103, dtype=np.uint64), 10, 10, 0, ["甲", "乙"])
    assert [int((labels[split[side]] == 1).sum()) for side in SIDES] == [1, 1, 1]


def test_a_part_of_the_rows_holds_the_smaller_ones_with_all_classes_alike():
    labels = np.repeat([0, 1, 2], [400, 80, 3])
    rows = np.arange(1000, 1483)
    parts = [set(part_of_rows(rows, labels, share, 42).tolist()) for share in (0.12, 0.25, 0.5, 1)]
    assert all(small < large for small, large in zip(parts, parts[1:], strict=False))
    assert parts[-1] == set(rows.tolist())
    assert np.bincount([labels[row - 1000] for row in parts[1]]).tolist() == [100, 20, 1]
    for task, of_rows in (("multi_label", np.zeros((483, 4), bool)), ("regression", np.linspace(0, 1, 483))):
        classes = LABEL_FORMS[task].classes(of_rows)
        assert len(part_of_rows(rows, classes, 0.5, 42)) == pytest.approx(483 / 2, abs=10)
