"""Outlier channels do not spoil the others: python -m pytest tests/export/test_quantise.py"""

import shutil

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from app.export import quantise as quantising
from app.export.quantise import quantise

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
        small = shutil.copy(path, tmp_path / "small.onnx")
        quantise(small, [{"x": rows[:32]}], count)
        found = run(small, rows)
        errors[count] = np.square(found - exact).mean() / exact.var()
    assert errors[4] < 0.001 < 0.1 < errors[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.onnx", "small.onnx"]


def test_weights_have_7_bits_where_sums_are_cut_off(feed_forward, monkeypatch):
    path, rows = feed_forward
    monkeypatch.setattr(quantising, "cuts_off_sums", lambda: True)
    quantise(path, [{"x": rows}], 4)
    stored = map(numpy_helper.to_array, onnx.load(str(path)).graph.initializer)
    largest = [np.abs(array.astype(int)).max() for array in stored if array.dtype == np.int8]
    assert max(largest) in (63, 64)
