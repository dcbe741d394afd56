"""`model.head linear`: the last layer of the classifier starts as a logistic regression on what it reads of
the training rows, whatever stands before it.

The head of a BERT reads the first token, whose state says little in an encoder that was trained for the
similarity of texts, such as e5. There one more layer turns it into the mean of all tokens, so that a
checkpoint stays one of a usual BERT. Trained, this layer learns which tokens count more. Other types keep the
head of transformers.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ..batching import token_batches
from ..batching.collate import collate
from ..batching.loader import Loader
from ..data.label_shares import weighted_rows, with_and_without
from ..errors import InputError
from .model_parts import last_layer

if TYPE_CHECKING:
    from .classifier import PackedModel

ADDED = "has_mean_layer"  # in the configuration of a checkpoint that has the layer
WEIGHT_OF_MEAN = 100.0  # of the mean beside the state of the first token, to which the layer adds it
SCALE = 0.1  # so small that the tanh of the pooler changes hardly anything
C = 30.0  # for logistic regression on vectors of length 1 (docs/few_labels.md)
TOLERANCE = 1e-3  # of logits that are computed twice

Tensors = dict[str, torch.Tensor]


def add_mean_layer(model: nn.Module) -> None:
    """Add the layer to a BERT of transformers for sequence classification, unless it has it, and make its
    pooler the identity. Models of other types stay as they are."""
    config = model.config
    if config.model_type != "bert" or getattr(config, ADDED, False):
        return
    layers = model.bert.encoder.layer
    pooler = model.bert.pooler
    layer = type(layers[-1])(config, layer_idx=len(layers))
    attention = layer.attention
    # With keys of 0 all scores are 0, so all tokens get the same attention. The query keeps its random start,
    # because the gradient of the key is a product with the query: with both at 0 neither would ever learn.
    nn.init.zeros_(attention.self.key.weight)
    # The feed-forward part adds nothing
    nn.init.zeros_(layer.output.dense.weight)
    for module in (attention.self.value, attention.output.dense, pooler.dense):
        module.weight.data = torch.eye(config.hidden_size)
    attention.output.dense.weight.data *= WEIGHT_OF_MEAN
    for part in (layer, pooler):
        for name, parameter in part.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
    nn.init.constant_(layer.output.LayerNorm.weight, SCALE)
    layers.append(layer)
    config.update({"num_hidden_layers": len(layers), ADDED: True})


@contextmanager
def returning_head_inputs(model: "PackedModel") -> Iterator[None]:
    """Return a context in which the outputs of a model are what its last linear layer reads of each row,
    (num_rows, size), in place of the logits. transformers' model chooses the token, where it reads one."""
    _name, layer = last_layer(model.model)
    hook = layer.register_forward_hook(lambda _layer, inputs, _output: inputs[0])
    try:
        yield
    finally:
        hook.remove()


@torch.no_grad()
def check_ends_in_layer(model: "PackedModel", rows: list[list[int]]) -> None:
    """Raise InputError unless the logits of a model, on the CPU, are what its last linear layer gives: those
    of rows of token ids are compared. Leaves the model in evaluation mode."""
    _name, layer = last_layer(model.model)
    tokens = [np.array(row, dtype=np.int64) for row in rows]
    inputs = collate(tokens, None, model.layout(model.can_pack))
    model.eval()
    bias = None
    if layer.bias is not None:
        # Were the logits scaled, a bias of 0 would not show it
        bias = layer.bias.detach().clone()
        layer.bias.add_(1)
    logits = model(**inputs)
    with returning_head_inputs(model):
        states = model(**inputs)
    is_alike = states.shape[-1] == layer.in_features and torch.allclose(
        layer(states), logits, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True
    )
    if bias is not None:
        layer.bias.copy_(bias)
    if not is_alike:
        raise InputError(
            "model.head linear needs logits that are what the last linear layer gives, found more behind it "
            f"in this {model.model.config.model_type} model; leave it out"
        )


@torch.no_grad()
def fit_last_layer(
    model: "PackedModel",
    loader: Loader,
    has_several: bool,
    device: torch.device,
    batch_tokens: int,
    on_batch: Callable[[int], None] = lambda rows: None,
) -> Tensors:
    """Return the parameters of the last layer of a classifier on `device` that is a logistic regression on
    the training rows; with `has_several` labels a row, one regression for each label. A label of no row, or
    of all rows, keeps its start. `on_batch` is called with the number of rows of each batch."""
    _name, layer = last_layer(model.model)
    start = {name: value.detach().cpu().clone() for name, value in layer.named_parameters()}
    states = states_before_layer(model, loader, device, batch_tokens, on_batch)
    has_bias = "bias" in start
    mean_length = np.linalg.norm(states, axis=1).mean()
    centre = np.zeros_like(states[0])
    if has_bias:
        # Without a bias, the weights alone have to tell the labels apart
        centre = states.mean(axis=0)
    inputs = (states - centre) / mean_length
    labels = np.asarray(loader.split.labels)
    targets = loader.split.targets
    if has_several:
        for label in range(labels.shape[1]):
            shares = None
            if targets is not None:
                shares = with_and_without(targets[:, label])
            regression = fit_regression(inputs, labels[:, label], has_bias, shares)
            if regression is not None:
                weights = regression.coef_ / mean_length
                set_layer_rows(start, [label], weights, regression.intercept_, centre)
        return start
    regression = fit_regression(inputs, labels, has_bias, targets)
    if regression is None:
        return start
    weights = regression.coef_ / mean_length
    biases = regression.intercept_
    if len(regression.classes_) == 2:
        # scikit-learn has one row of weights for two classes; each of them gets half of it
        halves = np.array([-0.5, 0.5])
        weights = halves[:, None] * weights
        biases = halves * biases
    set_layer_rows(start, regression.classes_, weights, biases, centre)
    return start


def set_last_layer(model: "PackedModel", parameters: Tensors) -> None:
    """Set the parameters of the last layer of a classifier to those of `fit_last_layer`."""
    _name, layer = last_layer(model.model)
    for name, parameter in layer.named_parameters():
        parameter.data.copy_(parameters[name])
    model.knows_labels = True


def states_before_layer(
    model: "PackedModel",
    loader: Loader,
    device: torch.device,
    batch_tokens: int,
    on_batch: Callable[[int], None],
) -> np.ndarray:
    """Return what the last layer reads of each row of a loader, (num_rows, size) float32; of a text that is
    read in windows, their mean."""
    is_training = model.training
    model.eval()
    states = []
    batches = token_batches(loader.lengths(), batch_tokens)
    with returning_head_inputs(model):
        for positions in batches:
            batch = loader.load(positions, device)
            states.append(batch.row_outputs(model(**batch.inputs)).cpu())
            on_batch(len(positions))
    model.train(is_training)
    # Batches have the longest rows first
    row_order = np.argsort(np.concatenate(batches), kind="stable")
    return torch.cat(states).numpy()[row_order]


def fit_regression(inputs: np.ndarray, targets: np.ndarray, has_bias: bool, shares: np.ndarray | None = None):
    """Return scikit-learn's logistic regression; None where all targets, (num_rows,), are the same. With
    `shares` (num_rows, num_classes), a row counts for each class with its share as the weight."""
    from sklearn.linear_model import LogisticRegression

    row_weights = None
    if shares is not None:
        rows, targets, row_weights = weighted_rows(shares)
        inputs = inputs[rows]
    if len(np.unique(targets)) < 2:
        return None
    with warnings.catch_warnings(action="ignore"):
        # It need not converge: the training follows
        regression = LogisticRegression(C=C, max_iter=1000, fit_intercept=has_bias)
        return regression.fit(inputs, targets, sample_weight=row_weights)


def set_layer_rows(
    parameters: Tensors,
    rows: list[int] | np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
    centre: np.ndarray,
) -> None:
    """Set some rows of the parameters of a layer to weights, (len(rows), size), and to biases for inputs
    without their mean `centre`."""
    weight = parameters["weight"]
    weight[rows] = torch.from_numpy(weights).to(weight.dtype)
    if "bias" in parameters:
        bias = parameters["bias"]
        bias[rows] = torch.from_numpy(biases - weights @ centre).to(bias.dtype)
