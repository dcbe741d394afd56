"""An ONNX graph -> the same graph with linear layers that compute with 8-bit numbers.

In 8 bits, the input of a layer has one scale for a whole batch. In a trained encoder a few neurons are up to
a hundred times the others, and 8 bits then leave nothing of these. Two exact changes of the fp32 graph
prevent that: the outlier neurons of a feed-forward layer are computed beside it in fp32, and the outlier
channels of any other layer's input are divided, with its weights multiplied by as much. The default model
needs both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..prediction.onnx_runtime import cuts_off_sums
from .faster_graph import LAYER_NORMS
from .graph import quiet

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OUTLIERS = "outliers/"  # the names of what is added begin so
LAYERS = ["MatMul", "Attention"]  # the linear layers; attention is one operator with the three before it
NUM_OUTLIERS = 16  # neurons of a feed-forward layer; half as many channels of another layer's input


def quantise(graph: Path, batches: list[dict[str, np.ndarray]], num_outliers: int = NUM_OUTLIERS) -> None:
    """Quantise the graph in a file, in its place.

    Outliers are those with the largest values in `batches`, inputs of the graph by name, arrays (num_rows,
    length). Weights have one scale for each output channel; where this CPU cuts off large sums of 8-bit
    products they have 7 bits, whose sums fit.
    """
    import onnx
    from onnx import numpy_helper
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(graph))
    for number, node in enumerate(model.graph.node):
        if not node.name:
            node.name = f"{node.op_type}_{number}"
    weights = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    layers = [node for node in model.graph.node if is_linear_layer(node, weights)]
    peaks = largest_values(model, layers, batches, graph.with_suffix(".probe.onnx"))
    makers = {name: node for node in model.graph.node for name in node.output}
    for layer in layers:
        layer_peaks = peaks[layer.input[0]]
        if num_outliers >= len(layer_peaks):
            continue
        activation = makers.get(layer.input[0])
        if is_feed_forward(activation, makers, weights):
            compute_outliers_apart(model, weights, layer, activation, makers, layer_peaks, num_outliers)
        else:
            divide_outliers(model, weights, layer, layer_peaks, num_outliers // 2)
    replace_weights(model, weights)
    onnx.save(model, str(graph))
    exact = [node.name for node in model.graph.node if node.name.startswith((OUTLIERS, LAYER_NORMS))]
    with quiet():
        quantize_dynamic(
            graph,
            graph,
            LAYERS,
            per_channel=True,
            reduce_range=cuts_off_sums(),
            weight_type=QuantType.QInt8,
            nodes_to_exclude=exact,
            # The quantiser does not know the types behind fused operators
            extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
        )


def is_linear_layer(node: NodeProto, weights: dict[str, np.ndarray]) -> bool:
    if node.name.startswith(LAYER_NORMS):
        return False
    return node.op_type in LAYERS and node.input[1] in weights


def largest_values(
    model: ModelProto, layers: list[NodeProto], batches: list[dict[str, np.ndarray]], path: Path
) -> dict[str, np.ndarray]:
    """Return the largest absolute value of each channel, (width,), of what the layers read, by its name. At
    `path` a graph is written and removed again."""
    import onnx
    import onnxruntime

    names = list(dict.fromkeys(layer.input[0] for layer in layers))
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    for name in names:
        output = onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)
        probe.graph.output.append(output)
    onnx.save(probe, str(path))
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    path.unlink()
    peaks = dict.fromkeys(names, 0.0)
    for batch in batches:
        for name, values in zip(names, session.run(names, batch), strict=True):
            channels = np.abs(values).reshape(-1, values.shape[-1])
            peaks[name] = np.maximum(peaks[name], channels.max(axis=0))
    return peaks


def is_feed_forward(
    activation: NodeProto | None, makers: dict[str, NodeProto], weights: dict[str, np.ndarray]
) -> bool:
    """Return whether what a layer reads is made by a linear layer and its activation: neurons."""
    if activation is None or activation.op_type != "BiasGelu":
        return False
    first_layer = makers[activation.input[0]]
    return first_layer.input[1] in weights and activation.input[1] in weights


def divide_outliers(
    model: ModelProto, weights: dict[str, np.ndarray], layer: NodeProto, peaks: np.ndarray, count: int
) -> None:
    """Divide the `count` channels with the largest values of a layer's input, to the size of the next, and
    multiply their weights by as much."""
    from onnx import helper

    name = f"{OUTLIERS}{layer.name}"
    next_peak = np.sort(peaks)[-count - 1]
    factor = np.maximum(1, peaks / max(next_peak, 1e-6)).astype(np.float32)
    weights[f"{name}/weight"] = weights[layer.input[1]] * factor[:, None]
    weights[f"{name}/factor"] = 1 / factor
    divided = helper.make_node("Mul", [layer.input[0], f"{name}/factor"], [f"{name}/input"], name=name)
    index = list(model.graph.node).index(layer)
    layer.input[0] = f"{name}/input"
    layer.input[1] = f"{name}/weight"
    model.graph.node.insert(index, divided)


def compute_outliers_apart(
    model: ModelProto,
    weights: dict[str, np.ndarray],
    layer: NodeProto,
    activation: NodeProto,
    makers: dict[str, NodeProto],
    peaks: np.ndarray,
    count: int,
) -> None:
    """Compute the `count` neurons with the largest values beside a feed-forward layer, in fp32: its first
    layer, its activation, and `layer`, its second."""
    from onnx import helper

    name = f"{OUTLIERS}{layer.name}"
    index = list(model.graph.node).index(layer)
    first_layer = makers[activation.input[0]]
    largest_first = np.argsort(-peaks, kind="stable")
    outliers = np.sort(largest_first[:count])
    others = np.sort(largest_first[count:])
    for part, node, axis in (("first", first_layer, 1), ("bias", activation, 0), ("second", layer, 0)):
        array = weights[node.input[1]]
        weights[f"{name}/{part}"] = array.take(outliers, axis)
        weights[f"{name}/{part}/rest"] = array.take(others, axis)
        node.input[1] = f"{name}/{part}/rest"

    def made_node(op_type: str, inputs: list[str], output: str, domain: str = "") -> NodeProto:
        return helper.make_node(op_type, inputs, [output], name=f"{OUTLIERS}{output}", domain=domain)

    neurons = made_node("MatMul", [first_layer.input[0], f"{name}/first"], f"{name}/neurons")
    active = made_node("BiasGelu", [f"{name}/neurons", f"{name}/bias"], f"{name}/active", "com.microsoft")
    product = made_node("MatMul", [f"{name}/active", f"{name}/second"], f"{name}/sum")
    total = made_node("Add", [f"{name}/sum_of_rest", f"{name}/sum"], layer.output[0])
    layer.output[0] = f"{name}/sum_of_rest"
    for node in (total, product, active, neurons):
        # Each stands before the one inserted before it
        model.graph.node.insert(index + 1, node)


def replace_weights(model: ModelProto, weights: dict[str, np.ndarray]) -> None:
    """Let a graph have those of `weights` that its nodes read."""
    from onnx import numpy_helper

    read = {name for node in model.graph.node for name in node.input}
    del model.graph.initializer[:]
    for name, array in weights.items():
        if name in read:
            model.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
