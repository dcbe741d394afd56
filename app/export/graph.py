"""transformers' model for sequence classification -> an ONNX graph for ONNX Runtime on the CPU."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from inspect import signature
from pathlib import Path

import torch

from ..errors import InputError
from .faster_graph import keep_first_tokens, write_out_layer_norms

OPSET = 17  # the version of ONNX' operators


def write_graph(model: torch.nn.Module, path: Path) -> list[str]:
    """Write the graph of a freshly loaded model, (batch, length) of any size, attention and GELU as single
    operators; return its inputs' names. Raises InputError where it cannot be exported."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    config = model.config
    # Traced on rows of two lengths, without a cache, with the attention whose pattern the optimizer knows
    config.use_cache = False
    model.set_attn_implementation("eager")
    inputs = example_inputs(model)
    plain = path.with_suffix(".plain.onnx")
    with quiet():
        trace(model, inputs, plain)
        options = FusionOptions("bert")
        # The fused operator would leave ERNIE's embedding of the task out.
        options.enable_embed_layer_norm = not getattr(config, "use_task_id", False)
        optimized = optimize_model(
            str(plain),
            "bert",
            num_heads=getattr(config, "num_attention_heads", 0),
            hidden_size=getattr(config, "hidden_size", 0),
            opt_level=0,
            optimization_options=options,
        )
        optimized.topological_sort()
        keep_first_tokens(optimized.model)
        write_out_layer_norms(optimized.model)
        optimized.save_model_to_file(str(path))
    plain.unlink()
    return list(inputs)


def example_inputs(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the inputs that a model takes, by name, for two rows of 8 and 5 tokens, (2, 8) int64."""
    inputs = {
        "input_ids": torch.ones((2, 8), dtype=torch.long),
        "attention_mask": torch.tensor([[1] * 8, [1] * 5 + [0] * 3]),
    }
    has_types_input = "token_type_ids" in signature(model.forward).parameters
    if has_types_input and getattr(model.config, "type_vocab_size", 2) > 1:
        inputs["token_type_ids"] = torch.zeros((2, 8), dtype=torch.long)
    return inputs


def trace(model: torch.nn.Module, inputs: dict[str, torch.Tensor], path: Path) -> None:
    """Write the graph that torch traces on example inputs."""
    dynamic_axes = {"logits": {0: "batch"}}
    for name in inputs:
        dynamic_axes[name] = {0: "batch", 1: "length"}
    try:
        torch.onnx.export(
            model.eval(),
            f=str(path),
            kwargs=inputs | {"return_dict": False},
            input_names=list(inputs),
            output_names=["logits"],
            opset_version=OPSET,
            dynamic_axes=dynamic_axes,
            dynamo=False,  # the other exporter's graphs are not yet known to ONNX Runtime's optimizer
        )
    except (RuntimeError, ValueError, TypeError, torch.onnx.errors.OnnxExporterError) as error:
        raise InputError(
            f"a {model.config.model_type} model cannot be exported: {error}; use a BERT-like encoder"
        ) from error


@contextmanager
def quiet() -> Iterator[None]:
    """Hide warnings and log lines of tracing, optimizing and quantising; the proof checks the graph."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(previous)
