"""Two exact changes of an ONNX graph, after which it has less to compute.

After the last attention only the first token of each row is computed, where the head reads no other: 6 % of
all products in 12 layers. And layer norms are plain products with a vector of 1 / width, because ONNX Runtime
1.31 computes mean and variance in its operator one number at a time. On the default model each is worth 5 to
7 % of the time in fp32; in int8 5 % and 15 % (one core, in turns, 2026-11-26).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

# Operators whose output for a token depends on these inputs at that token alone; the others must be weights.
BY_TOKEN = {
    "MatMul": (0,),
    "BiasGelu": (0,),
    "FastGelu": (0,),
    "Gelu": (0,),
    "LayerNormalization": (0,),
    "SkipLayerNormalization": (0, 1),
}
# The names of what is added begin so
FIRST_TOKENS = "first_tokens/"
LAYER_NORMS = "layer_norms/"


def keep_first_tokens(model: ModelProto) -> None:
    """Choose the first token of each row right after the last attention. A graph whose head reads more stays
    as it is. Nodes must be in the order in which they run."""
    from onnx import helper, numpy_helper

    graph = model.graph
    nodes = list(graph.node)
    weights = weights_of(model)
    last_attention = last_index(nodes, "Attention")
    if last_attention is None:
        return
    choice = index_of_choice(nodes, last_attention + 1, weights)
    if choice is None:
        return
    layers = [node for node in nodes[last_attention + 1 : choice] if node.op_type != "Constant"]
    own_outputs = {name for node in layers for name in node.output}
    read_later = {name for node in nodes[choice + 1 :] for name in node.input}
    if read_later & (own_outputs | set(nodes[last_attention].output)):
        return
    if not all(is_by_token(node, weights) for node in layers):
        return
    place = f"{FIRST_TOKENS}place"
    graph.initializer.append(numpy_helper.from_array(np.array([0], dtype=np.int64), place))  # keeps the axis
    choices = {}
    for node in layers:
        for index in BY_TOKEN[node.op_type]:
            name = node.input[index]
            if name not in own_outputs:
                first = f"{FIRST_TOKENS}{name}"
                node.input[index] = first
                choices[first] = helper.make_node("Gather", [name, place], [first], name=first, axis=1)
    before = nodes[: last_attention + 1]
    after = nodes[last_attention + 1 :]
    del graph.node[:]
    graph.node.extend([*before, *choices.values(), *after])


def weights_of(model: ModelProto) -> dict[str, np.ndarray]:
    """Return the arrays of a graph by name: initializers, and constants."""
    from onnx import numpy_helper

    weights = {}
    for entry in model.graph.initializer:
        weights[entry.name] = numpy_helper.to_array(entry)
    for node in model.graph.node:
        value = attribute_of(node, "value")
        if node.op_type == "Constant" and value is not None:
            weights[node.output[0]] = numpy_helper.to_array(value.t)
    return weights


def attribute_of(node: NodeProto, name: str) -> Any:
    """Return an attribute of a node, or None where it has none of this name."""
    for attribute in node.attribute:
        if attribute.name == name:
            return attribute
    return None


def last_index(nodes: list[NodeProto], op_type: str) -> int | None:
    """Return the index of the last node of a type, None where there is none."""
    indices = [index for index, node in enumerate(nodes) if node.op_type == op_type]
    return indices[-1] if indices else None


def index_of_choice(nodes: list[NodeProto], start: int, weights: dict[str, np.ndarray]) -> int | None:
    """Return the index of the node, from `start` on, that chooses the first token of each row, or None."""
    for index in range(start, len(nodes)):
        if is_choice(nodes[index], weights):
            return index
    return None


def is_choice(node: NodeProto, weights: dict[str, np.ndarray]) -> bool:
    """Return whether a node chooses the first token of each row."""
    if node.op_type != "Gather" or node.input[1] not in weights:
        return False
    axis = attribute_of(node, "axis")
    index = weights[node.input[1]]
    return axis is not None and axis.i == 1 and index.ndim == 0 and index.item() == 0


def is_by_token(node: NodeProto, weights: dict[str, np.ndarray]) -> bool:
    """Return whether a node computes each token from this token alone."""
    if node.op_type not in BY_TOKEN:
        return False
    token_inputs = BY_TOKEN[node.op_type]
    for index, name in enumerate(node.input):
        if name and index not in token_inputs and name not in weights:
            return False
    return True


def write_out_layer_norms(model: ModelProto) -> None:
    """Replace the layer norms of sums, whose width is that of their weights, by plain operators."""
    from onnx import numpy_helper

    graph = model.graph
    widths = {entry.name: entry.dims[0] for entry in graph.initializer if len(entry.dims) == 1}
    constants: dict[str, np.ndarray] = {}
    nodes: list[NodeProto] = []
    for node in graph.node:
        # Other outputs are for training, and for sums that are read once more.
        has_one_output = len(node.output) == 1
        if node.op_type == "SkipLayerNormalization" and has_one_output and node.input[2] in widths:
            add_plain_norm(node, widths[node.input[2]], nodes, constants)
        else:
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())


def add_plain_norm(
    norm: NodeProto, width: int, nodes: list[NodeProto], constants: dict[str, np.ndarray]
) -> None:
    """Append to `nodes` what the layer norm of a sum computes, and to `constants` what it needs for that."""
    from onnx import helper

    def add(op_type: str, *inputs: str) -> str:
        name = f"{LAYER_NORMS}{len(nodes)}"
        nodes.append(helper.make_node(op_type, list(inputs), [name], name=name))
        return name

    first, second, scale = norm.input[:3]
    shift = optional_input(norm, 3)
    bias = optional_input(norm, 4)
    attribute = attribute_of(norm, "epsilon")
    epsilon_value = 1e-12 if attribute is None else attribute.f
    mean_weights = f"{LAYER_NORMS}mean_{width}"
    constants[mean_weights] = np.full((width, 1), 1 / width, np.float32)
    epsilon = f"{LAYER_NORMS}epsilon_{epsilon_value:g}"
    constants[epsilon] = np.float32(epsilon_value)
    if bias:
        # The bias first: it becomes part of the quantised product before it.
        first = add("Add", first, bias)
    total = add("Add", first, second)
    mean = add("MatMul", total, mean_weights)
    centered = add("Sub", total, mean)
    squares = add("Mul", centered, centered)
    variance = add("MatMul", squares, mean_weights)
    deviation = add("Sqrt", add("Add", variance, epsilon))
    reciprocal = add("Reciprocal", deviation)
    normal = add("Mul", centered, reciprocal)
    scaled = add("Mul", normal, scale)
    if shift:
        add("Add", scaled, shift)
    nodes[-1].output[0] = norm.output[0]


def optional_input(node: NodeProto, index: int) -> str:
    """Return the name of an input, "" where the node does not have it."""
    if index < len(node.input):
        return node.input[index]
    return ""
