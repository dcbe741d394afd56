"""A model of transformers that also takes packed batches; with a head that classifies, or predicts tokens."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature
from operator import attrgetter

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..batching.collate import Layout
from ..batching.loader import means_of_rows
from ..config.schema import TrainConfig
from ..errors import InputError
from ..runtime.devices import at_least_float32, is_cuda, without_autocast
from . import attention
from .dropout import replace_dropout
from .read_tokens import return_read_tokens_only
from .varlen_attention import has_varlen_kernels


@dataclass(frozen=True)
class Packing:
    """How a type of model runs packed. `head` takes the model and the states of the tokens that it reads,
    (num_rows, 1, hidden), to logits, (num_rows, num_labels). `masked_head` are the names of what predicts
    masked tokens: what comes before the output matrix, its layer, and the bias. `norm_last`: LayerNorm is the
    last part of each half of a layer, so that no state is a sum over many layers. `reads_last`: of each row
    it reads the last token, else the first. `from_pad`: positions count from pad_id + 1, as in RoBERTa, else
    from 0."""

    head: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    masked_head: tuple[str, ...] = ()
    norm_last: bool = True
    reads_last: bool = False
    from_pad: bool = False


BERT = Packing(
    lambda model, states: model.classifier(model.dropout(model.base_model.pooler(states))),
    ("cls.predictions.transform", "cls.predictions.decoder", "cls.predictions.bias"),
)
ELECTRA = Packing(
    lambda model, states: model.classifier(states),
    ("generator_predictions", "generator_lm_head", "generator_lm_head.bias"),
)
ROBERTA = Packing(ELECTRA.head, ("lm_head", "lm_head.decoder", "lm_head.bias"), from_pad=True)
MODERNBERT = Packing(
    lambda model, states: model.classifier(model.drop(model.head(states[:, 0]))),
    ("head", "decoder", "decoder.bias"),
    norm_last=False,
)
DECODER = Packing(lambda model, states: model.score(states[:, 0]), norm_last=False, reads_last=True)
PACKINGS = {"bert": BERT, "ernie": BERT, "electra": ELECTRA, "roberta": ROBERTA, "xlm-roberta": ROBERTA}
PACKINGS |= {"modernbert": MODERNBERT} | dict.fromkeys(("llama", "qwen2", "qwen3"), DECODER)


def in_bf16(embeddings: nn.Module, args: tuple, states: torch.Tensor) -> torch.Tensor:
    """A forward hook: under autocast to bf16 on the CPU, return the states in bf16. There LayerNorm and sums
    keep the dtype that they are given, with fp32 inside LayerNorm; so all layers have states in bf16, and no
    matrix product has to cast them."""
    is_on = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    return states.bfloat16() if is_on and states.device.type == "cpu" else states


def encoder_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of the encoder of a model of transformers; all others are of its head. The names
    of layers differ from type to type, so the parts decide. The pooler comes after the layers and reads one
    token of a row, so it is of the head, also where transformers has it inside of the encoder."""
    encoder = set(model.base_model.parameters())
    pooler = getattr(model.base_model, "pooler", None)
    if pooler is not None:
        encoder -= set(pooler.parameters())
    return encoder


def norm_parameters(model: nn.Module) -> set[nn.Parameter]:
    """Return the parameters of layers that normalise. Such a layer is told from its class, because many types
    have a class of their own, such as Qwen3RMSNorm; its name may be `ln_1`."""
    parameters = set()
    for module in model.modules():
        if "norm" in type(module).__name__.lower():
            parameters.update(module.parameters(recurse=False))
    return parameters


class PackedModel(nn.Module):
    """transformers' `model`, with faster parts where `can_pack`; else `why_padded` says why not. `forward`
    takes the tensors of `app.batching.collate` and returns one output for each target."""

    # peft's configuration, where only LoRA factors and the head are trained
    adapter = None
    # The precision of a pass. The model itself enters it: DataParallel runs each copy in a thread, where it
    # turns autocast on again without its dtype, which on CUDA is fp16.
    autocast: Callable[[], AbstractContextManager] = nullcontext

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        replace_dropout(model)
        self.model = model
        config, packing = model.config, PACKINGS.get(model.config.model_type)
        config.return_dict = True
        self.packing, self.why_padded = packing, ""
        reads_last = packing is not None and packing.reads_last
        if packing is None:
            self.why_padded = f"packed batches are for {', '.join(PACKINGS)}, found {config.model_type}"
        elif not config.num_hidden_layers > 0:
            self.why_padded = "it has no layers"
        elif getattr(config, "is_decoder", False) or getattr(config, "is_causal", reads_last) != reads_last:
            # A BERT that is a decoder, or a decoder whose tokens attend in both directions
            self.why_padded = "its configuration changes which tokens attend to which"
        self.can_pack = not self.why_padded
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)
            if packing.norm_last:
                model.base_model.embeddings.register_forward_hook(in_bf16)

    def forward(self, *args: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        with self.autocast():
            return self.logits(*args, **inputs)

    def checkpoint_layers(self) -> None:
        """Let the backward pass compute each layer again from its input, with the same dropout, instead of
        keeping what the layer computed. Raises InputError for a model that cannot do so."""
        model, config = self.model, self.model.config
        # The second name is that of older versions of transformers
        enable = getattr(model, "activation_checkpointing_enable", None)
        enable = enable or model.gradient_checkpointing_enable
        # The cache is for generation only, and would be refused with a warning
        config.use_cache = False
        try:
            enable({"use_reentrant": False})
        except ValueError as error:
            raise InputError(
                f"train.gradient_checkpointing true does not work with {config.model_type}: {error}; omit it"
            ) from error

    def build_optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        """Return AdamW (fused on CPU and CUDA) or SGD over the trainable parameters. Each group has an
        `lr_scale`, the factor on the learning rate of the encoder, or where this is 0 of the head."""
        encoder_rate = config.learning_rate
        head_rate = config.head_learning_rate
        if head_rate is None:
            head_rate = encoder_rate
        peak = encoder_rate or head_rate
        encoder = encoder_parameters(self.model)
        norms = norm_parameters(self.model)
        groups_by_key = {}
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            rate = encoder_rate if parameter in encoder else head_rate
            # Biases and norms do not decay
            is_spared = name.endswith("bias") or parameter in norms
            decay = 0.0 if is_spared else config.weight_decay
            key = (decay, rate)
            if key not in groups_by_key:
                lr_scale = rate / peak if peak else 0.0
                groups_by_key[key] = {"params": [], "weight_decay": decay, "lr_scale": lr_scale}
            groups_by_key[key]["params"].append(parameter)
        groups = list(groups_by_key.values())
        if config.optimizer == "sgd":
            return torch.optim.SGD(groups, lr=peak)
        device = groups[0]["params"][0].device
        return torch.optim.AdamW(groups, lr=peak, fused=device.type == "cpu" or is_cuda(device))

    def encode(self, input_ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the states of a packed batch's tokens, (1, total_tokens, hidden), or of `read_tokens`."""
        # Another attention function would let tokens attend across rows, without an error.
        assert self.model.config._attn_implementation == attention.NAME
        if self.packing.reads_last:
            inputs["use_cache"] = False
        return self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state

    def has_varlen_kernels(self, device: torch.device) -> bool:
        """Return whether this model can run packed with variable-length attention on a device."""
        config = self.model.config
        head_size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        return self.can_pack and has_varlen_kernels(device, head_size)

    def layout(self, packed: bool, varlen: bool = False) -> Layout:
        """Return the input layout this model needs; `packed` only where it can run so."""
        assert self.can_pack or not packed, self.why_padded
        config, last_except = self.model.config, None
        if self.packing and self.packing.reads_last:
            # As transformers' decoders: the last token that is not padding
            last_except = -1 if config.pad_token_id is None else config.pad_token_id
        takes_types = "token_type_ids" in signature(self.model.forward).parameters
        return Layout(
            packed,
            varlen=varlen,
            heads=getattr(config, "num_key_value_heads", None) or getattr(config, "num_attention_heads", 1),
            pad_id=config.pad_token_id or 0,
            first_position=first_position(config),
            last_except=last_except,
            token_types=takes_types and getattr(config, "type_vocab_size", 2) > 1,
            max_positions=max_positions(config),
        )


class InFloat32:
    """Mixin, first in the MRO, for a part of a head: it computes in fp32 also where the encoder runs in lower
    precision. Logits in bf16 would be one of 256 steps between two powers of two: numbers that a regression
    predicts would be rounded, and temperatures and thresholds would be fitted on ties."""

    def forward(self, states: torch.Tensor, *more, **options):
        with without_autocast(states.device.type):
            return super().forward(at_least_float32(states), *more, **options)


def compute_head_in_float32(model: nn.Module) -> None:
    """Let what comes after the encoder of a model of transformers compute in fp32: all of its parts but the
    encoder, and the encoder's pooler. Only their classes change: parameters keep their names."""
    parts = [module for name, module in model.named_children() if name != model.base_model_prefix]
    parts.append(getattr(model.base_model, "pooler", None))
    for part in parts:
        if isinstance(part, nn.Module):
            original = type(part)
            namespace = {"__module__": original.__module__}
            part.__class__ = type(original.__name__, (InFloat32, original), namespace)


class Classifier(PackedModel):
    """transformers' model for sequence classification; it returns logits, (num_rows, num_labels) float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        compute_head_in_float32(model)
        # ModernBERT may read the mean of all tokens
        self.reads_mean = getattr(model.config, "classifier_pooling", None) == "mean"
        if self.can_pack and not self.reads_mean:
            layers = getattr(model.base_model, "encoder", model.base_model)
            layers = layers.layer if hasattr(layers, "layer") else layers.layers
            return_read_tokens_only(layers[-1])

    def logits(
        self,
        input_ids: torch.Tensor,
        first_tokens: torch.Tensor | None = None,
        last_tokens: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        if first_tokens is None:
            return self.model(input_ids=input_ids, **inputs).logits
        if self.reads_mean:
            states = self.encode(input_ids, **inputs)[0]
            lengths = torch.diff(first_tokens, append=first_tokens.new_full((1,), len(states)))
            states = means_of_rows(at_least_float32(states), lengths).to(states.dtype)[None]
        else:
            read_tokens = first_tokens if last_tokens is None else last_tokens
            states = self.encode(input_ids, read_tokens=read_tokens, **inputs)
        # (num_rows, 1, hidden): a row of one token each
        return self.packing.head(self.model, states.transpose(0, 1))


class MaskedLanguageModel(PackedModel):
    """transformers' model for masked language modelling; only masked tokens go through the head. Its logits
    are (num_masked, vocabulary). The output matrix is that of the embeddings, which is read from there: the
    head has no separate parameter for it, so that weights and optimizer state have it once."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.parts = self.packing.masked_head if self.can_pack else ()
        if self.parts:
            _, output, bias = self.parts
            if bias == f"{output}.bias":
                model.get_submodule(output).weight = None
            else:
                model.set_submodule(output, nn.Identity())

    def logits(
        self,
        input_ids: torch.Tensor,
        masked: torch.Tensor | None = None,
        first_tokens: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Return the logits of the tokens at `masked`, see `MaskedLoader`; None: of first tokens."""
        if not self.parts:
            logits = self.model(input_ids=input_ids, **inputs).logits
            return logits[:, 0] if masked is None else logits[masked]
        if first_tokens is None:
            hidden = self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state
            states = hidden[:, 0] if masked is None else hidden[masked]
        else:
            tokens = first_tokens if masked is None else masked
            states = self.encode(input_ids, **inputs).squeeze(0).index_select(0, tokens)
        transform, _, bias = (attrgetter(part)(self.model) for part in self.parts)
        return nn.functional.linear(transform(states), self.model.get_input_embeddings().weight, bias)


def first_position(config: PreTrainedConfig) -> int:
    packing = PACKINGS.get(config.model_type)
    return (config.pad_token_id or 0) + 1 if packing and packing.from_pad else 0


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens a row may have, or None where the model has no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    # XLNet has -1, which means no limit
    has_limit = isinstance(positions, int) and positions >= 0
    return max(0, positions - first_position(config)) if has_limit else None
