"""Integrated gradients: what each token adds to a label's log-odds (https://arxiv.org/abs/1703.01365)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from ..errors import InputError
from .plain_model import BATCH_TOKENS, PlainModel

# From the neutral text to the text; more are taken until the sum is right
STEPS = (32, 64, 128)
# Of the difference that the attributions must add up to,
MAX_ERROR = 0.02
# Or of their absolute values, which may be far larger than their sum
MAX_SHARE = 0.01


@dataclass(frozen=True)
class Attributions:
    """`values` (num_tokens,) float64 add up to `text` - `neutral` + `delta`: the label's log-odds for the
    text, and with `neutral_token` for every token. `delta` is captum's convergence delta, `steps` the
    gradients it took."""

    values: np.ndarray
    text: float
    neutral: float
    neutral_token: str
    delta: float
    steps: int

    @property
    def has_converged(self) -> bool:
        """Whether the attributions add up to what they must."""
        allowed = (
            MAX_ERROR * abs(self.text - self.neutral),
            MAX_SHARE * np.abs(self.values).sum(),
            1e-6,
        )
        return bool(abs(self.delta) <= max(allowed))


def attribute(
    model: PlainModel, input_ids: np.ndarray, token_types: np.ndarray, positions: Sequence[int], label: int
) -> Attributions:
    """Return the attributions of tokens, (num_tokens,) ids, on a straight line from a text that has a neutral
    token at `positions`. Raises InputError where captum is not installed.

    The neutral token is the first of `model.neutral_tokens` from which they add up. Fine-tuned encoders can
    change within a thousandth of the way from [MASK], which no number of steps adds up.
    """
    try:
        from captum.attr import IntegratedGradients
    except ImportError as error:
        raise InputError(
            f"explain needs captum ({error}); install it: pip install -r requirements/explain.txt -c "
            "constraints.txt"
        ) from error
    text = model.embed(input_ids)[None]
    types = torch.as_tensor(token_types, device=model.device)[None]

    def forward(embeddings: torch.Tensor) -> torch.Tensor:
        return model.task.log_odds(model.logits(embeddings, types.expand(len(embeddings), -1)), label)

    @torch.no_grad()
    def log_odds(embeddings: torch.Tensor) -> float:
        return float(forward(embeddings))

    rows = max(1, BATCH_TOKENS // len(input_ids))
    method = IntegratedGradients(forward, multiply_by_inputs=True)
    of_text = log_odds(text)
    for token in model.neutral_tokens:
        neutral_ids = input_ids.copy()
        neutral_ids[positions] = model.tokenizer.convert_tokens_to_ids(token)
        neutral = model.embed(neutral_ids)[None]
        of_neutral = log_odds(neutral)
        for steps in STEPS:
            gradients = method.attribute(text, neutral, n_steps=steps, internal_batch_size=rows)
            values = gradients[0].double().sum(-1).cpu().numpy()
            # As captum defines it; computed here, because captum rounds it to single precision.
            delta = float(values.sum() - (of_text - of_neutral))
            attributions = Attributions(values, of_text, of_neutral, token, delta, steps)
            if attributions.has_converged:
                return attributions
    return attributions
