"""Logits by torch: the packed classifier that training uses, on any of its devices."""

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch

from ..batching.loader import collate, to_device
from ..batching.plan import BATCH_TOKENS, CPU_BATCH_TOKENS
from ..data.long_texts import CUT, LongTexts
from ..errors import InputError, listed
from ..model.classifier import Classifier, check_passes
from ..runtime.devices import Precision, choose_device
from ..runtime.machine import keep_freed_memory
from ..tasks import task_of_model
from ..tasks.task import Task
from .predictor import Predictor, Tokens
from .saved_model import load_checkpoint, longest_row


class TorchRuntime:
    """Computes logits with a classifier. `precision` is fp32 or bf16 (autocast). A batch has at most
    `batch_tokens` tokens (None: a default for the device). Raises InputError for a missing device."""

    def __init__(
        self,
        model: Classifier,
        device: str = "auto",
        precision: str = "fp32",
        batch_tokens: int | None = None,
    ) -> None:
        self.device = choose_device(device)
        self.model = model.eval().to(self.device)
        self.layout = self.model.layout(self.model.can_pack, self.model.has_varlen_kernels(self.device))
        self.precision = Precision(precision, self.device)
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else BATCH_TOKENS)
        bf16 = ", or set --precision fp32" if self.precision.name == "bf16" else ""
        self.remedy = f"choose another checkpoint{bf16}"
        self.description = {"runtime": "torch", "device": str(self.device), "precision": self.precision.name}

    def logits(self, batches: Iterable[Tokens], on_batch: Callable[[int], None]) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of all batches, copied at the end."""
        outputs = []
        for batch in batches:
            outputs.append(self._forward(batch))
            on_batch(len(batch.rows))
        return torch.cat(outputs).cpu().numpy()

    @torch.inference_mode()
    def _forward(self, batch: Tokens) -> torch.Tensor:
        inputs = to_device(collate(batch.rows, batch.second_starts, self.layout), self.device)
        try:
            with self.precision.autocast():
                return self.model(**inputs).float()
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{self.device} is out of memory with {self.batch_tokens:,} tokens a batch; set a smaller "
                "--batch_tokens"
            ) from error


def task_of_checkpoint(folder: Path, config, calibrate: bool = True) -> Task:
    """Return the fitted task of a checkpoint; raises InputError for another kind, too few labels, and for
    missing, repeated or unprintable ones."""
    names = [str(config.id2label.get(label, "")) for label in range(config.num_labels)]
    is_named = len(set(names)) == len(names)
    if not is_named or any(not name or name.encode(errors="ignore").decode() != name for name in names):
        raise InputError(
            f"id2label in config.json must name each label from 0 to {len(names) - 1}, found {listed(names)}"
        )
    try:
        task = task_of_model(config.problem_type, names)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    task.read(folder, calibrate)
    return task


def load_predictor(
    folder: Path,
    trained_length: int | None = None,
    long: LongTexts = CUT,
    calibrate: bool = True,
    **settings,
) -> Predictor:
    """Return the predictor of a folder; `settings`: `device`, `precision`, `batch_tokens` of `TorchRuntime`.

    `trained_length` is the `max_length`, in tokens, that a run was trained with, `long` how it read longer
    texts; `calibrate`: probabilities are those of its temperature. Raises InputError as the functions that it
    calls, and for a model whose logits change with padding.
    """
    keep_freed_memory()
    model, tokenizer = load_checkpoint(folder)
    task = task_of_checkpoint(folder, model.config, calibrate)
    length = longest_row(model.config, tokenizer, trained_length)
    classifier = Classifier(model)
    backend = tokenizer.backend_tokenizer
    check_passes(classifier, *(backend.encode(text).ids[:length] for text in ("好", "好" * 20)))
    runtime = TorchRuntime(classifier, **settings)
    return Predictor(runtime, backend, task, length, tokenizer.truncation_side, long)
