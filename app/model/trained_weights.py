"""How the weights of a model start, and which are trained.

`model.head linear`: the classifier starts as a logistic regression on the mean of the states of a text's
tokens. The head of a BERT reads the first token, whose state says little in an encoder that was trained for
the similarity of texts, such as e5. One more layer turns it into the mean of all tokens, so that a checkpoint
stays one of a usual BERT. Trained, this layer learns which tokens count more.

`model.freeze` leaves out a part, and `model.lora_rank` all but LoRA factors and the head. What is not trained
has no gradient, no optimizer state and no backward pass. LoRA is that of peft: beside each frozen matrix of
the encoder a small one of two trained factors; the head is trained in full.
https://huggingface.co/docs/peft/package_reference/lora
"""

import logging
import re
import shutil
import warnings
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from ..batching import CPU_BATCH_TOKENS, token_batches
from ..batching.loader import Loader, means_of_rows
from ..errors import InputError, needed
from ..runtime.disk import whole_files
from .classifier import PackedModel, encoder_parameters

logger = logging.getLogger(__name__)
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
def start_linear(model: PackedModel, loader: Loader, has_several: bool) -> None:
    """Set the weights of the last layer of a classifier to those of logistic regression on the training rows;
    with `has_several` labels a row, of one for each. A label of no row, or of all rows, keeps its start."""
    from sklearn.linear_model import LogisticRegression

    last = last_layer(model.model)[1]
    # `states` collects what the last layer reads of each row, (num_rows, size) float32; windows are averaged
    order, states, is_training = token_batches(loader.lengths(), CPU_BATCH_TOKENS), [], model.training
    hook = last.register_forward_pre_hook(
        lambda _, given: states.append(given[0].detach().flatten(0, -2).float().cpu())
    )
    for positions in order:
        batch = loader.load(positions, torch.device("cpu"))
        model.eval()(**batch.inputs)
        if batch.windows_per_row is not None:
            states[-1] = means_of_rows(states[-1], batch.windows_per_row)
    hook.remove()
    model.train(is_training)
    inputs = torch.cat(states).numpy()[np.argsort(np.concatenate(order), kind="stable")]
    length, centre = np.linalg.norm(inputs, axis=1).mean(), inputs.mean(axis=0)
    inputs, labels = (inputs - centre) / length, np.asarray(loader.split.labels)
    for number, targets in enumerate(labels.T if has_several else [labels]):
        if len(np.unique(targets)) < 2:
            continue
        with warnings.catch_warnings(action="ignore"):
            # It need not converge: the training follows
            fitted = LogisticRegression(C=C, max_iter=1000).fit(inputs, targets)
        ids, weights, biases = fitted.classes_, fitted.coef_ / length, fitted.intercept_
        if has_several:
            ids = [number]
        elif len(ids) == 2:
            # scikit-learn has one row of weights for two classes; each of them gets half of it
            halves = np.array([-0.5, 0.5])
            weights, biases = halves[:, None] * weights, halves * biases
        last.weight.data[ids] = torch.from_numpy(weights).to(last.weight.dtype)
        last.bias.data[ids] = torch.from_numpy(biases - weights @ centre).to(last.bias.dtype)


# In the run folder, as peft reads and writes it
FOLDER, WEIGHTS, CONFIG = "adapter", "adapter_model.safetensors", "adapter_config.json"
# Before each name in peft's file; in a model, names have that of the adapter inside
PREFIX, NAME = "base_model.model.", "default"


def embedding_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of the embeddings of a model of transformers: tables of embeddings, and what is
    named after them, such as their norm and their projection. No part of a layer is among them."""
    encoder = model.base_model
    in_layers = set()
    for module in encoder.modules():
        # In transformers each stack of layers is such a list
        if isinstance(module, nn.ModuleList):
            in_layers.update(module.parameters())
    embeddings = set()
    for module in encoder.modules():
        if isinstance(module, nn.Embedding):
            embeddings.update(module.parameters())
    for name, parameter in encoder.named_parameters():
        if "embed" in name:
            embeddings.add(parameter)
    return embeddings - in_layers


def freeze(model: PackedModel, part: str) -> None:
    """Do not train the `embeddings` of a model, or its whole `encoder`. A weight that the head shares with
    the embeddings is frozen too. Raises InputError where nothing would be left to train."""
    frozen = encoder_parameters(model.model) if part == "encoder" else embedding_parameters(model.model)
    for parameter in frozen:
        parameter.requires_grad_(False)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        architecture = model.model.config.model_type
        raise InputError(
            f"model.freeze {part} must leave weights to train, found a {architecture} model without a head "
            "after its encoder; leave it out"
        )


def add_lora(model: PackedModel, rank: int) -> None:
    """Freeze a model but for its head, and add trained factors to the linear layers of the encoder. Raises
    InputError where peft is missing, and for an encoder without such layers."""
    with needed("lora"):
        from peft import LoraConfig, inject_adapter_in_model
    inner = model.model
    encoder, base = inner.base_model_prefix, inner.name_or_path
    heads = [name for name, child in inner.named_children() if name != encoder and [*child.parameters()]]
    if getattr(inner.base_model, "pooler", None) is not None:
        heads.append(f"{encoder}.pooler")
    linear = {name for name, module in inner.named_modules() if isinstance(module, nn.Linear)}
    of_heads = {name for name in linear if f"{name}.".startswith(tuple(f"{head}." for head in heads))}
    # Lists, so that equal runs write equal files
    layers = sorted({name.rpartition(".")[2] for name in linear - of_heads})
    if not layers:
        raise InputError(
            "model.lora_rank needs linear layers of torch in the encoder, found none in a "
            f"{inner.config.model_type} model; leave it out, or use another model"
        )
    config = LoraConfig(
        task_type="SEQ_CLS",
        r=rank,
        lora_alpha=2 * rank,
        target_modules=layers,
        exclude_modules=sorted(of_heads),
        base_model_name_or_path=str(Path(base).resolve()) if base and Path(base).is_dir() else base or None,
    )
    inject_adapter_in_model(config, inner, NAME)
    # For peft's file only: it would keep the untrained head as well
    config.modules_to_save, config.target_modules = heads, layers
    for head in heads:
        inner.get_submodule(head).requires_grad_(True)
    for module in inner.modules():
        if hasattr(module, "cast_input_dtype_enabled"):
            # Autocast casts what has to be cast
            module.cast_input_dtype_enabled = False
    model.adapter = config
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    logger.info(f"model.lora_rank {rank}: {trained:,} parameters are trained, in {layers} and the head.")


def save_adapter(folder: Path, config, weights: dict[str, torch.Tensor]) -> None:
    """Write trained weights, by transformers' names, as peft reads them; `config` is peft's."""
    target = folder / FOLDER
    target.mkdir(exist_ok=True)
    renamed = {PREFIX + name.replace(f".{NAME}.", "."): value for name, value in weights.items()}
    with whole_files(folder / f".{FOLDER}", target) as aside:
        config.save_pretrained(aside)
        save_file({name: value.contiguous() for name, value in renamed.items()}, aside / WEIGHTS)
        shutil.copymode(aside / CONFIG, aside / WEIGHTS)


def load_adapter(path: Path) -> dict[str, torch.Tensor]:
    """Return the weights of a file that `save_adapter` wrote, by the names of transformers' model."""
    return {
        re.sub(r"(\.lora_[AB])\.", rf"\1.{NAME}.", name.removeprefix(PREFIX)): value
        for name, value in load_file(path).items()
    }
