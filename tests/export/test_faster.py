"""Exported graphs compute first tokens only after the last attention, and plain layer norms."""

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
import numpy as np
import onnx
from onnx import helper
from transformers import AutoModelForSequenceClassification

from app.export.faster import FIRST_TOKENS as PREFIX
from app.export.faster import write_out_layer_norms
from app.export.graph import write_graph
from tests import saved_classifier
from tests.export.test_quantise import WIDTH, run, write
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


def test_a_layer_norm_of_plain_operators_is_the_same(tmp_path):
    generator = np.random.default_rng(1)
    arrays = {name: generator.normal(size=WIDTH).astype(np.float32) for name in ("scale", "shift", "bias")}
    inputs = ["x", "x", "scale", "shift", "bias"]
    nodes = [helper.make_node("SkipLayerNormalization", inputs, ["y"], domain="com.microsoft", epsilon=1e-12)]
    model = write(tmp_path / "fused.onnx", nodes, arrays)
    rows = generator.normal(size=(8, WIDTH)).astype(np.float32)
    write_out_layer_norms(model)
    onnx.save(model, str(tmp_path / "plain.onnx"))
    assert "SkipLayerNormalization" not in {node.op_type for node in model.graph.node}
    np.testing.assert_allclose(
        run(tmp_path / "plain.onnx", rows), run(tmp_path / "fused.onnx", rows), atol=2e-6
    )
