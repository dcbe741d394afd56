"""ERNIE weights of PaddleNLP become a checkpoint of transformers, which `--model.name` takes.

python examples/paddle_weights.py ernie-3.0-tiny-base-v2-zh ernie-tiny-base
python run_single.py --model.name ./ernie-tiny-base --data.train reviews.csv

The first folder is as PaddleNLP keeps it: model_state.pdparams, a configuration (config.json or
model_config.json) and vocab.txt. The second one is new. Paddle is not needed. A .pdparams file is a pickle,
which could run any code: here it may make arrays of NumPy and nothing else. Written for ERNIE 3.0 and ERNIE
3.0-Tiny; it was tried on files with random weights only, because no hub could be reached from here.
"""

from __future__ import annotations

import argparse
import json
import pickle
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

WEIGHTS = "model_state.pdparams"
CONFIGURATIONS = ("config.json", "model_config.json")
VOCABULARY = "vocab.txt"
ALLOWED = {
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("_codecs", "encode"),  # bytes in old pickles
    ("builtins", "tuple"),  # a tensor may be its name and its values
    ("__builtin__", "tuple"),
    ("collections", "OrderedDict"),
}
ARRAY_MODULES = (
    "numpy.core.multiarray",
    "numpy._core.multiarray",
    "numpy.core.numeric",
    "numpy._core.numeric",
)
ARRAY_FUNCTIONS = ("_reconstruct", "_frombuffer")

# Parts of a name in PaddleNLP, and in transformers
RENAMED = (
    (r"^ernie\.encoder\.layers\.", "ernie.encoder.layer."),
    (r"\.self_attn\.q_proj\.", ".attention.self.query."),
    (r"\.self_attn\.k_proj\.", ".attention.self.key."),
    (r"\.self_attn\.v_proj\.", ".attention.self.value."),
    (r"\.self_attn\.out_proj\.", ".attention.output.dense."),
    (r"\.norm1\.", ".attention.output.LayerNorm."),
    (r"\.linear1\.", ".intermediate.dense."),
    (r"\.linear2\.", ".output.dense."),
    (r"\.norm2\.", ".output.LayerNorm."),
    (r"^ernie\.embeddings\.layer_norm\.", "ernie.embeddings.LayerNorm."),
)
# Only the encoder is taken: heads of the pretraining are not needed to classify
ENCODER = "ernie."
# Keys of PaddleNLP's configuration that transformers has under the same name
SAME_KEYS = (
    "attention_probs_dropout_prob",
    "hidden_act",
    "hidden_dropout_prob",
    "initializer_range",
    "num_attention_heads",
    "pad_token_id",
    "use_task_id",
)


class TensorsOnly(pickle.Unpickler):
    """A reader of pickles that makes arrays, and refuses everything else before it is called."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ALLOWED or (module in ARRAY_MODULES and name in ARRAY_FUNCTIONS):
            return super().find_class(module.replace("__builtin__", "builtins"), name)
        raise pickle.UnpicklingError(f"only arrays are read, found {module}.{name}")


def read_tensors(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a .pdparams file in float32, by PaddleNLP's names. Raises ValueError for a file
    that holds anything else."""
    with path.open("rb") as file:
        try:
            values = TensorsOnly(file, encoding="latin1").load()
        except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, IndexError) as error:
            raise ValueError(f"{path}: a file of tensors is needed: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path}: tensors with names are needed, found a {type(values).__name__}")
    tensors = {}
    for name, value in values.items():
        if isinstance(value, tuple) and len(value) == 2:
            # Its own name comes first
            value = value[1]
        if isinstance(value, dict):
            # A table of names
            continue
        if not isinstance(value, np.ndarray) or value.dtype.kind != "f":
            raise ValueError(f"{path}: {name} must be an array of floats, found {kind_of(value)}")
        tensors[str(name)] = value.astype(np.float32)
    return tensors


def kind_of(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"one of {value.dtype}"
    return f"a {type(value).__name__}"


def renamed(name: str) -> str:
    """Return the name of a weight in transformers."""
    for pattern, replacement in RENAMED:
        name = re.sub(pattern, replacement, name)
    return name


def converted(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the weights of the encoder as transformers has them. Matrices of linear layers are turned:
    Paddle has (inputs, outputs), torch (outputs, inputs)."""
    weights = {}
    for name, value in tensors.items():
        if not name.startswith(ENCODER):
            continue
        is_linear = value.ndim == 2 and "embeddings" not in name
        if is_linear:
            value = value.T
        weights[renamed(name)] = np.ascontiguousarray(value)
    if not weights:
        raise ValueError(f"names that begin with {ENCODER} are needed, found {', '.join(list(tensors)[:3])}")
    return weights


def read_configuration(folder: Path) -> dict[str, Any]:
    """Return PaddleNLP's configuration of a model; older ones have it as the arguments of a class."""
    for name in CONFIGURATIONS:
        path = folder / name
        if path.is_file():
            values = json.loads(path.read_text(encoding="utf-8"))
            arguments = values.get("init_args")
            if arguments:
                values = arguments[0]
            if "num_attention_heads" not in values:
                raise ValueError(f"{path}: num_attention_heads is needed, found {', '.join(values)}")
            return values
    raise ValueError(f"{folder}: {' or '.join(CONFIGURATIONS)} is needed, found none")


def configuration(values: dict[str, Any], weights: dict[str, np.ndarray]) -> dict[str, Any]:
    """Return transformers' configuration. Sizes are those of the weights."""
    embeddings = "ernie.embeddings."
    vocabulary_size, hidden_size = weights[f"{embeddings}word_embeddings.weight"].shape
    layers = {name.split(".")[3] for name in weights if name.startswith("ernie.encoder.layer.")}
    config = {key: values[key] for key in SAME_KEYS if key in values}
    config |= {
        "architectures": ["ErnieModel"],
        "model_type": "ernie",
        "hidden_size": hidden_size,
        "intermediate_size": len(weights["ernie.encoder.layer.0.intermediate.dense.bias"]),
        "max_position_embeddings": len(weights[f"{embeddings}position_embeddings.weight"]),
        "num_hidden_layers": len(layers),
        "type_vocab_size": len(weights[f"{embeddings}token_type_embeddings.weight"]),
        "vocab_size": vocabulary_size,
    }
    task_types = weights.get(f"{embeddings}task_type_embeddings.weight")
    config["use_task_id"] = task_types is not None
    if task_types is not None:
        config["task_type_vocab_size"] = len(task_types)
    return config


def convert(source: Path, target: Path) -> None:
    """Write the checkpoint of transformers for a folder of PaddleNLP into a new folder. Raises ValueError for
    a folder that cannot be converted, and OSError for files that cannot be read or written."""
    weights = converted(read_tensors(source / WEIGHTS))
    config = configuration(read_configuration(source), weights)
    target.mkdir(parents=True)
    save_file(weights, target / "model.safetensors", metadata={"format": "pt"})
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(source / VOCABULARY, target / VOCABULARY)


def main() -> None:
    summary, _, rest = __doc__.partition("\n\n")
    parser = argparse.ArgumentParser(
        description=summary, epilog=rest, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", type=Path, help="the folder of PaddleNLP")
    parser.add_argument("target", type=Path, help="the folder to make")
    arguments = parser.parse_args()
    try:
        convert(arguments.source, arguments.target)
    except (ValueError, KeyError, OSError) as error:
        raise SystemExit(f"error: {error}") from error
    print(f"written into {arguments.target}; train with --model.name ./{arguments.target}")


if __name__ == "__main__":
    main()
