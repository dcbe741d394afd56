"""The folds of a cross-validation: python -m pytest tests/data/test_folds.py"""

import numpy as np
import pytest

from app.config.data_settings import VerbArguments
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.data.label_sets import label_form
from app.data.tokenizer import load_tokenizer
from app.errors import InputError
from app.run.assembly import open_stores
from tests.tiny import write_tiny


def repeated_texts(num_rows: int = 600) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    hashes = generator.integers(0, num_rows // 2, num_rows).astype(np.uint64)
    return (hashes % 7 // 2).astype(np.int64), hashes


def test_folds_keep_classes_and_texts_together():
    labels, hashes = repeated_texts()
    found = label_form("single_label").folds(labels, hashes, 5, 42)
    assert set(found.tolist()) == set(range(5))
    for text in np.unique(hashes):
        assert len(set(found[hashes == text].tolist())) == 1
    for label in range(4):
        sizes = np.bincount(found[labels == label], minlength=5)
        assert sizes.max() - sizes.min() <= 0.5 * sizes.mean()
    assert (found == label_form("single_label").folds(labels, hashes, 5, 42)).all()
    assert (found != label_form("single_label").folds(labels, hashes, 5, 43)).any()


def test_more_folds_than_rows_of_a_class_are_refused():
    with pytest.raises(
        InputError, match=r"--folds must be at most .* found 9 folds for 8 texts and 4 of that class"
    ):
        label_form("single_label").folds(np.arange(8) % 2, np.arange(8), 9, 0)


def test_folds_share_table_tokens_and_vocabulary_and_test_each_row_once(tmp_path):
    path = write_tiny(tmp_path / "rows.tsv")
    cache, tested, tokens = tmp_path / "cache", [], set()
    for fold in range(2):
        data = DataConfig(
            train=str(path),
            test="is not read",
            verb=VerbArguments(folds=2, fold=fold),
            cache_dir=str(cache),
            max_length=32,
        )
        dataset = open_dataset(data)
        splits = {name: set(split.rows.tolist()) for name, split in dataset.splits.items()}
        assert not splits["train"] & splits["dev"]
        assert not (splits["train"] | splits["dev"]) & splits["test"]
        assert len(splits["train"] | splits["dev"] | splits["test"]) == 60
        assert len(splits["dev"]) >= 3
        tested += splits["test"]
        tokenizer = load_tokenizer(ModelConfig(), dataset, 32, str(cache))
        tokens.add(open_stores(dataset, tokenizer, data)["train"].folder)
    assert sorted(tested) == list(range(60))
    assert len(tokens) == 1
    for kind in ("table", "tokens", "vocabulary"):
        assert len([path for path in cache.glob(f"{kind}-*") if path.is_dir()]) == 1


def test_a_dev_file_stays_dev(tmp_path):
    path, dev = write_tiny(tmp_path / "rows.tsv"), write_tiny(tmp_path / "dev.tsv", rows_per_label=4, seed=1)
    data = DataConfig(
        train=str(path), dev=str(dev), verb=VerbArguments(folds=3, fold=0), cache_dir=str(tmp_path / "cache")
    )
    splits = open_dataset(data).splits
    assert (len(splits["dev"]), len(splits["train"]) + len(splits["test"])) == (12, 60)


def multi_label_rows(num_rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, 0 and 1, of rows whose texts come more than once, and the hashes of the texts."""
    generator = np.random.default_rng(6)
    hashes = generator.integers(0, 600, num_rows).astype(np.uint64)
    of_text = (generator.random((600, 4)) < [0.6, 0.3, 0.1, 0.03]).astype(np.uint8)
    return of_text[hashes.astype(np.int64)], hashes


def test_folds_of_label_lists_keep_sets_labels_and_texts_together():
    labels, hashes = multi_label_rows()
    found = label_form("multi_label").folds(labels, hashes, 5, 42)
    assert set(found.tolist()) == set(range(5))
    for text in np.unique(hashes):
        assert len(set(found[hashes == text].tolist())) == 1
    sizes = np.bincount(found, minlength=5)
    assert sizes.max() - sizes.min() <= 10
    for label in range(4):
        counts = np.bincount(found[labels[:, label] == 1], minlength=5)
        assert counts.max() - counts.min() <= 8
    # A frequent set is spread too
    pairs = np.bincount(found[(labels[:, :2] == 1).all(axis=1)], minlength=5)
    assert pairs.max() - pairs.min() <= 10
    assert (found == label_form("multi_label").folds(labels, hashes, 5, 42)).all()
    assert (found != label_form("multi_label").folds(labels, hashes, 5, 43)).any()


def test_more_folds_than_texts_with_label_lists_are_refused():
    labels, hashes = np.ones((8, 2), np.uint8), (np.arange(8) // 2).astype(np.uint64)
    with pytest.raises(InputError, match=r"--folds must be at most .* found 5 folds for 4 texts"):
        label_form("multi_label").folds(labels, hashes, 5, 0)
