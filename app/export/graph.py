"""transformers' model for sequence classification -> an ONNX graph for ONNX Runtime on the CPU; and the same
graph with linear layers that compute with 8-bit numbers.

The graph has less to compute, in two exact ways. After the last attention only the first token of each row is
computed, where the head reads no other: 6 % of all products in 12 layers. And layer norms are plain products
with a vector of 1 / width, because ONNX Runtime 1.31 computes mean and variance in its operator one number at
a time. On the default model each is worth 5 to 7 % of the time in fp32; in int8 5 % and 15 % (one core, in
turns, 2026-11-26).

In 8 bits, the input of a layer has one scale for a whole batch. In a trained encoder a few neurons are up to
a hundred times the others, and 8 bits then leave nothing of these. Two exact changes of the fp32 graph
prevent that: the outlier neurons of a feed-forward layer are computed beside it in fp32, and the outlier
channels of any other layer's input are divided, with its weights multiplied by as much. The default model
needs both.
"""

from __future__ import annotations

import logging
import warnings
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ..errors import InputError
from ..prediction.onnx_runtime import cuts_off_sums

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

OPSET = 17  # the version of ONNX' operators
# Operators whose output for a token depends on these inputs at that token alone; the others must be weights.
BY_TOKEN = dict.fromkeys(("MatMul", "BiasGelu", "FastGelu", "Gelu", "LayerNormalization"), (0,))
BY_TOKEN |= {"SkipLayerNormalization": (0, 1)}
FIRST_TOKENS, LAYER_NORMS, OUTLIERS = "first_tokens/", "layer_norms/", "outliers/"
LAYERS = ["MatMul", "Attention"]  # the linear layers; attention is one operator with the three before it
NUM_OUTLIERS = 16  # neurons of a feed-forward layer; half as many channels of another layer's input


def write_graph(model: torch.nn.Module, path: Path) -> list[str]:
    """Write the graph of a freshly loaded model, (batch, length) of any size, attention and GELU as single
    operators; return its inputs' names. Raises InputError where it cannot be exported."""
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    config, known = model.config, signature(model.forward).parameters
    options = FusionOptions("bert")
    # The fused operator would leave ERNIE's embedding of the task out.
    options.enable_embed_layer_norm = not getattr(config, "use_task_id", False)
    # Traced on rows of two lengths, without a cache, with the attention whose pattern the optimizer knows
    config.use_cache = False
    model.set_attn_implementation("eager")
    rows = {"input_ids": torch.ones((2, 8), dtype=torch.long)}
    rows["attention_mask"] = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    if "token_type_ids" in known and getattr(config, "type_vocab_size", 2) > 1:
        rows["token_type_ids"] = torch.zeros((2, 8), dtype=torch.long)
    plain = path.with_suffix(".plain.onnx")
    with quiet():
        try:
            torch.onnx.export(
                model.eval(),
                f=str(plain),
                kwargs=rows | {"return_dict": False},
                input_names=[*rows],
                output_names=["logits"],
                opset_version=OPSET,
                dynamic_axes=dict.fromkeys(rows, {0: "batch", 1: "length"}) | {"logits": {0: "batch"}},
                dynamo=False,  # the other exporter's graphs are not yet known to ONNX Runtime's optimizer
            )
        except (RuntimeError, ValueError, TypeError, torch.onnx.errors.OnnxExporterError) as error:
            raise InputError(
                f"a {config.model_type} model cannot be exported: {error}; use a BERT-like encoder"
            ) from error
        heads, width = getattr(config, "num_attention_heads", 0), getattr(config, "hidden_size", 0)
        sizes = {"num_heads": heads, "hidden_size": width, "opt_level": 0}
        optimized = optimize_model(str(plain), "bert", **sizes, optimization_options=options)
        optimized.topological_sort()
        keep_first_tokens(optimized.model)
        write_out_layer_norms(optimized.model)
        optimized.save_model_to_file(str(path))
    plain.unlink()
    return [*rows]


def keep_first_tokens(model: ModelProto) -> None:
    """Choose the first token of each row right after the last attention. A graph whose head reads more stays
    as it is. Nodes must be in the order in which they run."""
    from onnx import helper, numpy_helper

    graph, nodes = model.graph, list(model.graph.node)
    weights = {entry.name: numpy_helper.to_array(entry) for entry in graph.initializer}
    for node in nodes:
        values = [entry.t for entry in node.attribute if entry.name == "value"]
        if node.op_type == "Constant" and values:
            weights[node.output[0]] = numpy_helper.to_array(values[0])

    def is_choice(node: NodeProto) -> bool:
        index = weights.get(node.input[1]) if node.op_type == "Gather" else None
        axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
        return axis == 1 and index is not None and index.ndim == 0 and index.item() == 0

    attentions = [place for place, node in enumerate(nodes) if node.op_type == "Attention"]
    last = attentions[-1] if attentions else len(nodes)
    choice = next((place for place, node in enumerate(nodes) if place > last and is_choice(node)), None)
    if choice is None:
        return
    layers = [node for node in nodes[last + 1 : choice] if node.op_type != "Constant"]
    made = {name for node in (nodes[last], *layers) for name in node.output}
    is_read_later = any(name in made for node in nodes[choice + 1 :] for name in node.input)
    for node in layers:
        tokens = BY_TOKEN.get(node.op_type, ())
        others = {name for at, name in enumerate(node.input) if name and at not in tokens}
        if is_read_later or not tokens or not others <= weights.keys():
            return
    place = f"{FIRST_TOKENS}place"
    graph.initializer.append(numpy_helper.from_array(np.array([0], dtype=np.int64), place))  # keeps the axis
    made -= set(nodes[last].output)
    chosen = {}
    for node in layers:
        for at in BY_TOKEN[node.op_type]:
            if (name := node.input[at]) not in made:
                first = node.input[at] = f"{FIRST_TOKENS}{name}"
                chosen[first] = helper.make_node("Gather", [name, place], [first], name=first, axis=1)
    del graph.node[:]
    graph.node.extend([*nodes[: last + 1], *chosen.values(), *nodes[last + 1 :]])


def write_out_layer_norms(model: ModelProto) -> None:
    """Replace the layer norms of sums, whose width is that of their weights, by plain operators."""
    from onnx import helper, numpy_helper

    graph = model.graph
    widths = {entry.name: entry.dims[0] for entry in graph.initializer if len(entry.dims) == 1}
    constants: dict[str, np.ndarray] = {}
    nodes: list[NodeProto] = []

    def add(kind: str, *inputs: str) -> str:
        name = f"{LAYER_NORMS}{len(nodes)}"
        nodes.append(helper.make_node(kind, list(inputs), [name], name=name))
        return name

    for node in list(graph.node):
        # Other outputs are for training, and for sums that are read once more.
        if node.op_type != "SkipLayerNormalization" or len(node.output) > 1 or node.input[2] not in widths:
            nodes.append(node)
            continue
        first, second, scale, shift, bias = (*node.input, "", "")[:5]
        width = widths[scale]
        given = next((entry.f for entry in node.attribute if entry.name == "epsilon"), 1e-12)
        mean, epsilon = f"{LAYER_NORMS}mean_{width}", f"{LAYER_NORMS}epsilon_{given:g}"
        constants |= {mean: np.full((width, 1), 1 / width, np.float32), epsilon: np.float32(given)}
        # The bias first: it becomes part of the quantised product before it.
        total = add("Add", add("Add", first, bias) if bias else first, second)
        centered = add("Sub", total, add("MatMul", total, mean))
        variance = add("MatMul", add("Mul", centered, centered), mean)
        deviation = add("Sqrt", add("Add", variance, epsilon))
        normal = add("Mul", add("Mul", centered, add("Reciprocal", deviation)), scale)
        if shift:
            add("Add", normal, shift)
        nodes[-1].output[0] = node.output[0]
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())


@contextmanager
def quiet():
    """Hide warnings and log lines of tracing, optimizing and quantising; the proof checks the graph."""
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(previous)


def quantise(graph: Path, batches: list[dict[str, np.ndarray]], num_outliers: int = NUM_OUTLIERS) -> None:
    """Quantise the graph in a file, in its place.

    Outliers are those with the largest values in `batches`, inputs of the graph by name, arrays (num_rows,
    length). Weights have one scale for each output channel; where this CPU cuts off large sums of 8-bit
    products they have 7 bits, whose sums fit.
    """
    import onnx
    import onnxruntime
    from onnx import numpy_helper
    from onnxruntime.quantization import QuantType, quantize_dynamic

    model = onnx.load(str(graph))
    for number, node in enumerate(model.graph.node):
        node.name = node.name or f"{node.op_type}_{number}"
    weights = {entry.name: numpy_helper.to_array(entry) for entry in model.graph.initializer}
    plain = [node for node in model.graph.node if not node.name.startswith(LAYER_NORMS)]
    layers = [node for node in plain if node.op_type in LAYERS and node.input[1] in weights]
    # The largest absolute value of each channel, (width,), of what the layers read
    peaks = dict.fromkeys([layer.input[0] for layer in layers], 0.0)
    probed, probe = onnx.ModelProto(), graph.with_suffix(".probe.onnx")
    probed.CopyFrom(model)
    ends = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in peaks]
    del probed.graph.output[:]
    probed.graph.output.extend(ends)
    onnx.save(probed, str(probe))
    session = onnxruntime.InferenceSession(str(probe), providers=["CPUExecutionProvider"])
    probe.unlink()
    for batch in batches:
        for name, values in zip(peaks, session.run([*peaks], batch), strict=True):
            largest = np.abs(values).reshape(-1, values.shape[-1]).max(axis=0)
            peaks[name] = np.maximum(peaks[name], largest)
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
