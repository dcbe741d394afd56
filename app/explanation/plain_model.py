"""A freshly loaded model of transformers, with its own attention, whose log-odds can be differentiated."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from inspect import signature
from pathlib import Path

import numpy as np
import torch

from ..data.long_texts import LongTexts, RowEncoder
from ..errors import InputError, TrainingError
from ..prediction.exported_model import is_exported, read_record
from ..prediction.recorded_settings import run_long_texts, run_settings
from ..prediction.saved_model import load_checkpoint, longest_row
from ..prediction.torch_runtime import task_of_checkpoint
from ..runtime.devices import choose_device
from ..tasks.task import Task

# Of a pass: its rows times its longest row
BATCH_TOKENS = 4096


class PlainModel:
    """The classifier of a run as transformers computes it, on `device`, in fp32, with its `task`.
    Log-odds, log(p / (1 - p)), unlike p do not flatten where the model is sure."""

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer,
        max_length: int | None,
        long: LongTexts,
        task: Task,
        device: str,
    ) -> None:
        self.device = choose_device(device)
        model.set_attn_implementation("eager")
        self.model = model.eval().to(self.device).requires_grad_(False)
        self.tokenizer = tokenizer
        self.max_length = max_length
        backend, side = tokenizer.backend_tokenizer, tokenizer.truncation_side
        self.encoder = RowEncoder(backend, max_length, side, long)
        self.task = task
        # Of time.monotonic(), for an explanation that may not take longer
        self.deadline = math.inf
        names = signature(model.forward).parameters
        self.takes_types = "token_type_ids" in names and getattr(model.config, "type_vocab_size", 2) > 1
        if "inputs_embeds" not in names:
            raise InputError(
                f"a {model.config.model_type} model cannot be explained; use a BERT-like encoder"
            )

    @property
    def neutral_tokens(self) -> list[str]:
        """Tokens that stand for "nothing is known here", the usual one first."""
        tokenizer = self.tokenizer
        named = (tokenizer.mask_token, tokenizer.unk_token, tokenizer.pad_token)
        return list(dict.fromkeys(token for token in named if token)) or [tokenizer.convert_ids_to_tokens(0)]

    def embed(self, input_ids: np.ndarray) -> torch.Tensor:
        """Return the word embeddings, (num_tokens, width), of (num_tokens,) ids."""
        return self.model.get_input_embeddings()(torch.as_tensor(input_ids, device=self.device))

    def logits(self, embeddings: torch.Tensor, token_types: torch.Tensor) -> torch.Tensor:
        """Return the logits, (num_rows, num_labels), of embeddings (num_rows, length, width), as
        `Task.scale_logits` returns them."""
        return self.task.scale_logits(self._forward(token_types, inputs_embeds=embeddings))

    def _forward(self, token_types: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor:
        if time.monotonic() > self.deadline:
            raise TimeoutError
        types = {"token_type_ids": token_types} if self.takes_types else {}
        return self.model(attention_mask=torch.ones_like(token_types), **inputs, **types).logits

    @torch.no_grad()
    def log_odds_of_rows(
        self, rows: Sequence[np.ndarray], types: Sequence[np.ndarray], label: int
    ) -> np.ndarray:
        """Return the log-odds of a label, (num_rows,) float64, for rows of token ids and their token types.
        Rows of one length are computed together, so that none is padded."""
        lengths = np.array([len(row) for row in rows])
        log_odds = np.empty(len(rows))
        for length in np.unique(lengths):
            same = np.flatnonzero(lengths == length)
            for batch in np.array_split(same, -(-len(same) * int(length) // BATCH_TOKENS)):
                ids, token_types = (np.stack([values[at] for at in batch]) for values in (rows, types))
                logits = self.logits(self.embed(ids), torch.as_tensor(token_types, device=self.device))
                log_odds[batch] = self.task.log_odds(logits, label).double().cpu().numpy()
        return log_odds

    def probabilities(self, input_ids: np.ndarray, token_types: np.ndarray) -> np.ndarray:
        """Return the probabilities of one row, (num_labels,) float64. Raises TrainingError for non-finite
        logits, InputError where they do not follow from the embeddings of the tokens."""
        with torch.no_grad():
            ids, types = (
                torch.as_tensor(values, device=self.device)[None] for values in (input_ids, token_types)
            )
            logits = self._forward(types, input_ids=ids)
            by_embeddings = self._forward(types, inputs_embeds=self.embed(input_ids)[None])
        if not logits.isfinite().all():
            raise TrainingError(
                "the model's logits must be finite numbers; its weights are damaged or too large, choose "
                "another checkpoint"
            )
        if not torch.allclose(logits, by_embeddings, rtol=1e-3, atol=1e-3):
            raise InputError(
                f"this {self.model.config.model_type} model's logits do not follow from its token "
                "embeddings; use a BERT-like encoder"
            )
        return self.task.probabilities(logits.double().cpu().numpy())[0]


def load_plain_model(folder: Path, device: str = "auto") -> PlainModel:
    """Return the model of a run, or another checkpoint of transformers; raises InputError."""
    if is_exported(folder):
        raise InputError(
            f"{folder}: an exported model has no gradients, which an explanation needs; use the run that it "
            f"was made from, {read_record(folder).made.get('from', 'see export.json')}"
        )
    model, tokenizer = load_checkpoint(folder)
    task = task_of_checkpoint(folder, model.config)
    length = longest_row(model.config, tokenizer, run_settings(folder).get("max_length"))
    return PlainModel(model, tokenizer, length, run_long_texts(folder), task, device)
