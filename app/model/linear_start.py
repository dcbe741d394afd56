"""`model.head linear`: the classifier starts as a logistic regression on the mean of the states of a text's
tokens.

The head of a BERT reads the first token, whose state says little in an encoder that was trained for the
similarity of texts, such as e5. One more layer turns it into the mean of all tokens, so that a checkpoint
stays one of a usual BERT. Trained, this layer learns which tokens count more.
"""

import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn

from ..batching import CPU_BATCH_TOKENS, token_batches
from ..batching.loader import Loader, means_of_rows
from ..errors import InputError
from .model_parts import last_layer

if TYPE_CHECKING:
    from .classifier import PackedModel

ADDED = "has_mean_layer"  # in the configuration of a checkpoint that has the layer
WEIGHT_OF_MEAN = 100.0  # of the mean beside the state of the first token, to which the layer adds it
SCALE = 0.1  # so small that the tanh of the pooler changes hardly anything
C = 30.0  # for logistic regression on vectors of length 1 (docs/few_labels.md)


def add_mean_layer(model: nn.Module) -> None:
    """Add the layer to a BERT of transformers for sequence classification, unless it has it, and make its
    pooler the identity. Raises InputError for other models."""
    config = model.config
    if config.model_type != "bert":
        raise InputError(f"model.head linear works with BERT encoders, found {config.model_type}; omit it")
    if getattr(config, ADDED, False):
        return
    layers = model.bert.encoder.layer
    pooler = model.bert.pooler
    layer = type(layers[-1])(config, layer_idx=len(layers))
    attention = layer.attention
    # With keys of 0 all scores are 0, so all tokens get the same attention. The query keeps its random start:
    # the gradient of the key is a product with the query, and with both at 0 neither would ever learn.
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


@torch.no_grad()
def start_linear(model: "PackedModel", loader: Loader, has_several: bool) -> None:
    """Set the weights of the last layer of a classifier to those of logistic regression on the training rows;
    with `has_several` labels a row, of one regression for each label. A label of no row, or of all rows,
    keeps its start."""
    _name, layer = last_layer(model.model)
    states = states_before(layer, model, loader)
    mean_length = np.linalg.norm(states, axis=1).mean()
    centre = states.mean(axis=0)
    inputs = (states - centre) / mean_length
    labels = np.asarray(loader.split.labels)
    if has_several:
        for label in range(labels.shape[1]):
            regression = fit_regression(inputs, labels[:, label])
            if regression is not None:
                weights = regression.coef_ / mean_length
                set_layer_rows(layer, [label], weights, regression.intercept_, centre)
        return
    regression = fit_regression(inputs, labels)
    if regression is None:
        return
    weights = regression.coef_ / mean_length
    biases = regression.intercept_
    if len(regression.classes_) == 2:
        # scikit-learn has one row of weights for two classes; each of them gets half of it
        halves = np.array([-0.5, 0.5])
        weights = halves[:, None] * weights
        biases = halves * biases
    set_layer_rows(layer, regression.classes_, weights, biases, centre)


def states_before(layer: nn.Module, model: "PackedModel", loader: Loader) -> np.ndarray:
    """Return what a layer reads of each row of a loader, (num_rows, size) float32; of a text that is read in
    windows, their mean."""
    collected: list[torch.Tensor] = []

    def collect(_layer: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        collected.append(inputs[0].detach().flatten(0, -2).float().cpu())

    is_training = model.training
    model.eval()
    hook = layer.register_forward_pre_hook(collect)
    batches = token_batches(loader.lengths(), CPU_BATCH_TOKENS)
    for positions in batches:
        batch = loader.load(positions, torch.device("cpu"))
        model(**batch.inputs)
        if batch.windows_per_row is not None:
            collected[-1] = means_of_rows(collected[-1], batch.windows_per_row)
    hook.remove()
    model.train(is_training)
    # Batches have the longest rows first
    row_order = np.argsort(np.concatenate(batches), kind="stable")
    return torch.cat(collected).numpy()[row_order]


def fit_regression(inputs: np.ndarray, targets: np.ndarray):
    """Return scikit-learn's logistic regression; None where all targets, (num_rows,), are the same."""
    from sklearn.linear_model import LogisticRegression

    if len(np.unique(targets)) < 2:
        return None
    with warnings.catch_warnings(action="ignore"):
        # It need not converge: the training follows
        return LogisticRegression(C=C, max_iter=1000).fit(inputs, targets)


def set_layer_rows(
    layer: nn.Linear,
    rows: list[int] | np.ndarray,
    weights: np.ndarray,
    biases: np.ndarray,
    centre: np.ndarray,
) -> None:
    """Set some rows of a layer to weights, (len(rows), size), and to biases for inputs without their mean
    `centre`."""
    layer.weight.data[rows] = torch.from_numpy(weights).to(layer.weight.dtype)
    layer.bias.data[rows] = torch.from_numpy(biases - weights @ centre).to(layer.bias.dtype)
