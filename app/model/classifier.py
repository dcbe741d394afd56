"""A model of transformers that also takes packed batches, with a head that classifies."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from inspect import signature

import torch
from torch import nn
from transformers import PreTrainedConfig

from ..batching.collate import Layout
from ..batching.loader import means_of_rows
from ..config.schema import TrainConfig
from ..errors import InputError
from ..runtime.devices import at_least_float32, without_autocast
from . import attention
from .dropout import MaskSource, RowDropout, contexts_of_layer, replace_dropout
from .grouped_attention import MasksOfPass
from .optimizer import build_optimizer
from .read_tokens import return_read_tokens_only
from .varlen_attention import has_varlen_kernels


@dataclass(frozen=True)
class MaskedHead:
    """The names of the parts that predict masked tokens: what comes before the output matrix, the layer of
    this matrix, and the bias."""

    transform: str
    output: str
    bias: str


@dataclass(frozen=True)
class Packing:
    """How a type of model runs packed.

    `head` takes the model and the states of the tokens that it reads, (num_rows, 1, hidden), to logits,
    (num_rows, num_labels). `norm_last`: LayerNorm is the last part of each half of a layer, so that no state
    is a sum over many layers. `reads_last`: of each row it reads the last token, else the first.
    `counts_from_pad`: positions count from pad_id + 1, as in RoBERTa, else from 0.
    """

    head: Callable[[nn.Module, torch.Tensor], torch.Tensor]
    masked_head: MaskedHead | None = None
    norm_last: bool = True
    reads_last: bool = False
    counts_from_pad: bool = False


def bert_head(model: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.dropout(model.base_model.pooler(states)))


def electra_head(model: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return model.classifier(states)


def modernbert_head(model: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return model.classifier(model.drop(model.head(states[:, 0])))


def decoder_head(model: nn.Module, states: torch.Tensor) -> torch.Tensor:
    return model.score(states[:, 0])


BERT = Packing(
    bert_head,
    MaskedHead("cls.predictions.transform", "cls.predictions.decoder", "cls.predictions.bias"),
)
ELECTRA = Packing(
    electra_head,
    MaskedHead("generator_predictions", "generator_lm_head", "generator_lm_head.bias"),
)
ROBERTA = Packing(
    electra_head,
    MaskedHead("lm_head", "lm_head.decoder", "lm_head.bias"),
    counts_from_pad=True,
)
MODERNBERT = Packing(modernbert_head, MaskedHead("head", "decoder", "decoder.bias"), norm_last=False)
DECODER = Packing(decoder_head, norm_last=False, reads_last=True)
# The keys are model types of transformers
PACKINGS = {
    "bert": BERT,
    "ernie": BERT,
    "electra": ELECTRA,
    "roberta": ROBERTA,
    "xlm-roberta": ROBERTA,
    "modernbert": MODERNBERT,
    "llama": DECODER,
    "qwen2": DECODER,
    "qwen3": DECODER,
}


# Types whose states have rows and tokens in one dimension, or distances in the order of a batch's length
WITHOUT_ROWS = ("funnel", "opt")


def in_bf16(embeddings: nn.Module, args: tuple, states: torch.Tensor) -> torch.Tensor:
    """A forward hook: under autocast to bf16 on the CPU, return the states in bf16. There LayerNorm and sums
    keep the dtype that they are given, with fp32 inside LayerNorm; so all layers have states in bf16, and no
    matrix product has to cast them."""
    is_on = torch.is_autocast_enabled("cpu") and torch.get_autocast_dtype("cpu") == torch.bfloat16
    if is_on and states.device.type == "cpu":
        return states.bfloat16()
    return states


def why_padded(config: PreTrainedConfig) -> str:
    """Return why a model of this configuration cannot run packed; empty where it can."""
    packing = PACKINGS.get(config.model_type)
    if packing is None:
        return f"packed batches are for {', '.join(PACKINGS)}, found {config.model_type}"
    if not config.num_hidden_layers > 0:
        return "it has no layers"
    is_causal = getattr(config, "is_causal", packing.reads_last)
    if getattr(config, "is_decoder", False) or is_causal != packing.reads_last:
        # A BERT that is a decoder, or a decoder whose tokens attend in both directions
        return "its configuration changes which tokens attend to which"
    return ""


class PackedModel(nn.Module):
    """transformers' `model`, with faster parts where `can_pack`; else `why_padded` says why not. `forward`
    takes the tensors of `app.batching.collate` and returns one output for each target."""

    # peft's configuration, where only LoRA factors and the head are trained
    adapter = None
    # Whether the head can answer before the training: it is fitted first, or was trained on these labels
    knows_labels = False
    # The precision of a pass. The model itself enters it: DataParallel runs each copy in a thread, where it
    # turns autocast on again without its dtype, which on CUDA is fp16.
    autocast: Callable[[], AbstractContextManager] = nullcontext

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        replace_dropout(model)
        self.model = model
        config = model.config
        config.return_dict = True
        self.packing = PACKINGS.get(config.model_type)
        self.why_padded = why_padded(config)
        self.can_pack = not self.why_padded
        if self.can_pack:
            model.set_attn_implementation(attention.NAME)
            if self.packing.norm_last:
                model.base_model.embeddings.register_forward_hook(in_bf16)

    def forward(
        self, *args: torch.Tensor, dropout_keys: torch.Tensor | None = None, **inputs: torch.Tensor
    ) -> torch.Tensor:
        with self.autocast(), self.masks(dropout_keys, inputs):
            return self.logits(*args, **inputs)

    def masks(self, dropout_keys: torch.Tensor | None, inputs: dict) -> AbstractContextManager:
        """Return the context in which a pass has the masks of these keys, if it is one of training."""
        if dropout_keys is None or not self.training:
            return nullcontext()
        read_tokens = inputs.get("last_tokens", inputs.get("first_tokens"))
        functions = None if self.can_pack else RowDropout
        return MaskSource(dropout_keys, read_tokens, functions).opened(0)

    def why_not_by_row(self, layout: Layout) -> str:
        """Return why not all random numbers of a pass belong to rows, so that another number of processes or
        other micro-batches change them; empty where all do."""
        config = self.model.config
        if layout.varlen and any(value for name, value in config_numbers(config, "dropout") if "att" in name):
            return "the kernels for attention on this device draw their own masks"
        if config.model_type in WITHOUT_ROWS:
            return f"in a {config.model_type} model the states of a row cannot be told apart"
        if any(value for _name, value in config_numbers(config, "layerdrop")):
            return "layers are left out for a whole micro-batch (layerdrop)"
        return ""

    def checkpoint_layers(self) -> None:
        """Let the backward pass compute each layer again from its input, with the same dropout, instead of
        keeping what the layer computed. Raises InputError for a model that cannot do so."""
        config = self.model.config
        enable = getattr(self.model, "activation_checkpointing_enable", None)
        if enable is None:
            # Older versions of transformers call it so
            enable = self.model.gradient_checkpointing_enable
        # The cache is for generation only, and would be refused with a warning
        config.use_cache = False
        try:
            enable({"use_reentrant": False, "context_fn": contexts_of_layer})
        except ValueError as error:
            raise InputError(
                f"train.gradient_checkpointing true does not work with {config.model_type}: {error}; omit it"
            ) from error

    def build_optimizer(self, config: TrainConfig) -> torch.optim.Optimizer:
        """Return the optimizer of the trainable parameters, see `app.model.optimizer`."""
        return build_optimizer(self, self.model, config)

    def encode(self, input_ids: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        """Return the states of a packed batch's tokens, (1, total_tokens, hidden), or of `read_tokens`."""
        # Another attention function would let tokens attend across rows, without an error.
        assert self.model.config._attn_implementation == attention.NAME
        if self.packing.reads_last:
            inputs["use_cache"] = False
        # All layers attend with the same masks
        inputs[attention.MASKS_OF_PASS] = MasksOfPass()
        return self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state

    def has_varlen_kernels(self, device: torch.device) -> bool:
        """Return whether this model can run packed with variable-length attention on a device."""
        config = self.model.config
        head_size = getattr(config, "head_dim", None)
        if head_size is None:
            head_size = config.hidden_size // config.num_attention_heads
        return self.can_pack and has_varlen_kernels(device, head_size)

    def layout(self, packed: bool, varlen: bool = False) -> Layout:
        """Return the input layout this model needs; `packed` only where it can run so."""
        assert self.can_pack or not packed, self.why_padded
        config = self.model.config
        last_except = None
        if self.packing is not None and self.packing.reads_last:
            # As transformers' decoders: the last token that is not padding
            last_except = config.pad_token_id
            if last_except is None:
                last_except = -1
        # Several heads of queries may share one head of keys
        num_heads = getattr(config, "num_key_value_heads", None)
        if num_heads is None:
            num_heads = getattr(config, "num_attention_heads", 1)
        takes_types = "token_type_ids" in signature(self.model.forward).parameters
        return Layout(
            packed,
            varlen=varlen,
            heads=num_heads,
            pad_id=config.pad_token_id or 0,
            first_position=first_position(config),
            last_except=last_except,
            token_types=takes_types and getattr(config, "type_vocab_size", 2) > 1,
            max_positions=max_positions(config),
        )


def config_numbers(config: PreTrainedConfig, word: str) -> list[tuple[str, float]]:
    """Return the numbers in a configuration whose name has a word, with their names."""
    numbers = []
    for name, value in config.to_dict().items():
        if word in name and isinstance(value, (int, float)):
            numbers.append((name, value))
    return numbers


class InFloat32:
    """Mixin, first in the MRO, for a part of a head: it computes in fp32 also where the encoder runs in lower
    precision. Logits in bf16 would be one of 256 steps between two powers of two: numbers that a regression
    predicts would be rounded, and temperatures and thresholds would be fitted on ties."""

    def forward(self, states: torch.Tensor, *inputs, **options):
        with without_autocast(states.device.type):
            return super().forward(at_least_float32(states), *inputs, **options)


def compute_head_in_float32(model: nn.Module) -> None:
    """Let what comes after the encoder of a model of transformers compute in fp32: all of its parts but the
    encoder, and the encoder's pooler. Only their classes change: parameters keep their names."""
    parts = [module for name, module in model.named_children() if name != model.base_model_prefix]
    pooler = getattr(model.base_model, "pooler", None)
    if isinstance(pooler, nn.Module):
        parts.append(pooler)
    for part in parts:
        original_class = type(part)
        members = {"__module__": original_class.__module__}
        part.__class__ = type(original_class.__name__, (InFloat32, original_class), members)


class Classifier(PackedModel):
    """transformers' model for sequence classification; it returns logits, (num_rows, num_labels) float32."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        compute_head_in_float32(model)
        # ModernBERT may read the mean of all tokens
        self.reads_mean = getattr(model.config, "classifier_pooling", None) == "mean"
        if self.can_pack and not self.reads_mean:
            return_read_tokens_only(layers_of(model)[-1])

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
            read_tokens = last_tokens
            if read_tokens is None:
                read_tokens = first_tokens
            states = self.encode(input_ids, read_tokens=read_tokens, **inputs)
        # (num_rows, 1, hidden): a row of one token each
        return self.packing.head(self.model, states.transpose(0, 1))


def layers_of(model: nn.Module) -> nn.ModuleList:
    """Return the layers of the encoder of a model of transformers whose type runs packed."""
    encoder = getattr(model.base_model, "encoder", model.base_model)
    if hasattr(encoder, "layer"):
        return encoder.layer
    return encoder.layers


def first_position(config: PreTrainedConfig) -> int:
    """Return the position of the first token of a row."""
    packing = PACKINGS.get(config.model_type)
    if packing is None or not packing.counts_from_pad:
        return 0
    return (config.pad_token_id or 0) + 1


def max_positions(config: PreTrainedConfig) -> int | None:
    """Return the most tokens a row may have, or None where the model has no limit."""
    positions = getattr(config, "max_position_embeddings", None)
    # XLNet has -1, which means no limit
    if not isinstance(positions, int) or positions < 0:
        return None
    return max(0, positions - first_position(config))
