"""transformers' model for sequence classification -> an ONNX graph for ONNX Runtime on the CPU."""

import logging
import warnings
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import torch
from torch import nn

from ..errors import InputError
from .faster import keep_first_tokens, write_out_layer_norms

OPSET = 17  # the version of ONNX' operators


class Logits(nn.Module):
    """A model whose inputs are given by position, and which returns its logits alone."""

    def __init__(self, model: nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True))).logits


def write_graph(model: nn.Module, path: Path) -> list[str]:
    """Write the graph of a freshly loaded model, (batch, length) of any size, attention and GELU as single
    operators; return its inputs' names. Raises InputError without onnx, or where it cannot be exported."""
    try:
        import onnx  # noqa: F401
        from onnxruntime.transformers.fusion_options import FusionOptions
        from onnxruntime.transformers.optimizer import optimize_model
    except ImportError as error:
        raise InputError(
            f"export needs onnx and ONNX Runtime ({error}); install them: pip install -r "
            "requirements/onnx.txt -c constraints.txt"
        ) from error
    config, known = model.config, signature(model.forward).parameters
    takes_types = getattr(config, "type_vocab_size", 2) > 1
    options = FusionOptions("bert")
    # The fused operator would leave ERNIE's embedding of the task out.
    options.enable_embed_layer_norm = not getattr(config, "use_task_id", False)
    heads, width = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
    # Traced on rows of two lengths, with the attention whose pattern the optimizer knows
    model.set_attn_implementation("eager")
    rows = {
        "input_ids": torch.full((2, 8), 1),
        "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3]),
        "token_type_ids": torch.zeros((2, 8), dtype=torch.long),
    }
    names = [name for name in rows if name in known and (name != "token_type_ids" or takes_types)]
    plain = path.with_suffix(".plain.onnx")
    with quiet():
        try:
            torch.onnx.export(
                Logits(model, names).eval(),
                tuple(rows[name] for name in names),
                str(plain),
                input_names=names,
                output_names=["logits"],
                opset_version=OPSET,
                dynamic_axes=dict.fromkeys(names, {0: "batch", 1: "length"}) | {"logits": {0: "batch"}},
                dynamo=False,  # the other exporter's graphs are not yet known to ONNX Runtime's optimizer
            )
        except (RuntimeError, ValueError, TypeError, torch.onnx.errors.OnnxExporterError) as error:
            raise InputError(
                f"a {config.model_type} model cannot be exported: {error}; use a BERT-like encoder"
            ) from error
        optimized = optimize_model(
            str(plain), "bert", heads, width, optimization_options=options, opt_level=0
        )
        optimized.topological_sort()
        keep_first_tokens(optimized.model)
        write_out_layer_norms(optimized.model)
        optimized.save_model_to_file(str(path))
    plain.unlink()
    return names


def move_weights(graph: Path, weights: Path) -> None:
    """Move the weights of a graph's file to one beside it."""
    import onnx

    model = onnx.load(str(graph))
    weights.touch()  # it stays empty where all weights are smaller than what onnx moves
    onnx.save(model, str(graph), save_as_external_data=True, location=weights.name)


@contextmanager
def quiet():
    """Hide warnings and log lines of tracing, optimizing and quantising; the proof checks the graph."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(previous)
