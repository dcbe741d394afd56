"""Texts -> vectors of length 1: the mean of the encoder's last states of their tokens."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from ..batching.loader import collate, means_of_rows, to_device
from ..batching.plan import BATCH_TOKENS, CPU_BATCH_TOKENS, token_batches
from ..data.long_texts import RowEncoder
from ..model.classifier import PackedModel
from ..runtime.devices import choose_device

Texts = Sequence[str] | Sequence[tuple[str, str]]
CHUNK_ROWS = 2048


class TextVectors:
    """Computes vectors in fp32 with the encoder of a model, such as that of a loaded classifier. `rows` makes
    tokens of texts; `size` is the length of a vector."""

    def __init__(self, model: PackedModel, rows: RowEncoder, device: str = "auto") -> None:
        self.device = choose_device(device)
        self.model = model.eval().to(self.device)
        self.rows = rows
        self.layout = model.layout(model.can_pack, model.has_varlen_kernels(self.device))
        self.size: int = model.model.config.hidden_size

    def compute(self, texts: Texts) -> np.ndarray:
        """Return the vectors, (num_texts, size) float32, of texts or of pairs. Raises InputError for a text
        that has no token."""
        vectors = np.empty((len(texts), self.size), np.float32)
        budget = CPU_BATCH_TOKENS if self.device.type == "cpu" else BATCH_TOKENS
        for start in range(0, len(texts), CHUNK_ROWS):
            chunk = [*texts[start : start + CHUNK_ROWS]]
            encoded = self.rows.encode(chunk, lambda index, start=start: f"text {start + index + 1}")
            windows = [np.array(window, np.int64) for row in encoded for window in row.windows]
            # The rows of pairs have one window each
            second_starts = None if isinstance(chunk[0], str) else [row.second_start for row in encoded]
            means = torch.empty(len(windows), self.size)
            for batch in token_batches(np.array([len(window) for window in windows]), budget):
                starts = None if second_starts is None else [second_starts[index] for index in batch]
                means[torch.from_numpy(batch)] = self._means([windows[index] for index in batch], starts)
            counts = torch.tensor([len(row.windows) for row in encoded])
            normalised = torch.nn.functional.normalize(means_of_rows(means, counts))
            vectors[start : start + len(chunk)] = normalised.numpy()
        return vectors

    @torch.inference_mode()
    def _means(self, rows: list[np.ndarray], second_starts: list[int] | None) -> torch.Tensor:
        """Return the means of the states of the tokens of each row, (num_rows, size), on the CPU."""
        inputs = to_device(collate(rows, second_starts, self.layout), self.device)
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        if self.layout.packed:
            # With these, the last layer would be computed for the first tokens only
            inputs.pop("first_tokens")
            states = self.model.encode(**inputs)[0]
        else:
            states = self.model.model.base_model(**inputs).last_hidden_state
            states = states[inputs["attention_mask"].bool()]
        return means_of_rows(states.float(), lengths).cpu()
