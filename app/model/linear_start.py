"""`model.head linear`, for few labels: the classifier starts as a logistic regression on the mean of the
states of a text's tokens.

The head of a BERT reads the first token, of which an encoder for likeness, such as e5, says little. One more
layer makes the mean of all tokens of it, so that a checkpoint stays one of a usual BERT.
"""

import warnings

import numpy as np
import torch
from torch import nn

from ..batching.loader import Loader, means_of_rows
from ..batching.token_limit import CPU_BATCH_TOKENS, token_batches
from ..errors import InputError
from .classifier import PackedModel

ADDED = "has_mean_layer"  # in the configuration of a checkpoint that has the layer
WEIGHT_OF_MEAN = 100.0  # of the mean beside the state of the first token, to which the layer adds it
SCALE = 0.1  # so small that the tanh of the pooler changes hardly anything
C = 30.0  # for logistic regression on vectors of length 1 (docs/few_labels.md)


def last_layer(model: nn.Module) -> tuple[str, nn.Linear]:
    """Return the last layer of the head of a model of transformers, after its name."""
    linear = [(key, module) for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    return next(item for item in reversed(linear) if not item[0].startswith(model.base_model_prefix))


def add_mean_layer(model: nn.Module) -> None:
    """Add the layer to a BERT of transformers for sequence classification, unless it has it, and make its
    pooler the identity. Raises InputError for other models."""
    config = model.config
    if config.model_type != "bert":
        raise InputError(
            f"model.head linear works with BERT encoders, found {config.model_type}; leave it out"
        )
    if getattr(config, ADDED, False):
        return
    layers, pooler = model.bert.encoder.layer, model.bert.pooler
    layer = type(layers[-1])(config, layer_idx=len(layers))
    attention = layer.attention
    for module in (attention.self.query, attention.self.key, layer.output.dense):
        # Attention to all tokens alike, and nothing from the feed-forward part
        nn.init.zeros_(module.weight)
    for module in (attention.self.value, attention.output.dense, pooler.dense):
        module.weight.data = torch.eye(config.hidden_size)
    attention.output.dense.weight.data *= WEIGHT_OF_MEAN
    for name, bias in [*layer.named_parameters(), *pooler.named_parameters()]:
        if name.endswith("bias"):
            nn.init.zeros_(bias)
    nn.init.constant_(layer.output.LayerNorm.weight, SCALE)
    layers.append(layer)
    config.update({"num_hidden_layers": len(layers), ADDED: True})


@torch.no_grad()
def start_linear(model: PackedModel, loader: Loader, has_several: bool) -> None:
    """Set the weights of the last layer of a classifier to those of logistic regression on the training rows;
    with `has_several` labels a row, of one for each label. A label without rows, or of all rows, keeps its
    start."""
    from sklearn.linear_model import LogisticRegression

    last = last_layer(model.model)[1]
    # What the last layer reads of each row, (num_rows, size) float32; of windows their mean
    order, states, is_training = token_batches(loader.lengths(), CPU_BATCH_TOKENS), [], model.training
    hook = last.register_forward_pre_hook(
        lambda _, given: states.append(given[0].detach().flatten(0, -2).float().cpu())
    )
    try:
        for positions in order:
            batch = loader.load(positions, torch.device("cpu"))
            model.eval()(**batch.inputs)
            if batch.windows_per_row is not None:
                states[-1] = means_of_rows(states[-1], batch.windows_per_row)
    finally:
        hook.remove()
    model.train(is_training)
    inputs = torch.cat(states).numpy()[np.argsort(np.concatenate(order), kind="stable")]
    length, centre = np.linalg.norm(inputs, axis=1).mean(), inputs.mean(axis=0)
    inputs = (inputs - centre) / length
    labels = np.asarray(loader.split.labels)

    def fit(targets: np.ndarray) -> LogisticRegression:
        with warnings.catch_warnings():
            # It need not be the optimum: the training follows
            warnings.simplefilter("ignore")
            return LogisticRegression(C=C, max_iter=1000).fit(inputs, targets)

    def use(ids: np.ndarray | int, weights: np.ndarray, biases: np.ndarray) -> None:
        weights = weights / length
        last.weight.data[ids] = torch.from_numpy(weights).to(last.weight.dtype)
        last.bias.data[ids] = torch.as_tensor(biases - weights @ centre).to(last.bias.dtype)

    if has_several:
        for label in np.flatnonzero(labels.any(axis=0) & ~labels.all(axis=0)):
            fitted = fit(labels[:, label])
            use(int(label), fitted.coef_[0], fitted.intercept_[0])
    elif len(np.unique(labels)) > 1:
        fitted = fit(labels)
        weights, biases = fitted.coef_, fitted.intercept_
        if len(fitted.classes_) == 2:
            # One row of weights for two classes, which have half of it each
            halves = np.array([-0.5, 0.5])
            weights, biases = halves[:, None] * weights, halves * biases
        use(fitted.classes_, weights, biases)
