"""After the last attention an exported graph computes first tokens only, where its head reads no others."""

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
import onnx
import onnxruntime
from transformers import AutoModelForSequenceClassification

from app.export.first_tokens import PREFIX, keep_first_tokens
from app.export.onnx_graph import write_graph
from tests import saved_classifier
from tests.saved_classifier import save_checkpoint


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra"])
def test_only_first_tokens_leave_the_last_attention(tmp_path, monkeypatch, architecture):
    sizes = saved_classifier.SIZES["bert"] | {"max_position_embeddings": 64}
    monkeypatch.setitem(saved_classifier.SIZES, architecture, saved_classifier.SIZES.get(architecture, sizes))
    model = AutoModelForSequenceClassification.from_pretrained(
        save_checkpoint(tmp_path / "model", architecture)
    )
    write_graph(model, tmp_path / "model.onnx")
    graph = onnx.load(tmp_path / "model.onnx").graph
    kinds = [node.op_type for node in graph.node]
    last = len(kinds) - 1 - kinds[::-1].index("Attention")
    assert (
        sum(node.name.startswith(PREFIX) for node in graph.node) == 2
    )  # what attention gives, and what is added to it
    assert graph.node[last].output[0] in [
        node.input[0] for node in graph.node if node.name.startswith(PREFIX)
    ]


def save(path: Path, nodes: list, outputs: list[str]) -> onnx.ModelProto:
    """Return a model of `nodes` over states (batch, length, 4), with a weight (4, 4), a norm and the place of
    the first token."""
    values = {
        "weight": np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32),
        "scale": np.ones(4, np.float32),
        "first": np.array(0),
    }
    states = onnx.helper.make_tensor_value_info("states", onnx.TensorProto.FLOAT, ["batch", "length", 4])
    found = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in outputs]
    constants = [onnx.numpy_helper.from_array(value, name) for name, value in values.items()]
    graph = onnx.helper.make_graph(nodes, "graph", [states], found, constants)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return model


def node(kind: str, inputs: list[str], output: str, **attributes) -> onnx.NodeProto:
    return onnx.helper.make_node(kind, inputs, [output], **attributes)


NORM = node("LayerNormalization", ["states", "scale"], "normed")
PRODUCT = node("MatMul", ["normed", "weight"], "product")
HEAD = node("Gather", ["product", "first"], "head", axis=1)
CASES = {
    "all by token": ([NORM, PRODUCT, HEAD], ["head"], 2),
    "another token": ([NORM, PRODUCT, node("Gather", ["product", "first"], "head", axis=0)], ["head"], 0),
    "all tokens are an output": ([NORM, PRODUCT, HEAD], ["head", "product"], 0),
    "all tokens are read further down": (
        [NORM, PRODUCT, HEAD, node("ReduceMean", ["normed"], "mean", axes=[1])],
        ["head", "mean"],
        1,
    ),
    "a product of two tensors": ([NORM, node("MatMul", ["normed", "states"], "product"), HEAD], ["head"], 0),
}


@pytest.mark.parametrize(("nodes", "outputs", "count"), CASES.values(), ids=CASES)
def test_what_is_read_whole_stays_whole(tmp_path, nodes, outputs, count):
    model = save(
        tmp_path / "whole.onnx",
        [onnx.NodeProto.FromString(each.SerializeToString()) for each in nodes],
        outputs,
    )
    assert keep_first_tokens(model) == count
    onnx.save(model, tmp_path / "first.onnx")
    states = {"states": np.random.default_rng(2).normal(size=(4, 4, 4)).astype(np.float32)}
    whole, first = (
        onnxruntime.InferenceSession(tmp_path / name).run(None, states)
        for name in ("whole.onnx", "first.onnx")
    )
    for before, after in zip(whole, first, strict=True):
        np.testing.assert_allclose(after, before, rtol=1e-6, atol=1e-6)
