"""Exported graphs compute first tokens only after the last attention, and layer norms by plain operators; and
outlier channels do not spoil the others: python -m pytest tests/export/test_graph.py"""

import shutil

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from transformers import AutoModelForSequenceClassification

from app.export import graph as graphs
from app.export.graph import FIRST_TOKENS, quantise, write_graph
from tests import saved_classifier

WIDTH, NEURONS = 16, 64


def run(path, rows):
    return InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]


@pytest.mark.parametrize("architecture", ["bert", "roberta", "electra"])
def test_only_first_tokens_leave_the_last_attention(tmp_path, monkeypatch, architecture):
    sizes = saved_classifier.SIZES["bert"] | {"max_position_embeddings": 64}
    monkeypatch.setitem(saved_classifier.SIZES, architecture, saved_classifier.SIZES.get(architecture, sizes))
    folder = saved_classifier.save_checkpoint(tmp_path / "model", architecture)
    write_graph(AutoModelForSequenceClassification.from_pretrained(folder), tmp_path / "model.onnx")
    nodes = onnx.load(tmp_path / "model.onnx").graph.node
    last = [node for node in nodes if node.op_type == "Attention"][-1]
    chosen = [node.input[0] for node in nodes if node.name.startswith(FIRST_TOKENS)]
    # What attention gives, and what is added to it
    assert len(chosen) == 2
    assert last.output[0] in chosen
    assert "SkipLayerNormalization" not in {node.op_type for node in nodes}


def test_outliers_are_computed_apart(tmp_path, monkeypatch):
    """Of a feed-forward layer whose input has one channel, and which has two neurons, far larger than
    the others, and that matter little."""
    generator, path = np.random.default_rng(0), tmp_path / "graph.onnx"
    arrays = {
        "first": generator.normal(size=(WIDTH, NEURONS)) / 4,
        "bias": generator.normal(size=NEURONS),
        "second": generator.normal(size=(NEURONS, WIDTH)) / 8,
    }
    arrays["first"][3] /= 100
    arrays["bias"][[5, 40]] = 500
    arrays["second"][[5, 40]] /= 1000
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("BiasGelu", ["a", "bias"], ["b"], domain="com.microsoft"),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy"]
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    rows = generator.normal(size=(64, WIDTH)).astype(np.float32)
    rows[:, 3] *= 100
    exact, errors = run(path, rows), {}
    for count in (0, 4):
        small = shutil.copy(path, tmp_path / "small.onnx")
        quantise(small, [{"x": rows[:32]}], count)
        errors[count] = np.square(run(small, rows) - exact).mean() / exact.var()
    assert errors[4] < 0.001 < 0.1 < errors[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.onnx", "small.onnx"]
    # Weights have 7 bits where sums are cut off
    monkeypatch.setattr(graphs, "cuts_off_sums", lambda: True)
    quantise(path, [{"x": rows}], 4)
    stored = map(numpy_helper.to_array, onnx.load(str(path)).graph.initializer)
    assert max(np.abs(array.astype(int)).max() for array in stored if array.dtype == np.int8) in (63, 64)
