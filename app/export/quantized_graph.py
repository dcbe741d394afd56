"""A fused ONNX graph in fp32 -> the same graph whose linear layers compute with 8-bit numbers.

The input of a layer has one scale for a whole batch. In a trained encoder a few channels are up to a hundred
times the others, and 8 bits then leave nothing of these. Two exact changes of the fp32 graph prevent that:
the outlier neurons of a feed-forward layer are computed beside it in fp32, and the outlier channels of any
other layer's input are divided, with its weights multiplied by as much.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..prediction.onnx_runtime import cuts_off_sums
from .layer_norms import PREFIX as LAYER_NORMS
from .onnx_graph import quiet

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# The linear layers; attention is one operator with the three before it
LAYERS = ["MatMul", "Attention"]
# What stays in fp32
OUTLIERS = "outliers/"


def quantise(graph: Path, output: Path, batches: list[dict[str, np.ndarray]], num_outliers: int) -> int:
    """Write a quantised graph; return the number of its layers.

    `num_outliers` neurons of each feed-forward layer stay in fp32: those with the largest values in
    `batches`, inputs of the graph by name, arrays (num_rows, length). Weights have one scale for each output
    channel; where this CPU cuts off large sums of 8-bit products they have 7 bits, whose sums fit.
    """
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    editor = _Editor(onnx.load(str(graph)), graph.with_suffix(".probe.onnx"), batches)
    for layer in editor.layers:
        editor.divide_outliers(layer, num_outliers // 2)
    for layer in editor.layers:
        editor.split_neurons(layer, num_outliers)
    editor.drop_unused()
    changed = graph.with_suffix(".changed.onnx")
    onnx.save(editor.model, str(changed))
    names = [node.name for node in editor.model.graph.node]
    with quiet():
        quantize_dynamic(
            changed,
            output,
            LAYERS,
            per_channel=True,
            reduce_range=cuts_off_sums(),
            weight_type=QuantType.QInt8,
            nodes_to_exclude=[name for name in names if name.startswith((OUTLIERS, LAYER_NORMS))],
            # The quantiser does not know the types behind fused operators
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )
    changed.unlink()
    return len(editor.layers)


class _Editor:
    """Changes the linear layers of one graph."""

    def __init__(self, model: ModelProto, probe: Path, batches: list[dict[str, np.ndarray]]) -> None:
        self.model = model
        self.weights = {entry.name: entry for entry in model.graph.initializer}
        self.makers = {name: node for node in model.graph.node for name in node.output}
        for number, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        self.layers = [
            node
            for node in model.graph.node
            if node.op_type in LAYERS
            and not node.name.startswith(LAYER_NORMS)
            and node.input[1] in self.weights
        ]
        self.neurons = {layer.name: self._feed_forward(layer) for layer in self.layers}
        self.peaks = self._peaks(probe, batches)

    def _feed_forward(self, layer: NodeProto) -> tuple[NodeProto, NodeProto] | None:
        """Return what makes the neurons that a layer reads, a linear layer and its activation, or None."""
        activation = self.makers.get(layer.input[0])
        if activation is None or activation.op_type != "BiasGelu":
            return None
        first = self.makers.get(activation.input[0])
        is_known = first in self.layers and activation.input[1] in self.weights
        return (first, activation) if is_known else None

    def _peaks(self, probe: Path, batches: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Return the largest absolute value of each channel, (width,), for each input of a layer."""
        import onnx
        import onnxruntime

        names = list(dict.fromkeys(layer.input[0] for layer in self.layers))
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        del model.graph.output[:]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names
        )
        try:
            onnx.save(model, str(probe))
            session = onnxruntime.InferenceSession(str(probe), providers=["CPUExecutionProvider"])
            peaks: dict[str, np.ndarray] = {}
            for batch in batches:
                for name, values in zip(names, session.run(names, batch), strict=True):
                    peak = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
                    peaks[name] = np.maximum(peaks.get(name, 0), peak)
            return peaks
        finally:
            probe.unlink(missing_ok=True)

    def divide_outliers(self, layer: NodeProto, count: int) -> None:
        """Divide the `count` channels of a layer's input that are largest, to the size of the next, and
        multiply their weights by as much; nothing where `split_neurons` does better."""
        peaks = self.peaks[layer.input[0]]
        if self.neurons[layer.name] or count >= len(peaks):
            return
        factor = np.maximum(1, peaks / max(np.sort(peaks)[-count - 1], 1e-6)).astype(np.float32)
        name = f"{OUTLIERS}{layer.name}/divided"
        layer.input[1] = self._add(f"{name}/weight", self._array(layer.input[1]) * factor[:, None])
        self._add(f"{name}/factor", 1 / factor)
        self._insert(layer, "Mul", [layer.input[0], f"{name}/factor"], name)
        layer.input[0] = name

    def split_neurons(self, layer: NodeProto, count: int) -> None:
        """Compute the `count` neurons with the largest values beside a feed-forward layer, in fp32."""
        peaks = self.peaks.get(layer.input[0])
        if self.neurons[layer.name] is None or count >= len(peaks):
            return
        first, activation = self.neurons[layer.name]
        order = np.argsort(-peaks, kind="stable")
        outliers, rest = np.sort(order[:count]), np.sort(order[count:])
        name, read = f"{OUTLIERS}{layer.name}", first.input[0]
        parts = {"first": (first, 1), "bias": (activation, 0), "second": (layer, 0)}
        for part, (node, axis) in parts.items():
            array = self._array(node.input[1])
            self._add(f"{name}/{part}/outliers", array.take(outliers, axis))
            node.input[1] = self._add(f"{name}/{part}/rest", array.take(rest, axis))
        self._insert(layer, "MatMul", [read, f"{name}/first/outliers"], f"{name}/first")
        self._insert(
            layer, "BiasGelu", [f"{name}/first", f"{name}/bias/outliers"], f"{name}/bias", "com.microsoft"
        )
        self._insert(layer, "MatMul", [f"{name}/bias", f"{name}/second/outliers"], f"{name}/second")
        output, layer.output[0] = layer.output[0], f"{name}/rest"
        self._insert(layer, "Add", [f"{name}/rest", f"{name}/second"], output, after=True)

    def _array(self, name: str) -> np.ndarray:
        from onnx import numpy_helper

        return numpy_helper.to_array(self.weights[name])

    def _add(self, name: str, array: np.ndarray) -> str:
        """Add a constant; return its name."""
        from onnx import numpy_helper

        self.weights[name] = numpy_helper.from_array(np.ascontiguousarray(array), name)
        return name

    def drop_unused(self) -> None:
        """Leave only the constants in the graph that are read."""
        read = {name for node in self.model.graph.node for name in node.input}
        del self.model.graph.initializer[:]
        self.model.graph.initializer.extend(self.weights[name] for name in self.weights if name in read)

    def _insert(
        self,
        layer: NodeProto,
        kind: str,
        inputs: list[str],
        output: str,
        domain: str = "",
        after: bool = False,
    ) -> None:
        """Insert an operator before a layer, or after it."""
        from onnx import helper

        nodes = self.model.graph.node
        node = helper.make_node(kind, inputs, [output], name=f"{OUTLIERS}{output}", domain=domain)
        nodes.insert([one.name for one in nodes].index(layer.name) + after, node)
