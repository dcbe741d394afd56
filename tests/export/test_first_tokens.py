"""After the last attention an exported graph computes first tokens only, where its head reads no others."""

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
import onnx
from transformers import AutoModelForSequenceClassification

from app.export.first_tokens import PREFIX
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
