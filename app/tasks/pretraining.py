"""Masked language modelling: predicting hidden tokens, to continue the pretraining of an encoder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from ..errors import InputError, TrainingError
from .task import Objective

if TYPE_CHECKING:
    import torch

    from ..batching.loader import Batch, Layout, Loader
    from ..data.dataset import Split
    from ..data.tokens import TokenStore
    from ..model.masked_language_model import MaskedLanguageModel

EVALUATION_SEED = 0  # the masks of an evaluation are the same for every train.seed
CHUNK = 1 << 22  # tokens counted at once


class Pretraining(Objective):
    """A target is a hidden token; the model's outputs are logits (num_targets, vocabulary)."""

    name = "masked_language_modelling"
    log_metrics = ("loss", "perplexity", "accuracy")
    measures_start = True
    next_command = (
        "train a classifier from it with: python run_single.py --model.name {folder} --data.train "
        "labelled.tsv"
    )

    def prepare(self, config, dataset, tokenizer, device) -> None:
        from ..batching.masking import Masking

        super().prepare(config, dataset, tokenizer, device)
        if tokenizer.mask_token_id is None:
            raise InputError(
                f"data.task {self.name} needs a tokenizer with a mask token; choose another model.name"
            )
        ordinary = np.setdiff1d(list(tokenizer.get_vocab().values()), tokenizer.all_special_ids)
        self.maskings = {
            name: Masking(
                config.train.seed if name == "train" else EVALUATION_SEED, tokenizer.mask_token_id, ordinary
            )
            for name in dataset.splits
        }

    def build_model(self, stores: dict[str, TokenStore]) -> MaskedLanguageModel:
        from ..data.long_texts import highest_id
        from ..model.masked_language_model import build_masked_model

        counts = token_counts(stores["train"].tokens, highest_id(self.tokenizer.backend_tokenizer) + 1)
        return build_masked_model(self.config.model, self.tokenizer, self.config.data.max_length, counts)

    def loader(self, split: Split, store: TokenStore, layout: Layout) -> Loader:
        from ..batching.masking import MaskedLoader
        from ..data.chinese_words import open_words

        words = None
        if self.config.data.whole_words:
            words = open_words(split.table, store, self.tokenizer, self.config.data.cache_dir)
        return MaskedLoader(split, store, layout, self.maskings[split.name], words)

    def loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        from torch.nn.functional import cross_entropy

        return cross_entropy(outputs, targets, reduction="sum")

    def row_results(self, outputs: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return for each row the sum of its losses, its targets, and how many of these were predicted."""
        import torch
        from torch.nn.functional import cross_entropy

        losses = cross_entropy(outputs, batch.labels, reduction="none")
        right = (outputs.argmax(dim=1) == batch.labels).float()
        values = torch.stack([losses, torch.ones_like(losses), right], dim=1)
        rows = batch.label_rows.to(values.device)
        return torch.zeros(len(batch.positions), 3, device=values.device).index_add_(0, rows, values)

    def measure(self, results: np.ndarray) -> dict:
        """Return loss, perplexity and accuracy of the hidden tokens; `results` are of `row_results`."""
        loss_sum, targets, right = results.astype(np.float64).sum(axis=0).tolist()
        if not targets:
            raise TrainingError(
                "the rows of the evaluation have no token that can be masked; use longer texts, or more of "
                "them"
            )
        loss = loss_sum / targets
        figures = {"loss": loss, "perplexity": math.exp(min(loss, 700.0)), "accuracy": right / targets}
        return {"rows": len(results), "targets": int(targets)} | figures


def token_counts(tokens: np.ndarray, vocabulary: int) -> torch.Tensor:
    """Return how often each token is in a flat array of ids, (vocabulary,) int64."""
    import torch

    counts = np.zeros(vocabulary, dtype=np.int64)
    for start in range(0, len(tokens), CHUNK):
        counts += np.bincount(tokens[start : start + CHUNK], minlength=vocabulary)[:vocabulary]
    return torch.from_numpy(counts)
