"""A trained checkpoint -> labels and probabilities of any number of texts, a chunk of rows at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from app.batching.collate import collate
from app.batching.loader import to_device
from app.data.rows import Row
from app.errors import InputError, TrainingError, excerpt, listed
from app.evaluation.metrics import probabilities
from app.model.classifier import Classifier, check_padding
from app.prediction.saved_model import load_checkpoint, longest_row
from app.runtime.devices import choose_device
from app.runtime.host_memory import keep_freed_memory
from app.runtime.precision import Precision

CHUNK_ROWS = (
    2048  # tokenised and sorted together: large enough for batches of similar lengths, small enough for a moving bar
)
CPU_BATCH_TOKENS = 1024  # larger batches do not fit into the caches of the cores
BATCH_TOKENS = 32768  # on other devices


class Prediction(NamedTuple):
    """The label of one row; `probabilities` (num_labels,) float64 in the order of the label ids."""

    row: Row
    label: str
    probabilities: np.ndarray


class Predictor:
    """Classifies rows in their order, holding one chunk of them in memory.

    `model` is transformers' model for sequence classification, `tokenizer` its fast tokenizer. Rows are cut at `max_length`
    tokens (None: never). `precision` is fp32 or bf16 (autocast). A batch has at most `batch_tokens` tokens, counted as
    rows x longest row (None: a default for the device). Raises InputError for a model that does not choose one of two or
    more labels, for one whose logits change with padding, and for a missing device.
    """

    def __init__(
        self,
        model: nn.Module,
        tokenizer,
        max_length: int | None,
        device: str = "auto",
        precision: str = "fp32",
        batch_tokens: int | None = None,
    ) -> None:
        config = model.config
        if config.num_labels < 2 or config.problem_type not in (None, "single_label_classification"):
            raise InputError(
                f"the model must choose one of two or more labels, found {config.num_labels} label(s) and problem_type "
                f"{config.problem_type}"
            )
        self.device = choose_device(device)
        self.model = Classifier(model).eval()
        self.layout = self.model.layout(self.model.can_pack, self.model.has_varlen_kernels(self.device))
        self.precision = Precision(precision, self.device)
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else BATCH_TOKENS)
        self.label_names = _label_names(config)
        self.backend = tokenizer.backend_tokenizer
        self.backend.no_padding()
        self.backend.no_truncation()
        if max_length is not None:
            self.backend.enable_truncation(max_length, direction=tokenizer.truncation_side)
        if not self.model.can_pack:
            check_padding(self.model, *(self.backend.encode(text).ids for text in ("好", "好" * 20)))
        self.model.to(self.device)

    def predict(
        self, rows: Iterable[Row], chunk_rows: int = CHUNK_ROWS, on_batch: Callable[[int], None] = lambda rows: None
    ) -> Iterator[Prediction]:
        """Yield a prediction for each row, in their order, reading `chunk_rows` of them at once.

        Either all rows have a second text or none has. `on_batch` is called with the number of rows of each batch.
        Raises TrainingError for logits that are not finite, before any row of their chunk.
        """
        rows = iter(rows)
        while chunk := list(islice(rows, chunk_rows)):
            texts = [row.text if row.pair is None else (row.text, row.pair) for row in chunk]
            logits = self.logits(texts, on_batch)
            self._check_finite(chunk, logits)
            for row, by_label in zip(chunk, probabilities(logits), strict=True):
                yield Prediction(row, self.label_names[int(by_label.argmax())], by_label)

    def _check_finite(self, rows: list[Row], logits: np.ndarray) -> None:
        bad = np.flatnonzero(~np.isfinite(logits).all(axis=1))
        if not len(bad):
            return
        row, others = rows[bad[0]], f" (and {len(bad) - 1:,} more)" if len(bad) > 1 else ""
        bf16 = ", or set --precision fp32" if self.precision.name == "bf16" else ""
        raise TrainingError(
            f"the model's logits must be finite numbers, found {listed(logits[bad[0]], 5)} for row {row.line}{others}: "
            f"{excerpt(row.text)}; its weights are damaged or too large, choose another checkpoint{bf16}"
        )

    def logits(
        self, texts: Sequence[str] | Sequence[tuple[str, str]], on_batch: Callable[[int], None] = lambda rows: None
    ) -> np.ndarray:
        """Return the logits, (num_texts, num_labels) float32, of one or more texts or pairs of texts."""
        tokens, second_starts = self._tokenize(texts)
        batches = token_batches(np.array([len(row) for row in tokens]), self.batch_tokens)
        outputs = []
        for batch in batches:
            starts = None if second_starts is None else second_starts[batch]
            outputs.append(self._forward([tokens[index] for index in batch], starts))
            on_batch(len(batch))
        by_length = torch.cat(outputs).cpu().numpy()
        logits = np.empty_like(by_length)
        logits[np.concatenate(batches)] = by_length
        return logits

    def _tokenize(self, texts: Sequence) -> tuple[list[np.ndarray], np.ndarray | None]:
        """Return each text's token ids, (length,), and for pairs the number of tokens before each second text."""
        encodings = self.backend.encode_batch_fast(texts)
        tokens = [np.array(encoding.ids, dtype=np.int64) for encoding in encodings]
        if isinstance(texts[0], str):
            return tokens, None
        second_starts = [e.type_ids.index(1) if 1 in e.type_ids else len(e.type_ids) for e in encodings]
        return tokens, np.array(second_starts)

    @torch.inference_mode()
    def _forward(self, tokens: list[np.ndarray], second_starts: np.ndarray | None) -> torch.Tensor:
        inputs = to_device(collate(tokens, second_starts, self.layout), self.device)
        try:
            with self.precision.autocast():
                return self.model(**inputs).float()
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{self.device} is out of memory with {self.batch_tokens:,} tokens a batch; set a smaller --batch_tokens"
            ) from error


def _label_names(config) -> list[str]:
    """Return the names of the labels in the order of their ids; raises InputError for missing, repeated or unprintable ones."""
    names = [str(config.id2label.get(label, "")) for label in range(config.num_labels)]
    if len(set(names)) < len(names) or any(not name or name.encode(errors="ignore").decode() != name for name in names):
        raise InputError(
            f"id2label in config.json must name each label from 0 to {len(names) - 1}, found {listed(names)}"
        )
    return names


def token_batches(lengths: np.ndarray, batch_tokens: int) -> list[np.ndarray]:
    """Return batches of indices into `lengths`, (num_rows,) tokens: rows of similar length together, longest first.

    A batch has at most `batch_tokens` tokens, counted as rows x longest row, or is a single row.
    """
    order = np.argsort(-lengths, kind="stable")
    batches, start = [], 0
    while start < len(order):
        count = max(1, batch_tokens // max(1, int(lengths[order[start]])))
        batches.append(order[start : start + count])
        start += count
    return batches


def load_predictor(folder: Path, trained_length: int | None = None, **settings) -> Predictor:
    """Return the predictor of a checkpoint folder; `settings` are `device`, `precision` and `batch_tokens` of `Predictor`.

    `trained_length` is the `max_length`, in tokens, that a run was trained with. Raises InputError as `load_checkpoint` and
    `Predictor` do.
    """
    keep_freed_memory()
    model, tokenizer = load_checkpoint(folder)
    return Predictor(model, tokenizer, longest_row(model.config, tokenizer, trained_length), **settings)
