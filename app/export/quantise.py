"""A fused ONNX graph in fp32 -> the same graph whose linear layers compute with 8-bit numbers.

The input of a layer has one scale for a whole batch. In a trained encoder a few neurons are up to a hundred
times the others, and 8 bits then leave nothing of these. Two exact changes of the fp32 graph prevent that:
the outlier neurons of a feed-forward layer are computed beside it in fp32, and the outlier channels of any
other layer's input are divided, with its weights multiplied by as much. The default model needs both.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..prediction.onnx_runtime import cuts_off_sums
from .graph import LAYER_NORMS, quiet

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

NUM_OUTLIERS = 16  # neurons of a feed-forward layer; half as many channels of another layer's input
LAYERS = ["MatMul", "Attention"]  # the linear layers; attention is one operator with the three before it
OUTLIERS = "outliers/"


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
        node.name = node.name or f"{node.op_type}_{number}"
    weights = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    plain = [node for node in model.graph.node if not node.name.startswith(LAYER_NORMS)]
    layers = [node for node in plain if node.op_type in LAYERS and node.input[1] in weights]
    peaks = _peaks(model, list({layer.input[0] for layer in layers}), graph, batches)
    makers = {name: node for node in model.graph.node for name in node.output}
    for layer in layers:
        if num_outliers < len(peaks[layer.input[0]]):
            _spare_outliers(model, weights, layer, makers, peaks[layer.input[0]], num_outliers)
    read = {name for node in model.graph.node for name in node.input}
    del model.graph.initializer[:]
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in weights.items()
        if name in read
    )
    onnx.save(model, str(graph))
    exact = [node.name for node in model.graph.node if node.name.startswith((OUTLIERS, LAYER_NORMS))]
    # The quantiser does not know the types behind fused operators.
    types = {"DefaultTensorType": onnx.TensorProto.FLOAT}
    with quiet():
        quantize_dynamic(
            graph,
            graph,
            LAYERS,
            per_channel=True,
            reduce_range=cuts_off_sums(),
            weight_type=QuantType.QInt8,
            nodes_to_exclude=exact,
            extra_options=types,
        )


def _peaks(model: ModelProto, names: list[str], graph: Path, batches: list[dict]) -> dict[str, np.ndarray]:
    """Return the largest absolute value of each channel, (width,), of the outputs `names` of operators."""
    import onnx
    import onnxruntime

    probed, probe = onnx.ModelProto(), graph.with_suffix(".probe.onnx")
    probed.CopyFrom(model)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names]
    del probed.graph.output[:]
    probed.graph.output.extend(ends)
    onnx.save(probed, str(probe))
    session = onnxruntime.InferenceSession(str(probe), providers=["CPUExecutionProvider"])
    probe.unlink()
    peaks = dict.fromkeys(names, 0.0)
    for batch in batches:
        for name, values in zip(names, session.run(names, batch), strict=True):
            largest = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            peaks[name] = np.maximum(peaks[name], largest)
    return peaks


def _spare_outliers(
    model: ModelProto,
    weights: dict[str, np.ndarray],
    layer: NodeProto,
    makers: dict[str, NodeProto],
    peaks: np.ndarray,
    count: int,
) -> None:
    """Compute the `count` neurons with the largest values beside a feed-forward layer, in fp32. Of another
    layer's input, divide half as many of the largest channels, to the size of the next, and multiply their
    weights by as much."""
    from onnx import helper

    name, nodes = f"{OUTLIERS}{layer.name}", model.graph.node
    place = list(nodes).index(layer)
    # A linear layer and its activation make the neurons that a feed-forward layer reads.
    activation = makers.get(layer.input[0])
    first = makers[activation.input[0]] if activation and activation.op_type == "BiasGelu" else None
    if not first or not {first.input[1], activation.input[1]} <= weights.keys():
        factor = np.maximum(1, peaks / max(np.sort(peaks)[-(count // 2) - 1], 1e-6)).astype(np.float32)
        weights |= {f"{name}/weight": weights[layer.input[1]] * factor[:, None], f"{name}/factor": 1 / factor}
        divided = helper.make_node("Mul", [layer.input[0], f"{name}/factor"], [f"{name}/input"], name=name)
        layer.input[0], layer.input[1] = f"{name}/input", f"{name}/weight"
        nodes.insert(place, divided)
        return
    order, read, output = np.argsort(-peaks, kind="stable"), first.input[0], layer.output[0]
    for part, node, axis in (("first", first, 1), ("bias", activation, 0), ("second", layer, 0)):
        array = weights[node.input[1]]
        weights[f"{name}/{part}"] = array.take(np.sort(order[:count]), axis)
        node.input[1] = f"{name}/{part}/rest"
        weights[node.input[1]] = array.take(np.sort(order[count:]), axis)
    layer.output[0] = f"{name}/sum_of_rest"
    for kind, inputs, made, domain in (
        ("Add", [f"{name}/sum_of_rest", f"{name}/sum"], output, ""),
        ("MatMul", [f"{name}/active", f"{name}/second"], f"{name}/sum", ""),
        ("BiasGelu", [f"{name}/neurons", f"{name}/bias"], f"{name}/active", "com.microsoft"),
        ("MatMul", [read, f"{name}/first"], f"{name}/neurons", ""),
    ):
        node = helper.make_node(kind, inputs, [made], name=f"{OUTLIERS}{made}", domain=domain)
        nodes.insert(place + 1, node)
