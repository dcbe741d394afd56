"""The model whose answers are explained: transformers' own, whose gradients reach the embeddings."""

import copy
import math
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import numpy as np
import torch

from ..data.tokens import RowEncoder
from ..errors import InputError, TrainingError
from ..ngrams.second_reader import read_second_reader
from ..prediction.export_record import is_exported, read_record
from ..prediction.load_checkpoint import load_checkpoint, longest_row, task_of_checkpoint
from ..prediction.open_model import OpenedModel
from ..prediction.torch_runtime import TorchRuntime
from ..prediction.trained_model import read_trained_model, warn_without_decision
from ..runtime.devices import choose_device

PASS_TOKENS = 4096  # tokens of a pass: its rows times its longest row


def rows_of_pass(length: int) -> int:
    """Return how many rows of `length` tokens are computed together."""
    return max(1, PASS_TOKENS // length)


class ExplainedModel:
    """The classifier in `folder` as transformers computes it, with its own attention, in fp32.

    `opened` is the same model as it is in memory already: then its weights are copied, its device is taken,
    and nothing is read from `folder`, whose files may have been replaced. Raises InputError for an exported
    model, and as `load_checkpoint` and `choose_device` do.
    """

    def __init__(self, folder: Path, device: str = "auto", opened: OpenedModel | None = None) -> None:
        if opened is None:
            is_export = is_exported(folder)
        else:
            is_export = not isinstance(opened.predictor.runtime, TorchRuntime)
        if is_export:
            original = read_record(folder).made.get("from", "see export.json")
            raise InputError(
                f"{folder}: an exported model has no gradients, which an explanation needs; use the run that "
                f"it was made from, {original}"
            )
        if opened is None:
            model = self._read(folder, device)
        else:
            model = self._copy(opened)
        has_types_input = "token_type_ids" in signature(model.forward).parameters
        self.takes_types = has_types_input and getattr(model.config, "type_vocab_size", 2) > 1
        model.set_attn_implementation("eager")
        self.model = model.eval().to(self.device).requires_grad_(False)
        self.neutral_id = neutral_token(self.tokenizer)

    def _read(self, folder: Path, device: str) -> torch.nn.Module:
        model, self.tokenizer = load_checkpoint(folder)
        self.task = task_of_checkpoint(folder, model.config)
        self.second_reader = read_second_reader(folder, self.task.label_names)
        self.trained = read_trained_model(folder)
        warn_without_decision(self.trained, self.task)
        max_length = longest_row(model.config, self.tokenizer, self.trained.max_length)
        self.encoder = RowEncoder(
            self.tokenizer.backend_tokenizer,
            max_length,
            self.tokenizer.truncation_side,
            self.trained.long_texts,
        )
        self.device = choose_device(device)
        return model

    def _copy(self, opened: OpenedModel) -> torch.nn.Module:
        predictor = opened.predictor
        self.tokenizer = predictor.runtime.tokenizer
        self.task = predictor.task
        self.second_reader = predictor.second_reader
        self.trained = opened.trained
        self.encoder = predictor.encoder
        self.device = predictor.runtime.device
        # Its attention and its last layer are changed for packed batches, which a copy undoes for itself
        return copy.deepcopy(predictor.runtime.model.model)

    def logits(
        self, inputs: torch.Tensor, token_types: torch.Tensor, added: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the logits, (num_rows, num_labels), of ids, or of their embeddings, and types (num_rows,
        length), with what a second reader has `added`, (num_rows, num_labels). Raises TrainingError for
        logits that are not finite."""
        model_inputs = {"attention_mask": torch.ones_like(token_types)}
        if inputs.is_floating_point():
            model_inputs["inputs_embeds"] = inputs
        else:
            model_inputs["input_ids"] = inputs
        if self.takes_types:
            model_inputs["token_type_ids"] = token_types
        logits = self.model(**model_inputs).logits
        if not logits.isfinite().all():
            raise TrainingError(
                "the model's logits must be finite numbers; its weights are damaged or too large, choose "
                "another checkpoint"
            )
        if added is not None:
            logits = self.tensor(self.second_reader.scale) * logits + added
        return logits

    def log_odds(
        self,
        inputs: torch.Tensor,
        token_types: torch.Tensor,
        label: int,
        added: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return log(p / (1 - p)) of a label: unlike p it does not flatten where the model is sure."""
        return self.task.log_odds(self.logits(inputs, token_types, added), label)

    def log_odds_of_parts(
        self,
        inputs: torch.Tensor,
        parts: torch.Tensor,
        token_types: torch.Tensor,
        label: int,
        remainder: torch.Tensor,
    ) -> torch.Tensor:
        """Return the log-odds of a label, where a second reader adds the sum of `parts`, (num_rows,
        num_units, num_labels), and the `remainder`, (1, num_labels)."""
        return self.log_odds(inputs, token_types, label, added=parts.sum(dim=1) + remainder)

    @torch.no_grad()
    def log_odds_of_rows(
        self, rows: Sequence[np.ndarray], label: int, added: np.ndarray | None = None
    ) -> np.ndarray:
        """Return the log-odds of a label, (num_rows,) float64, of rows of tokens, (2, length) each, and of
        what a second reader adds, (num_rows, num_labels). Rows of one length are computed together, so that
        none is padded."""
        lengths = np.array([row.shape[1] for row in rows])
        log_odds = np.empty(len(rows))
        for length in np.unique(lengths):
            same_length = np.flatnonzero(lengths == length)
            num_batches = math.ceil(len(same_length) / rows_of_pass(int(length)))
            for batch in np.array_split(same_length, num_batches):
                stacked = np.stack([rows[index] for index in batch])
                tokens = torch.as_tensor(stacked, device=self.device)
                added_of_batch = None
                if added is not None:
                    added_of_batch = self.tensor(added[batch])
                batch_log_odds = self.log_odds(tokens[:, 0], tokens[:, 1], label, added_of_batch)
                log_odds[batch] = batch_log_odds.double().cpu().numpy()
        return log_odds

    def tensor(self, values: np.ndarray) -> torch.Tensor:
        """Return values as the model computes them, in single precision on its device."""
        return torch.as_tensor(values, dtype=torch.float32, device=self.device)


def neutral_token(tokenizer) -> int:
    """Return the id of the token that stands for "nothing is known here"."""
    for token_id in (tokenizer.mask_token_id, tokenizer.unk_token_id, tokenizer.pad_token_id):
        if token_id is not None:
            return token_id
    return 0
