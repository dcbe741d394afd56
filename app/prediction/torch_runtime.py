"""Logits by torch: the packed classifier that training uses, on any of its devices."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..batching import BATCH_TOKENS, CPU_BATCH_TOKENS
from ..batching.collate import collate
from ..batching.loader import to_device
from ..data.tokens import CUT, LongTexts
from ..errors import InputError
from ..model.classifier import Classifier
from ..model.weight_checks import check_passes
from ..ngrams.second_reader import read_second_reader
from ..runtime.devices import Precision, choose_device
from ..runtime.memory import keep_freed_memory
from .load_checkpoint import load_checkpoint, longest_row, task_of_checkpoint
from .predictor import Predictor, Tokens

# A short and a longer text, with which a model is tried before it is used
PROBE_TEXTS = ("好", "好" * 20)


class TorchRuntime:
    """Computes logits with a classifier, whose `tokenizer` is that of transformers. `precision` is fp32 or
    bf16 (autocast). A batch has at most `batch_tokens` tokens (None: a default for the device). Raises
    InputError for a missing device."""

    def __init__(
        self,
        model: Classifier,
        tokenizer: Any,
        device: str = "auto",
        precision: str = "fp32",
        batch_tokens: int | None = None,
    ) -> None:
        self.tokenizer = tokenizer
        self.device = choose_device(device)
        self.model = model.eval().to(self.device)
        has_kernels = self.model.has_varlen_kernels(self.device)
        self.layout = self.model.layout(self.model.can_pack, has_kernels)
        self.precision = Precision(precision, self.device)
        self.model.autocast = self.precision.autocast
        usual_tokens = CPU_BATCH_TOKENS if self.device.type == "cpu" else BATCH_TOKENS
        self.batch_tokens = batch_tokens or usual_tokens
        self.remedy = "choose another checkpoint"
        if self.precision.name == "bf16":
            self.remedy += ", or set --precision fp32"
        self.description = {
            "runtime": "torch",
            "device": str(self.device),
            "precision": self.precision.name,
        }

    @torch.no_grad()
    def logits(self, batches: Iterable[Tokens], on_batch: Callable[[int], None]) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of all batches, copied at the end."""
        outputs = []
        # Not in inference mode: autocast would cast the weights again in each batch
        with self.precision.cached_autocast():
            for batch in batches:
                outputs.append(self.logits_of_batch(batch))
                on_batch(len(batch.windows))
        return torch.cat(outputs).cpu().numpy()

    def logits_of_batch(self, batch: Tokens) -> torch.Tensor:
        inputs = to_device(collate(batch.windows, batch.second_starts, self.layout), self.device)
        try:
            return self.model(**inputs).float()
        except torch.OutOfMemoryError as error:
            raise InputError(
                f"{self.device} is out of memory with {self.batch_tokens:,} tokens a batch; set a "
                "smaller --batch_tokens"
            ) from error


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
    library_tokenizer = tokenizer.backend_tokenizer
    probes = [library_tokenizer.encode(text).ids[:length] for text in PROBE_TEXTS]
    check_passes(classifier, probes)
    return Predictor(
        runtime=TorchRuntime(classifier, tokenizer, **settings),
        tokenizer=library_tokenizer,
        task=task,
        max_length=length,
        truncation_side=tokenizer.truncation_side,
        long=long,
        second_reader=read_second_reader(folder, task.label_names),
    )
