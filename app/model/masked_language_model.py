"""An encoder that predicts masked tokens, and how its head begins where a checkpoint has none."""

import logging
from operator import attrgetter

import torch
from torch import nn
from torch.nn.functional import linear
from transformers import AutoModelForMaskedLM

from ..config.schema import ModelConfig
from .classifier import PackedModel
from .pretrained import check_fit, make_model
from .source import encoder_config, quiet_transformers

logger = logging.getLogger(__name__)
HEADS = ("cls", "lm_head", "generator_predictions", "generator_lm_head", "head", "decoder")
HEADS += ("pooler", "classifier", "score")
# GELU is nearly linear on small values, and the norm after it scales them up again. So a transform that makes
# states this much smaller begins near the identity.
SHRINK = 0.1
# For each type of model: what comes before the output matrix, the layer of that, and the bias after it
PARTS = {
    "bert": ("cls.predictions.transform", "cls.predictions.decoder", "cls.predictions.bias"),
    "electra": ("generator_predictions", "generator_lm_head", "generator_lm_head.bias"),
    "roberta": ("lm_head", "lm_head.decoder", "lm_head.bias"),
    "modernbert": ("head", "decoder", "decoder.bias"),
}
PARTS |= {"ernie": PARTS["bert"], "xlm-roberta": PARTS["roberta"]}


class MaskedLanguageModel(PackedModel):
    """transformers' model for masked language modelling; only masked tokens go through the head.

    Its logits are (num_masked, vocabulary). The output matrix is that of the embeddings, which is read from
    there: the head has no separate parameter for it, so that weights and optimizer state have it once.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__(model)
        self.parts = PARTS.get(model.config.model_type) if self.can_pack else None
        if self.parts:
            _, output, bias = self.parts
            if bias == f"{output}.bias":
                model.get_submodule(output).weight = None
            else:
                model.set_submodule(output, nn.Identity())

    def forward(
        self,
        input_ids: torch.Tensor,
        masked: torch.Tensor | None = None,
        first_tokens: torch.Tensor | None = None,
        **inputs: torch.Tensor,
    ) -> torch.Tensor:
        """Return the logits of the tokens at `masked`, see `batching.masking`; None: of first tokens."""
        if self.parts is None:
            logits = self.model(input_ids=input_ids, **inputs).logits
            return logits[:, 0] if masked is None else logits[masked]
        if first_tokens is None:
            hidden = self.model.base_model(input_ids=input_ids, **inputs).last_hidden_state
            states = hidden[:, 0] if masked is None else hidden[masked]
        else:
            tokens = first_tokens if masked is None else masked
            states = self.encode(input_ids, **inputs).squeeze(0).index_select(0, tokens)
        transform, _, bias = (attrgetter(part)(self.model) for part in self.parts)
        return linear(transform(states), self.model.get_input_embeddings().weight, bias)


def build_masked_model(
    settings: ModelConfig, tokenizer, max_length: int, token_counts: torch.Tensor
) -> MaskedLanguageModel:
    """Return the model on the CPU in fp32; a checkpoint's head for something else is replaced, see
    `start_head`, by `token_counts` (vocabulary,) of the training rows. Raises InputError as `build_model`."""
    with quiet_transformers():
        config = encoder_config(settings, tokenizer)
        config.tie_word_embeddings = True
        check_fit(config, tokenizer, max_length)
        model, info = make_model(settings, config, AutoModelForMaskedLM, HEADS)
        if settings.name is not None and start_head(model, info["missing_keys"], token_counts):
            logger.info(
                "%s has no head for masked language modelling: a new one begins from its embeddings",
                settings.name,
            )
        return MaskedLanguageModel(model)


@torch.no_grad()
def start_head(model: nn.Module, missing: set[str], token_counts: torch.Tensor) -> bool:
    """Have a head without saved weights begin near the identity; return whether there is one.

    Its transform passes on the states nearly as they are, the norm scales them so that logits are about 1,
    and the bias is the logarithm of how frequent each token is, (vocabulary,) `token_counts`.
    """
    output, embeddings = model.get_output_embeddings(), model.get_input_embeddings().weight
    new = [
        module
        for name, module in model.named_modules()
        if f"{name}.weight" in missing and module is not output and name.startswith(HEADS)
    ]
    for module in new:
        if isinstance(module, nn.LayerNorm):
            module.weight.fill_(1 / float(embeddings.norm(dim=1).mean().clamp(min=1)))
            module.bias.zero_()
        elif isinstance(module, nn.Linear) and module.in_features == module.out_features:
            nn.init.eye_(module.weight).mul_(SHRINK)
            module.bias.zero_()
    if new and getattr(output, "bias", None) is not None:
        counts = token_counts.float() + 1
        output.bias[: len(counts)].copy_((counts / counts.sum()).log())
    return bool(new)
