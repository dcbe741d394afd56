"""Which rows are in which batch; rows as padded and packed tensors; several windows; hidden tokens."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from app.batching.loader import (
    EVALUATION,
    TARGET_SHARE,
    BatchPlan,
    Layout,
    Loader,
    MaskedLoader,
    collate,
    evaluation_batches,
    masked_row,
    micro_batches,
)
from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.data.dataset import open_dataset
from app.modes.mode import Single
from app.training.build import build, open_stores
from tests.tiny import open_tiny, tiny_model, tiny_tokenizer, token_rows, write_tiny

CPU = torch.device("cpu")
SHARDS = pytest.mark.parametrize("num_shards", [1, 2, 3, 4, 8])


def random_lengths(num_rows: int, seed: int = 0) -> np.ndarray:
    """Lengths as texts have them: most are short, a few long."""
    return np.random.default_rng(seed).geometric(0.05, num_rows) + 2


def all_rows(shards: list) -> list[int]:
    return sorted(np.concatenate([np.concatenate(batches) for batches in shards]))


SIZES = [(1, 1), (1, 32), (5, 2), (32, 32), (33, 32), (97, 10), (100, 7), (1000, 64)]


@pytest.mark.parametrize(("num_rows", "batch_size"), SIZES)
def test_every_row_trains_once_an_epoch_and_the_last_batch_is_smaller(num_rows, batch_size):
    """Whatever batch is asked for first, and whatever generator the process has."""
    plan, other = (BatchPlan(num_rows, batch_size, seed=3) for _ in range(2))
    np.random.seed(1)
    backward = [other.batch(step) for step in reversed(range(3 * plan.steps_per_epoch))]
    np.random.seed(2)
    for epoch in range(3):
        first = epoch * plan.steps_per_epoch
        batches = [plan.batch(step) for step in range(first, first + plan.steps_per_epoch)]
        sizes = [len(batch) for batch in batches]
        assert all_rows([batches]) == list(range(num_rows))
        assert sizes[:-1] == [batch_size] * (len(sizes) - 1)
        assert sizes[-1] == (num_rows % batch_size or batch_size)
        assert all(np.array_equal(batch, backward.pop()) for batch in batches)


@pytest.mark.parametrize("accumulation", [1, 3, 7, 100])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 8, 33, 500])
def test_micro_batches_of_all_shards_are_the_batch(num_rows, num_shards, accumulation):
    batch, lengths = np.random.default_rng(1).permutation(1000)[:num_rows], random_lengths(1000)
    shards = micro_batches(batch, lengths[batch], num_shards, accumulation)
    of_shards = [np.concatenate(shard) for shard in shards]
    assert all_rows(shards) == sorted(batch)
    assert np.ptp([len(rows) for rows in of_shards]) <= 1
    # The longest row of a round goes to the shard with the fewest tokens.
    assert np.ptp([lengths[rows].sum() for rows in of_shards]) <= lengths[batch].max()
    # Or the ranks would wait for each other forever
    (count,) = {len(shard) for shard in shards}
    assert count == min(accumulation, -(-num_rows // num_shards))
    for rows, shard in zip(of_shards, shards, strict=True):
        assert np.ptp([len(micro) for micro in shard]) <= 1
        assert (np.diff(lengths[rows]) <= 0).all(), "rows of similar length are in one micro-batch"


@pytest.mark.parametrize("has_windows", [False, True])
@pytest.mark.parametrize("batch_size", [1, 7, 64])
@SHARDS
@pytest.mark.parametrize("num_rows", [1, 3, 63, 65, 200])
def test_evaluation_covers_each_row_once(num_rows, num_shards, batch_size, has_windows):
    lengths = random_lengths(num_rows)
    windows = -(-lengths // 20) if has_windows else None
    counts = windows if has_windows else np.ones(num_rows)
    shards = [evaluation_batches(lengths, batch_size, num_shards, i, windows) for i in range(num_shards)]
    assert all_rows(shards) == list(range(num_rows))
    (count,) = {len(batches) for batches in shards}
    assert count >= 1
    batches = [batch for batches in shards for batch in batches]
    assert all(len(batch) <= 1 or counts[batch].sum() <= batch_size for batch in batches)
    assert batch_size != 7 or num_rows < 63 or max(counts[batch].sum() for batch in batches) == 7


@pytest.mark.parametrize("padded", [False, True])
@SHARDS
@pytest.mark.parametrize("tokens", [1, 60, 400])
def test_no_pass_has_more_tokens_than_the_limit(tokens, num_shards, padded):
    """One long text is alone, and the others are as many as fit."""
    lengths = random_lengths(65)
    lengths[7] = 500
    training = micro_batches(np.arange(65), lengths, num_shards, 2, tokens, padded)
    evaluation = [
        evaluation_batches(lengths, 16, num_shards, i, None, tokens, padded) for i in range(num_shards)
    ]
    for shards, most in ((training, -(-33 // num_shards)), (evaluation, 16)):
        assert all_rows(shards) == list(range(65))
        assert len({len(of) for of in shards}) == 1
        for rows in (rows for of in shards for rows in of if len(rows)):
            cost = lengths[rows].max() * len(rows) if padded else lengths[rows].sum()
            assert cost <= tokens or len(rows) == 1
            assert len(rows) <= most
    sizes = {len(rows) for of in training for rows in of}
    assert max(sizes) == 1 if tokens == 1 else max(sizes) > 3


def test_single_texts_have_no_token_types_and_padding_stops_at_the_last_position():
    for packed in (False, True):
        assert "token_type_ids" not in collate(token_rows([3, 4]), None, Layout(packed))
        assert "token_type_ids" not in collate(token_rows([3, 4]), [1, 2], Layout(packed, token_types=False))
    for lengths, padded in (([3, 10], 10), ([3, 7], 8)):
        inputs = collate(token_rows(lengths), None, Layout(False, max_positions=10))
        assert inputs["input_ids"].shape == (2, padded)


@pytest.mark.parametrize("lengths", [[3, 4], [5, 3], [1], [30, 9]])
def test_rows_of_padding_fill_a_packed_batch_up(lengths):
    """None is longer than the longest row, or empty."""
    rows = token_rows(lengths)
    inputs = collate(rows, [1] * len(rows), Layout(True, varlen=True, multiple_of=8, pad_id=9))
    plain = collate(rows, [1] * len(rows), Layout(True, varlen=True))
    total, tokens = sum(lengths), -(-sum(lengths) // 8) * 8
    assert inputs["input_ids"].shape == (1, tokens)
    assert inputs["input_ids"][0, total:].tolist() == [9] * (tokens - total)
    for name in ("input_ids", "position_ids", "token_type_ids"):
        assert torch.equal(inputs[name][:, :total], plain[name])
    assert inputs["first_tokens"][: len(rows)].tolist() == plain["first_tokens"].tolist()
    found = inputs["row_offsets"].diff()
    assert found[: len(rows)].tolist() == lengths
    assert found.min() > 0
    assert found.max() == max(lengths)
    assert found.sum() == tokens
    assert inputs["position_ids"].max() < max(lengths)


@pytest.fixture(scope="module")
def windows(tmp_path_factory):
    """A split, and the token store of its rows of one to five windows."""
    folder, tokenizer = tmp_path_factory.mktemp("windows"), tiny_tokenizer()
    texts = ["abc", "abcdefghijklmnop" * 2, "ponmlkjihg" * 9, "a", "fedcba" * 4, "abcd" * 5]
    rows = [[" ".join(text), "xy"[at % 2]] for at, text in enumerate(texts)]
    (folder / "rows.json").write_text(json.dumps(rows))
    files = {"train": str(folder / "rows.json"), "cache_dir": str(folder / "cache")}
    data = DataConfig(**files, dev_size=0, test_size=0, max_length=12, long="windows", max_windows=5)
    dataset = open_dataset(data)
    return dataset.splits["train"], open_stores(dataset, tokenizer, data)["train"]


@pytest.mark.parametrize(("packed", "varlen"), [(False, False), (True, False), (True, True)])
def test_logits_and_gradients_are_those_of_the_means_of_windows(windows, packed, varlen):
    split, store = windows
    model = tiny_model()
    positions = np.array([2, 0, 5, 4])
    loader = Loader(split, store, model.layout(packed, varlen))
    batch = loader.load(positions, CPU)
    logits = batch.row_outputs(model(**batch.inputs))
    of_rows = [
        [model(torch.from_numpy(window.astype(np.int64))[None])[0] for window in store.windows(row)]
        for row in split.rows[positions]
    ]
    assert loader.windows()[positions].tolist() == [len(of_windows) for of_windows in of_rows]
    one_by_one = torch.stack([torch.stack(of_windows).mean(0) for of_windows in of_rows])
    torch.testing.assert_close(logits, one_by_one, rtol=1e-5, atol=1e-6)
    labels = torch.tensor([0, 1, 2, 1])
    found, wanted = (
        torch.autograd.grad(torch.nn.functional.cross_entropy(rows, labels), model.model.classifier.weight)[0]
        for rows in (logits, one_by_one)
    )
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(
    ("precision", "long", "multiple"), [("bf16", "cut", 32), ("bf16", "windows", 1), ("fp32", "cut", 1)]
)
def test_a_run_fills_its_batches_up_in_bf16_on_the_cpu(tmp_path, precision, long, multiple):
    files = {"train": str(write_tiny(tmp_path / "rows.tsv")), "cache_dir": str(tmp_path / "cache")}
    train = TrainConfig(precision=precision, device="cpu")
    sizes = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64}
    model = ModelConfig("random", config=sizes)
    with Single(Config(DataConfig(**files, long=long), model, train)) as mode:
        for loader in build(mode.config, mode).loaders.values():
            positions = np.arange(min(5, len(loader)))
            tokens, real = loader.load(positions, CPU).inputs["input_ids"].shape[1], loader.lengths(positions)
            assert tokens == -(-real.sum() // multiple) * multiple


SPECIAL, MASK = [0, 1, 2, 3], 3
hide = partial(masked_row, mask_id=MASK, ordinary_ids=np.arange(4, 1000))


def random_row(seed: int) -> np.ndarray:
    return np.concatenate([[1], np.random.default_rng(seed).integers(4, 1000, 100), [2]])


def test_masks_are_a_pure_function_of_seed_draw_and_row():
    tokens = random_row(0)
    first, again = hide(tokens, 5, 3, 7), hide(tokens.copy(), 5, 3, 7)
    assert np.array_equal(first.tokens, again.tokens)
    assert np.array_equal(first.places, again.places)
    for other in [(5, 3, 8), (6, 3, 7), (5, 4, 7), (5, EVALUATION, 7)]:
        assert not np.array_equal(first.places, hide(tokens, *other).places)
    assert np.array_equal(first.labels, tokens[first.places])
    assert (np.diff(first.places) > 0).all()


def test_fifteen_percent_are_hidden_eighty_ten_ten():
    rows = [hide(random_row(seed), seed, 0, 7) for seed in range(300)]
    assert {len(hidden.places) for hidden in rows} == {round(100 * TARGET_SHARE)}
    seen = np.concatenate([hidden.tokens[hidden.places] for hidden in rows])
    labels = np.concatenate([hidden.labels for hidden in rows])
    assert np.mean(seen == MASK) == pytest.approx(0.8, abs=0.02)
    assert np.mean(seen == labels) == pytest.approx(0.1, abs=0.02)
    assert not np.isin(seen[seen != MASK], SPECIAL).any()
    for seed, hidden in enumerate(rows):
        kept, original = (np.delete(tokens, hidden.places) for tokens in (hidden.tokens, random_row(seed)))
        assert np.array_equal(kept, original)


def test_special_tokens_are_never_hidden_and_a_short_row_has_one_target():
    for seed in range(50):
        assert hide(np.array([1, 500, 2]), seed, 0, 7).places.tolist() == [1]
    # The last has a token that the tokenizer does not know
    for tokens in ([1, 2], [1, 5000, 2]):
        assert not len(hide(np.array(tokens), 0, 0, 7).places)


def test_masked_batches_have_the_same_targets_in_each_layout_and_cut(tmp_path):
    dataset, tokenizer, stores = open_tiny(tmp_path)
    ordinary = np.setdiff1d(np.arange(len(tokenizer)), tokenizer.all_special_ids)
    mask = partial(masked_row, seed=0, mask_id=tokenizer.mask_token_id, ordinary_ids=ordinary)
    layouts = [tiny_model().layout(packed) for packed in (True, False)]
    loaders = [MaskedLoader(dataset.splits["train"], stores["train"], layout, mask) for layout in layouts]
    positions = np.array([7, 0, 3, 11])
    packed, padded = (loader.load(positions, CPU, 5) for loader in loaders)
    assert packed.labels.tolist() == padded.labels.tolist()
    assert packed.label_rows.tolist() == padded.label_rows.tolist()
    ids = packed.inputs["input_ids"][0][packed.inputs["masked"]]
    assert ids.tolist() == padded.inputs["input_ids"][padded.inputs["masked"]].tolist()
    assert packed.positions.tolist() == positions.tolist()

    loader, batch = loaders[0], np.arange(10)
    fresh = loader.load(batch, CPU, 4).labels
    divisor = loader.divisor(batch, 4)
    assert divisor == sum(len(loader.load(part, CPU, 4).labels) for part in np.array_split(batch, 3))
    # What it keeps of the batch is the same
    assert torch.equal(fresh, loader.load(batch, CPU, 4).labels)

    # An empty batch has a stand-in row without targets
    for loader in loaders:
        empty = loader.load(np.empty(0, np.int64), CPU)
        assert len(empty.labels) == len(empty.positions) == 0
        assert empty.inputs["input_ids"].numel()
        assert not empty.inputs["masked"].any()
