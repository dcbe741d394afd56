"""The results of masked language modelling -> metrics and the report."""

from __future__ import annotations

import math

import numpy as np

from ..errors import TrainingError


def masked_token_metrics(results: np.ndarray) -> dict:
    """Return loss (mean over targets), perplexity, accuracy, and how many targets and rows there are.

    `results` (num_rows, 3) are for each row the sum of its losses, its targets, and how many of them were
    predicted right.
    """
    loss_sum, targets, right = results.astype(np.float64).sum(axis=0).tolist()
    if not targets:
        raise TrainingError(
            "the rows of the evaluation have no token that can be masked; use longer texts, or more of them"
        )
    loss = loss_sum / targets
    perplexity = math.exp(min(loss, 700.0))
    return {
        "rows": len(results),
        "targets": int(targets),
        "loss": loss,
        "perplexity": perplexity,
        "accuracy": right / targets,
    }


def render_masked_tokens(metrics: dict, start: dict, title: str) -> str:
    """Return the printed report: perplexity and accuracy of the same masked tokens before and after the
    training."""
    lines = [
        title,
        f"{metrics['targets']:,} masked tokens of {metrics['rows']:,} rows, the same before and after",
    ]
    for name in ("perplexity", "accuracy", "loss"):
        before = f"{start[name]:10.4f} before " if name in start else ""
        lines.append(f"  {name:10} {before}{metrics[name]:10.4f} after")
    return "\n".join(lines)
