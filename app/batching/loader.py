"""Which rows are in which step and micro-batch, and these rows as the tensors of a batch on a device: padded,
or packed end to end; for masked language modelling with some tokens hidden.

The batch plan is a pure function of (num_rows, batch_size, seed, step). So all modes see the same global
batches, and resuming needs only the number of the next step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..runtime.devices import at_least_float32, is_cuda
from . import cut

EVALUATION = -1  # the `draw` of evaluations, which no step has
PAD_TO = 8  # the length of a padded batch is a multiple of this many tokens
TARGET_SHARE = 0.15  # of a row's tokens, for masked language modelling
# Shares of the targets in whose place the model sees the mask token, or a random one; it sees the others
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1


@dataclass(frozen=True)
class BatchPlan:
    """Global batches of row positions; the last of an epoch may be smaller."""

    num_rows: int
    batch_size: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        return -(-self.num_rows // self.batch_size)

    def batch(self, step: int) -> np.ndarray:
        """Return the row positions, (<= batch_size,) int64, of global batch `step`, from 0 on."""
        epoch, index = divmod(step, self.steps_per_epoch)
        order = epoch_order(self, epoch)
        return order[index * self.batch_size : (index + 1) * self.batch_size].astype(np.int64)


@lru_cache(maxsize=1)
def epoch_order(plan: BatchPlan, epoch: int) -> np.ndarray:
    dtype = np.int32 if plan.num_rows < 1 << 31 else np.int64
    return np.random.default_rng([plan.seed, epoch]).permutation(np.arange(plan.num_rows, dtype=dtype))


def micro_batches(
    batch: np.ndarray,
    lengths: np.ndarray,
    num_shards: int,
    accumulation_steps: int,
    most_tokens: int | None = None,
    padded: bool = False,
) -> list[list[np.ndarray]]:
    """Return the micro-batches of each shard of a global batch, as row positions, longest row first. `batch`
    (batch_rows,) are row positions, `lengths` (batch_rows,) their tokens. All shards get the same number of
    micro-batches, at least one: `accumulation_steps`, or one for each row; more where some have more than
    `most_tokens`. Some are empty if the batch has too few rows. Rows are dealt in rounds: one to each shard,
    the longest of a round to the shard with the fewest tokens so far. So all have about as many tokens, and
    the numbers of rows differ by at most one."""
    order = np.argsort(-lengths, kind="stable")
    shard, tokens = np.zeros(len(order), dtype=np.int64), np.zeros(num_shards, dtype=np.int64)
    for start in range(0, len(order), num_shards) if num_shards > 1 else ():
        round_rows = order[start : start + num_shards]
        fewest = np.argsort(tokens, kind="stable")[: len(round_rows)]
        shard[start : start + num_shards] = fewest
        tokens[fewest] += lengths[round_rows]
    count = max(1, min(accumulation_steps, -(-len(batch) // num_shards)))
    shards = [np.array_split(order[shard == index], count) for index in range(num_shards)]
    if most_tokens:
        shards = [[part for rows in of for part in cut(rows, lengths, most_tokens, padded)] for of in shards]
    most = max(map(len, shards))
    return [[batch[rows] for rows in of] + [batch[:0]] * (most - len(of)) for of in shards]


def evaluation_batches(
    lengths: np.ndarray,
    batch_size: int,
    num_shards: int,
    shard_index: int,
    windows: np.ndarray | None = None,
    most_tokens: int | None = None,
    padded: bool = False,
) -> list[np.ndarray]:
    """Return this shard's batches of a whole split, as row positions; each row is on one shard. `lengths`
    (num_rows,) are the tokens of each row; rows of similar length are in one batch. `windows` (num_rows,): a
    batch has at most `batch_size` windows, or one row; None: each row has one. A batch has at most
    `most_tokens`, or one row. All shards get the same number of batches, because a forward pass may be a
    collective; the last batch may be empty."""
    order = np.argsort(-lengths, kind="stable")
    # Windows are counted as `cut` counts tokens
    windows = np.ones(len(order), np.int64) if windows is None else windows
    batches = cut(order, windows, batch_size, padded=False)
    if most_tokens:
        batches = [part for rows in batches for part in cut(rows, lengths, most_tokens, padded)]
    batches += [order[:0]] * (-len(batches) % num_shards)
    return batches[shard_index::num_shards]


@dataclass(frozen=True)
class Layout:
    """The form of the inputs that a model takes."""

    packed: bool  # rows are laid end to end, not padded to one length
    varlen: bool = False  # attention of packed batches takes rows of any lengths, not in groups
    heads: int = 1  # of keys, for each of which the groups have the padded rows
    multiple_of: int = 1  # rows of padding fill a packed batch up to a multiple of so many tokens
    pad_id: int = 0
    first_position: int = 0  # of a row's first token; RoBERTa counts from pad_id + 1
    # A decoder reads the last token of a row that does not have this id (-1: the last); None for an encoder
    last_except: int | None = None
    token_types: bool = True  # whether the model tells the two texts of a pair apart
    max_positions: int | None = None  # the most tokens of a row, where there is a limit


def collate(rows: Sequence[np.ndarray], second_starts: Sequence[int] | None, layout: Layout) -> dict:
    """Return the model's inputs for the token ids `rows`, one or more arrays of shape (length,).
    `second_starts` is for each row the number of tokens before its second text, or None for single texts.
    Padded: `input_ids`, `attention_mask` and, for pairs, `token_type_ids`, each (num_rows, longest) int64.
    Packed: `input_ids`, `position_ids` and, for pairs, `token_type_ids`, each (1, total_tokens) int64;
    `first_tokens` and for a decoder `last_tokens` (num_rows,) int64, the index of the token of each row that
    the head reads; and for attention `row_offsets` (num_rows + 1,) int32, the index of each row's first token
    and the end of the last row, and `longest`, the tokens of the longest row; or what `row_groups` returns.
    Rows of padding that fill a packed batch up are the last ones."""
    if layout.packed:
        rows = [*rows, *_rows_of_padding(rows, layout)]
    tokens = np.concatenate(rows)
    lengths = np.array([len(row) for row in rows], dtype=np.int64)
    starts = None
    if second_starts is not None and layout.token_types:
        starts = np.concatenate([second_starts, lengths[len(second_starts) :]]).astype(np.int64)
    if not layout.packed:
        longest = -(-int(lengths.max()) // PAD_TO) * PAD_TO
        if layout.max_positions:
            longest = max(int(lengths.max()), min(longest, layout.max_positions))
        columns = np.arange(longest)
        mask = columns < lengths[:, None]
        arrays = {"input_ids": np.full(mask.shape, layout.pad_id), "attention_mask": mask.astype(np.int64)}
        arrays["input_ids"][mask] = tokens
        if starts is not None:
            arrays["token_type_ids"] = (mask & (columns >= starts[:, None])).astype(np.int64)
    else:
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        row_of_token, position = places_in_rows(lengths)
        arrays = {"input_ids": tokens.astype(np.int64)[None], "first_tokens": offsets[:-1]}
        arrays["position_ids"] = (position + layout.first_position)[None]
        if layout.last_except is not None:
            real = np.where(tokens != layout.last_except, np.arange(len(tokens)), 0)
            arrays["last_tokens"] = np.maximum(np.maximum.reduceat(real, offsets[:-1]), offsets[:-1])
        if starts is not None:
            arrays["token_type_ids"] = (position >= starts[row_of_token]).astype(np.int64)[None]
        if layout.varlen:
            arrays |= {"row_offsets": offsets.astype(np.int32), "longest": int(lengths.max())}
        else:
            arrays |= row_groups(lengths, layout.heads)
    return {
        name: torch.from_numpy(values) if isinstance(values, np.ndarray) else values
        for name, values in arrays.items()
    }


def _rows_of_padding(rows: Sequence[np.ndarray], layout: Layout) -> list[np.ndarray]:
    """Return what is missing to a multiple of `layout.multiple_of` tokens, in rows that are no longer than
    the longest of `rows`: the model has no more positions."""
    longest, missing = max(map(len, rows)), -sum(map(len, rows)) % layout.multiple_of
    padding = np.full(missing, layout.pad_id, dtype=rows[0].dtype)
    return [padding[start : start + longest] for start in range(0, missing, longest)]


def places_in_rows(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the row of each token, (total_tokens,), and its index in the row."""
    row_of_token = np.repeat(np.arange(len(lengths)), lengths)
    return row_of_token, np.arange(len(row_of_token)) - (np.cumsum(lengths) - lengths)[row_of_token]


def row_groups(lengths: np.ndarray, heads: int) -> dict[str, Any]:
    """Return the layout for attention of packed rows, whose tokens are `lengths` (num_rows,) int64, in groups
    of rows of similar length, longest first, each padded to its longest row, and no row shorter than half of
    that: the cost of attention grows with the square of it.

    The padded groups are laid end to end, in each a row after the other, once for each head, as products of
    matrices need them. The tensors index these places; the heads of a token follow one another:
    `group_shapes`: a tuple of (num_rows, longest, has_padding) for each group.
    `to_padded` (places,): the packed token's head at each place; 0 for padding.
    `from_padded` (total_tokens * heads,): the place of each packed token's head.
    `is_padding` (places, 1) bool.
    `row_order` (num_rows,): the packed row of each row of the groups.
    """
    order = np.argsort(-lengths, kind="stable")
    halvings = np.floor(np.log2(lengths[order[0]] / lengths[order]))
    shapes, places = [], 0
    # The first head of a row begins at `starts`, each other one `distance` places after the one before.
    starts, distance = np.empty((2, len(lengths)), dtype=np.int64)
    for group in np.split(order, np.flatnonzero(np.diff(halvings)) + 1):
        longest = int(lengths[group].max())
        shapes.append((len(group), longest, bool((lengths[group] < longest).any())))
        starts[group] = places + np.arange(len(group)) * heads * longest
        distance[group] = longest
        places += len(group) * heads * longest
    row_of_token, position = places_in_rows(lengths)
    first = (starts[row_of_token] + position)[:, None]
    from_padded = (first + np.outer(distance[row_of_token], np.arange(heads))).reshape(-1)
    to_padded = np.zeros(places, dtype=np.int64)
    to_padded[from_padded] = np.arange(len(from_padded))
    is_padding = np.ones((places, 1), dtype=bool)
    is_padding[from_padded] = False
    arrays = {
        "to_padded": to_padded,
        "from_padded": from_padded,
        "is_padding": is_padding,
        "row_order": order,
    }
    return {"group_shapes": tuple(shapes)} | {name: torch.from_numpy(one) for name, one in arrays.items()}


@dataclass(frozen=True)
class Batch:
    """The model inputs of some rows, their targets `labels` and `positions` in the split, (num_rows,) int64.
    The outputs of the model begin with one for each of the labels, (num_labels, ...). `label_rows`,
    (num_labels,) on the host, is the index of each label's row in the batch. The inputs of an empty batch
    have one dummy row, because a forward pass may be a collective. Where rows have windows, the inputs are of
    windows, row after row, and `windows_per_row` (num_rows,) is how many each row has."""

    inputs: dict[str, Any]
    labels: torch.Tensor
    positions: torch.Tensor
    label_rows: torch.Tensor
    windows_per_row: torch.Tensor | None = None

    def row_outputs(self, outputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs of the labels, (num_labels, any), of the model's `outputs`, in float32 or
        float64. The outputs of a row with windows are the means over its windows. The model never sees which
        windows are of one row: a mode may split them over several devices."""
        outputs = at_least_float32(outputs)
        if self.windows_per_row is not None:
            outputs = means_of_rows(outputs, self.windows_per_row)
        return outputs[: len(self.labels)]


class Loader:
    """Makes batches from the rows of a split; a position counts the rows of the split from 0. `draw` is what
    random targets depend on, apart from the row: the step in training, `EVALUATION` in every evaluation.
    `losses_per_row`: how many losses are added up for each row. `targets` makes the targets of labels,
    (num_rows, ...); without it they are the labels as int64."""

    def __init__(
        self,
        split: Split,
        store: TokenStore,
        layout: Layout,
        losses_per_row: int = 1,
        targets: Callable[[np.ndarray], np.ndarray] | None = None,
    ) -> None:
        self.split, self.store, self.layout = split, store, layout
        self.losses_per_row = losses_per_row
        self.targets = targets or (lambda labels: labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.split)

    def lengths(self, positions: np.ndarray | None = None) -> np.ndarray:
        """Return the tokens of each row, (num_rows,) int64: of all rows, or of those at `positions`."""
        rows = self.split.rows if positions is None else self.split.rows[positions]
        return np.asarray(self.store.offsets[rows + 1] - self.store.offsets[rows])

    def windows(self) -> np.ndarray | None:
        """Return the number of windows of each row, (num_rows,) int64; None where each has one."""
        if not self.store.has_windows:
            return None
        rows = self.split.rows
        return np.asarray(self.store.first_windows[rows + 1] - self.store.first_windows[rows])

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        return len(positions) * self.losses_per_row

    def input_rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the ids in the table of the rows at `positions`; of a stand-in row where there are none."""
        return self.split.rows[positions if len(positions) else np.zeros(1, np.int64)]

    def load(self, positions: np.ndarray, device: torch.device, draw: int = EVALUATION) -> Batch:
        """Return the batch of the rows at `positions`, (num_rows,), which may be empty."""
        rows = self.input_rows(positions)
        windows = [self.store.windows(row) for row in rows]
        if not len(positions):
            windows = [windows[0][:1]]
        second_starts = None if self.store.second_starts is None else self.store.second_starts[rows]
        inputs = collate([window for of_row in windows for window in of_row], second_starts, self.layout)
        targets = {"labels": torch.from_numpy(self.targets(np.asarray(self.split.labels[positions])))}
        if self.store.has_windows:
            targets["windows_per_row"] = torch.tensor([len(of_row) for of_row in windows])
        self.store.release()
        of_rows = {"positions": torch.from_numpy(positions), "label_rows": torch.arange(len(positions))}
        return Batch(to_device(inputs, device), **of_rows, **to_device(targets, device))


def means_of_rows(outputs: torch.Tensor, windows_per_row: torch.Tensor) -> torch.Tensor:
    """Return the mean of the windows of each row, (num_rows, any); `outputs` (num_windows, any), by row.
    `windows_per_row` (num_rows,) int64, at least 1 each. The mean of one window has the same bits."""
    num_rows = len(windows_per_row)
    rows = torch.arange(num_rows, device=outputs.device)
    row_of_window = rows.repeat_interleave(windows_per_row, output_size=len(outputs))
    shares = outputs / windows_per_row[row_of_window, None]
    return outputs.new_zeros(num_rows, outputs.shape[1]).index_add(0, row_of_window, shares)


def to_device(inputs: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Return inputs with their tensors on `device`, copied to CUDA from pinned memory without waiting."""
    # From other memory MPS reads it after it was freed: https://github.com/pytorch/pytorch/issues/189690
    is_pinned = is_cuda(device)
    return {
        name: (value.pin_memory() if is_pinned else value).to(device, non_blocking=is_pinned)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in inputs.items()
    }


class MaskedRow(NamedTuple):
    """A row whose targets are masked: `tokens` (length,), as the model sees them; `places` (targets,), the
    indices of the targets in order; and `labels` (targets,), their real tokens."""

    tokens: np.ndarray
    places: np.ndarray
    labels: np.ndarray


def masked_row(
    tokens: np.ndarray, row: int, draw: int, seed: int, mask_id: int, ordinary_ids: np.ndarray
) -> MaskedRow:
    """Return a row, (length,) ids, with some tokens hidden: `mask_id` takes the place of most of them, one of
    `ordinary_ids` that of some. These are the ids of all tokens but special ones, which are never hidden.
    `row` is its id in the table, and `draw` the step or `EVALUATION`; with the seed these alone decide, so
    every mode hides the same tokens, and a resumed run too."""
    candidates = np.flatnonzero(np.isin(tokens, ordinary_ids))
    generator = np.random.default_rng([seed, draw - EVALUATION, row])
    order = generator.permutation(len(candidates))
    places = candidates[np.sort(order[: max(1, round(TARGET_SHARE * len(candidates)))])]
    hidden, action = tokens.copy(), generator.random(len(places))
    others = generator.choice(ordinary_ids, len(places))
    ways = [action < MASK_SHARE, action < MASK_SHARE + RANDOM_SHARE]
    hidden[places] = np.select(ways, [np.full_like(others, mask_id), others], tokens[places])
    return MaskedRow(hidden, places, tokens[places])


class MaskedLoader(Loader):
    """A loader whose targets are hidden tokens: `mask` is `masked_row` of tokens, row and draw. The input
    `masked` says where: in packed batches (targets,) int64 places of tokens; in padded ones (num_rows,
    longest) bool, which a mode may split by rows."""

    def __init__(self, split: Split, store: TokenStore, layout: Layout, mask: Callable) -> None:
        super().__init__(split, store, layout)
        self.mask = mask
        # `divisor` masks a whole global batch to count its targets; `load` then uses the same masks
        self.kept: dict[tuple[int, int], MaskedRow] = {}

    def divisor(self, positions: np.ndarray, draw: int) -> int:
        self.kept = {(draw, row): self.masked(row, draw) for row in self.split.rows[positions].tolist()}
        return max(1, sum(len(row.places) for row in self.kept.values()))

    def masked(self, row: int, draw: int) -> MaskedRow:
        if (draw, row) in self.kept:
            return self.kept[draw, row]
        return self.mask(np.asarray(self.store.row(row)).astype(np.int64), row, draw)

    def load(self, positions: np.ndarray, device: torch.device, draw: int = EVALUATION) -> Batch:
        rows = [self.masked(row, draw) for row in self.input_rows(positions).tolist()]
        inputs = collate([row.tokens for row in rows], None, self.layout)
        self.store.release()
        # A stand-in row has no targets
        rows = rows[: len(positions)]
        index = np.repeat(np.arange(len(rows)), [len(row.places) for row in rows])
        targets = np.concatenate([np.empty((2, 0), np.int64), *(row[1:] for row in rows)], axis=1)
        index, places, labels = map(torch.from_numpy, (index, *targets))
        if "first_tokens" in inputs:
            inputs["masked"] = inputs["first_tokens"][index] + places
        else:
            inputs["masked"] = torch.zeros(inputs["input_ids"].shape, dtype=torch.bool)
            inputs["masked"][index, places] = True
        labels = to_device({"labels": labels}, device)["labels"]
        return Batch(to_device(inputs, device), labels, torch.from_numpy(positions), index)
