"""Texts -> vectors of length 1: the mean of the encoder's last states of their tokens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from ..batching.loader import collate, means_of_rows, to_device
from ..batching.plan import BATCH_TOKENS, CPU_BATCH_TOKENS, token_batches
from ..data.cache import build_once, content_key
from ..data.long_texts import RowEncoder
from ..model.classifier import PackedModel
from ..runtime.devices import choose_device

Texts = Sequence[str] | Sequence[tuple[str, str]]
VERSION = 4
CHUNK_ROWS = 2048
FILE = "vectors.npy"


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
        self._write(vectors, texts)
        return vectors

    def stored(self, texts: Texts, folder: str | Path) -> np.ndarray:
        """Return the vectors of `texts`, (num_texts, size) float32, mapped from a file in `folder`, a cache.

        They are computed once: the file's name follows from the texts, the weights and the tokens. Raises
        InputError as `compute`, and the errors of `build_once`.
        """
        if not texts:
            return self.compute(texts)

        def build(aside: Path) -> None:
            shape = (len(texts), self.size)
            vectors = np.lib.format.open_memmap(aside / FILE, "w+", np.float32, shape)
            self._write(vectors, texts)
            vectors.flush()

        rows, weights = self.rows, self.model.model.base_model.state_dict().values()
        settings = VERSION, repr(rows.long), rows.side, rows.max_length, rows.tokenizer.to_str()
        model = content_key(*settings, *(tensor.cpu().numpy().tobytes() for tensor in weights))
        folder = Path(folder) / f"vectors-{content_key(model, list(texts))}"
        # With 0 bytes it is built in this process, which has the model
        return np.load(build_once(folder, build, num_bytes=0) / FILE, mmap_mode="r")

    def _write(self, vectors: np.ndarray, texts: Texts) -> None:
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


def nearest(vectors: np.ndarray, queries: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the similarities (cosines) and the rows of the `count` vectors nearest to each query, the
    nearest first, both (num_queries, count); fewer columns where there are fewer vectors. `vectors` are
    (num_vectors, size), `queries` (num_queries, size)."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, len(vectors))
    if not count or not len(queries):
        return np.empty((len(queries), count), np.float32), np.empty((len(queries), count), np.int64)
    neighbours = NearestNeighbors(metric="cosine", algorithm="brute").fit(vectors)
    distances, rows = neighbours.kneighbors(queries, count)
    return 1 - distances, rows
