"""What the last layer of a classifier reads: the final states of rows."""

from collections.abc import Sequence

import numpy as np
import torch

from ..batching.plan import token_batches
from ..data.rows import Row
from ..model.head import head_inputs, last_layer
from .predictor import Predictor


def head_states(predictor: Predictor, rows: Sequence[Row]) -> tuple[np.ndarray, np.ndarray]:
    """Return the final states, (num_rows, size) float32, and the logits, (num_rows, num_labels), of one or
    more rows, by a predictor that computes with torch; of a row with windows the means of theirs."""
    tokens = predictor.tokenize(rows)
    windows, runtime = tokens.windows(), predictor.runtime
    order = token_batches(np.array([len(row) for row in windows.rows]), runtime.batch_tokens)
    with head_inputs(last_layer(runtime.model.model)[1]) as states:
        logits = runtime.logits(map(windows.take, order), lambda count: None)
    places = np.argsort(np.concatenate(order), kind="stable")
    return tokens.pooled(torch.cat(states).numpy()[places]), tokens.pooled(logits[places])
