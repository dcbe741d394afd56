"""A fused ONNX graph in fp32 -> the same graph whose linear layers compute with 8-bit numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..prediction.cpu_check import cuts_off_sums
from .onnx_graph import quiet

# The linear layers; attention is one operator with the three before it
DYNAMIC = ["MatMul", "Attention"]
# ONNX Runtime has no operator for attention with fixed scales; it stays dynamic
STATIC = ["MatMul"]
PROBE_BATCHES = 4


class Quantizer:
    """Quantises one graph, with each time more layers that stay in fp32.

    Weights get one scale for each output channel. The inputs of layers are quantised while the graph runs,
    or, where `is_static`, with scales fixed by the largest values seen in `batches`: inputs of the graph by
    name, arrays (num_rows, length). Where this CPU cuts off large sums of 8-bit products, weights have 7
    bits, whose sums fit.
    """

    def __init__(self, graph: Path, batches: list[dict[str, np.ndarray]], is_static: bool) -> None:
        import onnx

        self.graph = graph
        self.batches = batches
        self.is_static = is_static
        self.has_7_bits = cuts_off_sums()
        model = onnx.load(str(graph))
        self.weights = {entry.name: entry for entry in model.graph.initializer}
        self.layers = [
            node for node in model.graph.node if node.op_type in DYNAMIC and node.input[1] in self.weights
        ]
        for number, node in enumerate(model.graph.node):
            node.name = node.name or f"{node.op_type}_{number}"
        onnx.save(model, str(graph))
        self._ordered: list[str] = []

    def write(self, path: Path, num_fp32: int) -> list[str]:
        """Write the quantised graph; return the names of the `num_fp32` layers that stay in fp32, the worst
        first."""
        from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

        kept = self.worst_first()[:num_fp32] if num_fp32 else []
        import onnx

        known = {
            "DefaultTensorType": onnx.TensorProto.FLOAT
        }  # the quantiser does not know the types behind fused operators
        settings = {"per_channel": True, "weight_type": QuantType.QInt8, "nodes_to_exclude": kept}
        settings["reduce_range"] = self.has_7_bits
        with quiet():
            if not self.is_static:
                quantize_dynamic(self.graph, path, DYNAMIC, extra_options=known, **settings)
                return kept
            between = path.with_suffix(".static.onnx")
            quantize_static(
                self.graph,
                between,
                _Reader(self.batches),
                QuantFormat.QDQ,
                STATIC,
                activation_type=QuantType.QUInt8,
                extra_options=known,
                **settings,
            )
            quantize_dynamic(between, path, ["Attention"], extra_options=known, **settings)
            between.unlink()
        return kept

    def worst_first(self) -> list[str]:
        """Return the names of the layers, those whose outputs quantising changes most, for their size,
        first."""
        if not self._ordered:
            losses = self._losses()
            self._ordered = sorted(losses, key=lambda name: -losses[name])
        return self._ordered

    def _losses(self) -> dict[str, float]:
        """Return, for each layer by name, the squared error of its quantised product as a share of the
        product's square."""
        import onnx
        import onnxruntime
        from onnx import numpy_helper

        model = onnx.load(str(self.graph))
        inputs = list(dict.fromkeys(layer.input[0] for layer in self.layers))
        del model.graph.output[:]
        model.graph.output.extend(
            onnx.helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, None) for n in inputs
        )
        probe = self.graph.with_suffix(".probe.onnx")
        try:
            onnx.save(model, str(probe))
            session = onnxruntime.InferenceSession(str(probe), providers=["CPUExecutionProvider"])
            runs = [session.run(inputs, batch) for batch in self.batches[:PROBE_BATCHES]]
        finally:
            probe.unlink(missing_ok=True)
        seen = {name: [run[place] for run in runs] for place, name in enumerate(inputs)}
        weights = {layer.name: numpy_helper.to_array(self.weights[layer.input[1]]) for layer in self.layers}
        largest = 63 if self.has_7_bits else 127
        return {
            layer.name: _loss(seen[layer.input[0]], weights[layer.name], largest) for layer in self.layers
        }


def _loss(batches: list[np.ndarray], weight: np.ndarray, largest: int) -> float:
    """Return how far a quantised product is from the product: the sum of squared errors by the sum of
    squares.

    `largest` is the integer of a column's largest weight.
    """
    scales = np.maximum(np.abs(weight).max(axis=0), 1e-30) / largest
    rounded_weight = np.round(weight / scales) * scales
    error = size = 0.0
    for values in batches:
        flat = values.reshape(-1, values.shape[-1])
        scale = max(float(flat.max(initial=0) - flat.min(initial=0)), 1e-30) / 255
        exact = flat @ weight
        error += float(np.square(np.round(flat / scale) * scale @ rounded_weight - exact).sum())
        size += float(np.square(exact).sum())
    return error / max(size, 1e-30)


class _Reader:
    """What ONNX Runtime's calibration asks for: one batch at a time, then None."""

    def __init__(self, batches: list[dict[str, np.ndarray]]) -> None:
        self.left = iter(batches)

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self.left, None)
