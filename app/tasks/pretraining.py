"""Masked language modelling: predicting hidden tokens, to continue the pretraining of an encoder."""

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from ..errors import InputError, TrainingError
from .task import Task

EVALUATION_SEED = 0  # the masks of an evaluation are the same for every train.seed


class Pretraining(Task):
    """A target is a hidden token; the model's outputs are logits (num_targets, vocabulary)."""

    name = "masked_language_modelling"
    problem_type = None
    has_labels = False
    main_metric = "accuracy"
    log_metrics = ("loss", "perplexity", "accuracy")
    baseline_metrics = ("accuracy",)

    def build_loss(self, labels: np.ndarray) -> Callable:
        from torch.nn.functional import cross_entropy

        if self.tokenizer.mask_token_id is None:
            raise InputError(
                f"data.task {self.name} needs a tokenizer with a mask token; choose another model.name"
            )
        return partial(cross_entropy, reduction="sum")

    def build_model(self):
        from ..model.build_model import build_masked_model

        return build_masked_model(self.config.model, self.tokenizer, self.config.data.max_length)

    def loader(self, split, store, layout):
        from ..batching.masking import MaskedLoader, masked_row

        tokenizer = self.tokenizer
        token_ids = list(tokenizer.get_vocab().values())
        ordinary_ids = np.setdiff1d(token_ids, tokenizer.all_special_ids)
        seed = EVALUATION_SEED
        if split.name == "train":
            seed = self.config.train.seed
        mask = partial(masked_row, seed=seed, mask_id=tokenizer.mask_token_id, ordinary_ids=ordinary_ids)
        return MaskedLoader(split, store, layout, mask)

    def row_results(self, outputs, batch):
        """Return for each row the sum of its losses, its targets, and how many of these were predicted."""
        import torch
        from torch.nn.functional import cross_entropy

        losses = cross_entropy(outputs, batch.labels, reduction="none")
        right = (outputs.argmax(dim=1) == batch.labels).float()
        values = torch.stack([losses, torch.ones_like(losses), right], dim=1)
        rows = batch.label_rows.to(values.device)
        return torch.zeros(len(batch.positions), 3, device=values.device).index_add_(0, rows, values)

    def measure(self, results: np.ndarray) -> dict:
        """Return loss, perplexity and accuracy of the hidden tokens; `row_results` returned `results`."""
        loss_sum, num_targets, num_right = results.astype(np.float64).sum(axis=0).tolist()
        if num_targets == 0:
            raise TrainingError("the rows of the evaluation have no token to mask; use longer or more texts")
        loss = loss_sum / num_targets
        return {
            "rows": len(results),
            "targets": int(num_targets),
            "loss": loss,
            # exp of more than 709 is too large for a float
            "perplexity": math.exp(min(loss, 700.0)),
            "accuracy": num_right / num_targets,
        }
