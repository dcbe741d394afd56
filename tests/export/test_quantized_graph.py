"""Outlier channels do not spoil the others: python -m pytest tests/export/test_quantized_graph.py"""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from app.export import quantized_graph
from app.export.layer_norms import write_out_layer_norms
from app.export.quantized_graph import quantise

WIDTH, NEURONS = 16, 64


def write(path, nodes, arrays):
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", WIDTH]) for name in "xy"]
    stored = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    onnx.save(model, str(path))
    return model


def run(path, rows):
    return InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]


@pytest.fixture
def feed_forward(tmp_path):
    """A feed-forward layer whose input has one channel, and which has two neurons, that are far larger than
    the others, and matter little; and rows for it."""
    generator = np.random.default_rng(0)
    arrays = {
        "first": generator.normal(size=(WIDTH, NEURONS)).astype(np.float32) / 4,
        "bias": generator.normal(size=NEURONS).astype(np.float32),
        "second": generator.normal(size=(NEURONS, WIDTH)).astype(np.float32) / 8,
    }
    arrays["first"][3] /= 100
    arrays["bias"][[5, 40]] = 500
    arrays["second"][[5, 40]] /= 1000
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("BiasGelu", ["a", "bias"], ["b"], domain="com.microsoft"),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    write(tmp_path / "graph.onnx", nodes, arrays)
    rows = generator.normal(size=(64, WIDTH)).astype(np.float32)
    rows[:, 3] *= 100
    return tmp_path / "graph.onnx", rows


def test_outliers_are_computed_apart(feed_forward, tmp_path):
    path, rows = feed_forward
    exact, errors = run(path, rows), {}
    for count in (0, 4):
        assert quantise(path, tmp_path / "small.onnx", [{"x": rows[:32]}], count) == 2
        found = run(tmp_path / "small.onnx", rows)
        errors[count] = np.square(found - exact).mean() / exact.var()
    assert errors[4] < 0.001 < 0.1 < errors[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.onnx", "small.onnx"]


def test_weights_have_7_bits_where_sums_are_cut_off(feed_forward, tmp_path, monkeypatch):
    path, rows = feed_forward
    monkeypatch.setattr(quantized_graph, "cuts_off_sums", lambda: True)
    quantise(path, tmp_path / "small.onnx", [{"x": rows}], 4)
    stored = map(numpy_helper.to_array, onnx.load(str(tmp_path / "small.onnx")).graph.initializer)
    largest = [np.abs(array.astype(int)).max() for array in stored if array.dtype == np.int8]
    assert max(largest) in (63, 64)


def test_a_layer_norm_of_plain_operators_is_the_same(tmp_path):
    generator = np.random.default_rng(1)
    arrays = {name: generator.normal(size=WIDTH).astype(np.float32) for name in ("scale", "shift", "bias")}
    inputs = ["x", "x", "scale", "shift", "bias"]
    nodes = [helper.make_node("SkipLayerNormalization", inputs, ["y"], domain="com.microsoft", epsilon=1e-12)]
    model = write(tmp_path / "fused.onnx", nodes, arrays)
    rows = generator.normal(size=(8, WIDTH)).astype(np.float32)
    assert write_out_layer_norms(model) == 1
    onnx.save(model, str(tmp_path / "plain.onnx"))
    assert "SkipLayerNormalization" not in {node.op_type for node in model.graph.node}
    np.testing.assert_allclose(
        run(tmp_path / "plain.onnx", rows), run(tmp_path / "fused.onnx", rows), atol=2e-6
    )
