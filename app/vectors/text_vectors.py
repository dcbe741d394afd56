"""Texts -> vectors of length 1: the mean of the encoder's last states of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..batching.loader import collate, means_of_rows, to_device
from ..batching.token_limit import BATCH_TOKENS, CPU_BATCH_TOKENS, token_batches
from ..data.tokens import RowEncoder, parts_of
from ..model.classifier import PackedModel
from ..runtime.devices import choose_device

CHUNK_ROWS = 2048


@torch.inference_mode()
def text_vectors(
    model: PackedModel, encoder: RowEncoder, texts: Sequence[str | tuple[str, str]], device: str = "auto"
) -> np.ndarray:
    """Return the vectors, (num_texts, size) float32, of texts or of pairs, by the model of a classifier, in
    fp32; `encoder` makes tokens of texts. Raises InputError for a text that has no token."""
    on = choose_device(device)
    model.eval().to(on)
    layout = model.layout(model.can_pack, model.has_varlen_kernels(on))
    budget, vectors = CPU_BATCH_TOKENS if on.type == "cpu" else BATCH_TOKENS, []
    for start in range(0, len(texts), CHUNK_ROWS):
        chunk = [*texts[start : start + CHUNK_ROWS]]
        encoded = encoder.encode(chunk, lambda index, start=start: f"text {start + index + 1}")
        windows, lengths = parts_of(encoded.tokens.astype(np.int64), encoded.lengths), encoded.lengths
        means = torch.empty(len(windows), model.model.config.hidden_size)
        for batch in token_batches(lengths, budget):
            # The rows of pairs have one window each
            starts = None if encoded.second_starts is None else encoded.second_starts[batch]
            inputs = to_device(collate([windows[index] for index in batch], starts, layout), on)
            if layout.packed:
                # With these, the last layer would be computed for the first tokens only
                inputs.pop("first_tokens")
                states = model.encode(**inputs)[0]
            else:
                states = model.model.base_model(**inputs).last_hidden_state
                states = states[inputs["attention_mask"].bool()]
            counts = torch.from_numpy(lengths[batch]).to(on)
            means[torch.from_numpy(batch)] = means_of_rows(states.float(), counts).cpu()
        means = means_of_rows(means, torch.from_numpy(encoded.counts))
        vectors.append(torch.nn.functional.normalize(means).numpy())
    return np.concatenate(vectors)
