"""How the tokens of a row attend, which all functions of attention are told."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Rule:
    """How tokens attend: with this probability of dropout, this factor on the scores (None: the usual one),
    if `causal` only to themselves and earlier tokens, with a `window` only to tokens less far away."""

    dropout: float = 0.0
    scaling: float | None = None
    causal: bool = False
    window: int | None = None
