"""Rows -> train, dev and test, folds, and near copies."""

import random
from difflib import SequenceMatcher

import numpy as np
import pytest

from app.config.schema import DataConfig, ModelConfig, VerbArguments
from app.data.labels import label_form
from app.data.near_copies import find_near_copies
from app.data.splits import fold_of_rows, part_of_rows, split_rows
from app.data.tokens import open_store
from app.errors import InputError
from app.model.tokenizer import load_tokenizer
from tests.tiny import tiny_lines

SIDES = ("train", "dev", "test")


def split_of(labels, hashes, dev: float, test: float, seed: int, names=(), split="stratified"):
    """Return the rows of train, dev and test, which hold each row once, and a text on one side only, whatever
    the state of any generator."""
    form = label_form("multi_label" if labels.ndim > 1 else "single_label")
    settings = DataConfig(split=split, split_seed=seed)
    sides = split_rows(form, labels, hashes, settings, dev_size=dev, test_size=test, label_names=list(names))
    np.random.seed(99)
    random.seed(99)
    state = random.getstate()
    again = split_rows(form, labels, hashes, settings, dev_size=dev, test_size=test, label_names=list(names))
    assert random.getstate() == state
    assert [rows.tolist() for rows in again.values()] == [rows.tolist() for rows in sides.values()]
    assert tuple(sides) == SIDES
    assert all(rows.dtype == np.int64 for rows in sides.values())
    assert sorted(np.concatenate([*sides.values()])) == list(range(len(labels)))
    if split == "stratified":
        texts = [np.unique(hashes[rows]) for rows in sides.values()]
        assert sum(map(len, texts)) == len(np.unique(hashes))
    return sides


def random_rows(seed: int):
    """Return class ids, numbers of texts, many of them repeated, and the names of the classes; at least 4
    texts of each without conflicts."""
    generator = random.Random(seed)
    num_classes = generator.randint(2, 12)
    labels = []
    hashes = []
    for label in range(num_classes):
        texts = [generator.getrandbits(64) for _ in range(generator.choice([6, 8, 30, 300]))]
        repeated = texts + generator.choices(texts, k=generator.choice([0, len(texts) // 3]))
        labels += [label] * len(repeated)
        hashes += repeated
    # Two texts of the first class have the label of the last one as well.
    labels += [num_classes - 1] * 2
    hashes += hashes[:2]
    order = generator.sample(range(len(labels)), len(labels))
    names = [f"类{i}😀" for i in range(num_classes)]
    return np.array(labels)[order], np.unique_inverse(hashes).inverse_indices[order], names


def multi_label_rows(num_rows: int = 900, texts: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, 0 and 1, of rows whose texts come more than once, and the numbers of the texts."""
    generator = np.random.default_rng(6)
    hashes = generator.integers(0, texts, num_rows)
    of_text = (generator.random((texts, 4)) < [0.6, 0.3, 0.1, 0.03]).astype(np.uint8)
    return of_text[hashes], hashes


# Of the last ones, a share is at least one row
SIZES = ["1000 .1 .1 100 100", "1000 1 .25 1 250", "1000 300 0 300 0", "5 .1 .1 1 1", "15 .1 .5 2 8"]


@pytest.mark.parametrize("seed", [0, 2**40])
@pytest.mark.parametrize("case", SIZES)
def test_a_random_split_is_a_shuffled_list(case, seed):
    """As scripts do it: random.seed(123); random.shuffle(rows); rows[:9200], rows[9200:]."""
    num_rows, dev_size, test_size, dev, test = map(float, case.split())
    shuffled = list(range(int(num_rows)))
    random.Random(seed).shuffle(shuffled)
    sides = split_of(np.zeros_like(shuffled), np.sort(shuffled), dev_size, test_size, seed, split="random")
    ends = [int(num_rows - dev - test), int(num_rows - test)]
    wanted = [part.tolist() for part in np.split(shuffled, ends)]
    assert [rows.tolist() for rows in sides.values()] == wanted


@pytest.mark.parametrize("seed", range(60))
def test_a_stratified_split(seed):
    """Sizes and proportions are met, every class is in every split, and no text is in two."""
    labels, hashes, names = random_rows(seed)
    num_rows = len(labels)
    generator = random.Random(seed)
    dev, test = (generator.choice([0, 1, num_rows // 20, num_rows // 10, num_rows // 5]) for _ in range(2))
    split = split_of(labels, hashes, dev, test, seed, names)
    split_of_next_seed = split_of(labels, hashes, dev, test, seed + 1, names)
    assert dev < 20 or sorted(split_of_next_seed["dev"]) != sorted(split["dev"])
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


@pytest.mark.parametrize("seed", range(10))
def test_a_text_that_makes_up_much_of_a_class_goes_to_train(seed):
    """On dev or test it would stand for hundreds of others."""
    labels = np.repeat([0, 1], 1000)
    hashes = np.arange(2000)
    hashes[:600] = 0
    split = split_of(labels, hashes, 200, 200, seed, "甲乙")
    assert 0 in split["train"]
    assert (len(split["dev"]), len(split["test"])) == (200, 200)


@pytest.mark.parametrize(
    ("texts", "dev", "test", "where"),
    [(1, 5, 5, ["train"]), (2, 5, 5, ["train", "test"]), (3, 10, 10, [*SIDES]), (2, 5, 0, ["train", "dev"])],
)
def test_a_class_with_few_texts_is_in_train_first(texts, dev, test, where):
    labels = np.repeat([0, 1], [100, 9])
    hashes = np.r_[np.arange(100), 100 + np.arange(9) % texts]
    split = split_of(labels, hashes, dev, test, 0, ["甲", "😀"])
    assert [side for side in SIDES if (labels[split[side]] == 1).any()] == where


def test_a_class_may_have_only_texts_of_other_classes():
    """The first row of each of its texts has another label."""
    labels = np.repeat([0, 1, 2], [50, 50, 5])
    hashes = np.r_[np.arange(100), np.arange(5)]
    split = split_of(labels, hashes, 10, 10, 0, "甲乙丙")
    assert (len(split["dev"]), len(split["test"])) == (10, 10)
    fold = fold_of_rows(label_form("single_label"), labels, hashes, 5, 0)
    assert np.bincount(fold).tolist() == [21] * 5


@pytest.mark.parametrize(
    ("task", "labels", "texts"),
    [("regression", np.arange(60) / 60, 3), ("masked_language_modelling", np.zeros(60, int), 1)],
)
def test_groups_without_names_that_have_few_texts_are_named_by_their_number(task, labels, texts):
    form = label_form(task)
    hashes = np.arange(60)
    with pytest.raises(InputError, match=r"of \d classes .* is 'group 1' with 1; add rows"):
        split_rows(
            form,
            labels,
            hashes * texts // 60,
            DataConfig(),
            dev_size=0.1,
            test_size=0.1,
            label_names=["score"],
        )
    assert split_rows(form, labels, hashes, DataConfig(), dev_size=6, test_size=6, label_names=["score"])


@pytest.mark.parametrize("seed", range(5))
def test_a_split_of_label_lists_keeps_sizes_labels_and_sets(seed):
    labels, hashes = multi_label_rows(2000, 1500)
    split = split_of(labels, hashes, 200, 300, seed)
    assert sorted(split_of(labels, hashes, 200, 300, seed + 5)["dev"]) != sorted(split["dev"])
    for side, share in (("dev", 0.1), ("test", 0.15)):
        assert abs(len(split[side]) - share * 2000) <= 10
        assert np.abs(labels[split[side]].sum(axis=0) - share * labels.sum(axis=0)).max() <= 6
        # A frequent set keeps its proportion too
        pairs = (labels[split[side]][:, :2] == 1).all(axis=1).sum()
        assert abs(pairs - share * (labels[:, :2] == 1).all(axis=1).sum()) <= 8


def test_a_part_of_the_rows_holds_the_smaller_ones_with_all_classes_alike():
    labels = np.repeat([0, 1, 2], [400, 80, 3])
    rows = np.arange(1000, 1483)
    parts = [set(part_of_rows(rows, labels, share, 42).tolist()) for share in (0.12, 0.25, 0.5, 1)]
    assert all(small < large for small, large in zip(parts, parts[1:], strict=False))
    assert parts[-1] == set(rows.tolist())
    assert np.bincount([labels[row - 1000] for row in parts[1]]).tolist() == [100, 20, 1]
    for task, of_rows in (("multi_label", np.zeros((483, 4), bool)), ("regression", np.linspace(0, 1, 483))):
        groups = label_form(task).groups(of_rows)
        assert len(part_of_rows(rows, groups, 0.5, 42)) == pytest.approx(483 / 2, abs=10)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_folds_keep_labels_and_texts_together(task):
    labels, hashes = multi_label_rows()
    if task == "single_label":
        labels = hashes % 7 // 2
    form = label_form(task)
    fold = fold_of_rows(form, labels, hashes, 5, 42)
    assert set(fold.tolist()) == set(range(5))
    assert all(len(set(fold[hashes == text].tolist())) == 1 for text in np.unique(hashes))
    groups = [labels == label for label in range(4)]
    if task == "multi_label":
        sizes = np.bincount(fold, minlength=5)
        assert sizes.max() - sizes.min() <= 10
        # A frequent set is spread too
        groups = [*labels.astype(bool).T, (labels[:, :2] == 1).all(axis=1)]
    for group in groups:
        counts = np.bincount(fold[group], minlength=5)
        assert counts.max() - counts.min() <= (10 if task == "multi_label" else 0.5 * counts.mean())
    assert (fold == fold_of_rows(form, labels, hashes, 5, 42)).all()
    assert (fold != fold_of_rows(form, labels, hashes, 5, 43)).any()
    texts = len(np.unique(hashes))
    with pytest.raises(InputError, match=f"--folds must be at most .* found 601 folds for {texts} texts and"):
        fold_of_rows(form, labels, hashes, 601, 0)


def test_folds_share_table_tokens_and_vocabulary_and_test_each_row_once(tmp_path, opened):
    cache = tmp_path / "cache"
    tested = []
    tokens = set()
    settings = {"train": "\n".join(tiny_lines(20)), "test": "is not read", "dev_size": 0.1}
    for fold in range(2):
        dataset = opened(**settings, verb=VerbArguments(folds=2, fold=fold))
        train, dev, test = (set(split.rows.tolist()) for split in dataset.splits.values())
        assert len(train) + len(dev) + len(test) == len(train | dev | test) == 60
        assert len(dev) >= 3
        tested += test
        tokenizer = load_tokenizer(ModelConfig("random"), dataset, 32, str(cache))
        tokens.add(open_store(dataset.tables[0], tokenizer, 32, str(cache)).folder)
    assert sorted(tested) == list(range(60))
    assert len(tokens) == 1
    for prefix in ("table", "tokens", "vocabulary"):
        assert len([path for path in cache.glob(f"{prefix}-*") if path.is_dir()]) == 1


TEXTS = ["今天的天气真好，我们去公园里散步吧", "快递送了三天还没有到，客服也不回复"]
TEXTS += ["这家店的味道不错，下次还会再来的", "手机的电池用半天就没有电了，想退货"]
NEAR = "今天的天气真好呀，我们去公园散步吧！"
OTHER = "电影的结局让人想不到，值得再看一遍"


def first_near_copy(texts: list[str], text: str) -> int:
    """Return the place of the first text that is a near copy of a text by definition, or -1."""
    for place, candidate in enumerate(texts):
        matcher = SequenceMatcher(None, candidate, text, autojunk=False)
        if matcher.quick_ratio() >= 0.8 and matcher.ratio() >= 0.8:
            return place
    return -1


def test_near_copies_are_those_that_a_comparison_with_every_text_finds(monkeypatch):
    """Of texts with errors in random places, compared in many batches."""
    generator = random.Random(0)
    characters = [chr(0x4E00 + number) for number in range(600)]
    train = ["".join(generator.choices(characters, k=generator.randrange(8, 40))) for _ in range(150)]
    changed = []
    for text in train[:60]:
        letters = list(text)
        share = generator.choice([0.05, 0.1, 0.4])
        for at in generator.sample(range(len(letters)), round(len(letters) * share)):
            letters[at] = generator.choice(characters)
        changed.append("".join(letters))
    monkeypatch.setattr("app.data.near_copies.BATCH_ROWS", 7)
    copies = find_near_copies(train, changed)
    assert copies.tolist() == [first_near_copy(train, text) for text in changed]
    assert 30 < (copies >= 0).sum() < 60
    others = [NEAR, OTHER, TEXTS[2], "好", "这家店的味道很差，再也不会来的了吧"]
    assert find_near_copies(TEXTS, others).tolist() == [0, -1, 2, -1, -1]


@pytest.mark.parametrize("pairs", [False, True])
def test_the_dataset_has_near_copies_and_the_report_their_number(opened, report_of, pairs):
    def rows(texts: list[str]) -> str:
        second = f"{TEXTS[0]}\t" if pairs else ""
        return "".join(f"{text}\t{second}{number % 2}\n" for number, text in enumerate(texts))

    columns = {"text_column": 0, "label_column": 1 + pairs, "text_pair_column": 1 if pairs else None}
    files = {"train": rows(TEXTS * 6), "test": rows([OTHER, NEAR, TEXTS[1]])}
    dataset = opened(**files, **columns, header=False)
    test = dataset.splits["test"]
    train = dataset.splits["train"]
    assert train.copies is None
    assert [at if at < 0 else train.table.row(at).text for at in test.copies] == [-1, TEXTS[0], TEXTS[1]]
    assert dataset.statistics["test"]["also_in"] == {"train": 1}
    assert "1 row is a near copy of another text in train" in report_of(dataset)


@pytest.mark.parametrize(("max_bytes", "compared"), [(700, []), (900, ["test"]), (9999, ["dev", "test"])])
def test_a_split_with_too_many_texts_is_not_compared(opened, monkeypatch, max_bytes, compared):
    """Of one that fits, also where train is more than half of the limit."""
    monkeypatch.setattr("app.data.build_dataset.MAX_BYTES", max_bytes)
    lines = [f"{text}第{number}条\t{number % 2}\n" for number, text in enumerate(TEXTS * 6)]
    files = {"train": "".join(lines[:12]), "dev": "".join(lines[12:]), "test": f"{NEAR}\t0\n{OTHER}\t1\n"}
    splits = opened(**files).splits
    assert [name for name, split in splits.items() if split.copies is not None] == compared
