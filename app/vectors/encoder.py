"""An encoder as it stands, trained or not, and the vectors that its last layer reads of texts."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from ..config.schema import DataConfig, ModelConfig
from ..config.shipped import E5_SMALL
from ..data.cache import content_key, files_digest
from ..data.rows import Row
from ..data.tokens import LongTexts
from ..errors import InputError
from ..model.build_model import build_model
from ..model.checkpoint import checkpoint_config, checkpoint_place
from ..model.classifier import max_positions
from ..model.head_choice import E5_PREFIX
from ..model.linear_start import returning_head_inputs
from ..model.tokenizer import load_tokenizer
from ..prediction.export_record import is_exported
from ..prediction.open_model import ComputeOptions, open_model
from ..prediction.predictor import Predictor
from ..prediction.torch_runtime import TorchRuntime
from ..prediction.trained_model import MODEL_FILES
from ..tasks import unordered_task

VERSION = 1  # of the vectors in the cache; another way to compute them needs another one
LABELS = ["0", "1"]  # of the head that is left out: an encoder knows no labels
# A text is read whole, in windows, unless the training of a run read less of it
WHOLE_TEXTS = LongTexts("windows", DataConfig.max_windows)


@dataclass(frozen=True)
class TextEncoder:
    """Computes vectors of texts. `name` is what people call it; `key` depends on all that its vectors depend
    on, beside the texts."""

    name: str
    key: str
    predictor: Predictor

    def vectors(
        self, texts: Sequence[tuple[str, ...]], on_batch: Callable[[float], None] = lambda rows: None
    ) -> np.ndarray:
        """Return the vectors of texts, or of pairs of them, (num_texts, size) float32; of a text that is read
        in windows the mean of theirs. `on_batch` is called with the number of texts of each batch."""
        rows = []
        for number, parts in enumerate(texts, 1):
            pair = parts[1] if len(parts) > 1 else None
            rows.append(Row(number, parts[0], pair, None))
        tokens = self.predictor.tokenize(rows)
        with returning_head_inputs(self.predictor.runtime.model):
            return self.predictor.logits(tokens, on_batch)


def open_encoder(
    model: str = E5_SMALL,
    checkpoint: Path | None = None,
    cache_dir: str = DataConfig.cache_dir,
    device: str = "auto",
) -> TextEncoder:
    """Return the encoder `model`, a value of `model.name`, as `model.head linear` uses it; with `checkpoint`
    that of a trained run, which reads texts as in its training. Raises InputError for a model that cannot be
    opened, and for an export."""
    if checkpoint is not None:
        return _encoder_of_run(checkpoint, device)
    settings = ModelConfig(name=model, head="linear")
    if settings.has_random_weights:
        raise InputError("an encoder with weights is needed, found model random; name a model or a run")
    if model == E5_SMALL:
        settings = replace(settings, prefix=E5_PREFIX)
    place = checkpoint_place(settings, cache_dir)
    max_length = min(DataConfig.max_length, max_positions(checkpoint_config(place)) or sys.maxsize)
    settings = replace(settings, name=place)
    tokenizer = load_tokenizer(settings, None, max_length, cache_dir)
    classifier = build_model(settings, tokenizer, LABELS, max_length)
    predictor = Predictor(
        runtime=TorchRuntime(classifier, tokenizer, device),
        tokenizer=tokenizer.backend_tokenizer,
        task=unordered_task(False, LABELS),
        max_length=max_length,
        truncation_side=tokenizer.truncation_side,
        long=WHOLE_TEXTS,
    )
    weights = place
    if Path(place).is_dir():
        weights = files_digest(Path(place), *MODEL_FILES)
    key = content_key("vectors", VERSION, weights, settings.prefix, max_length, list(predictor.long))
    return TextEncoder(model, key, predictor)


def _encoder_of_run(folder: Path, device: str) -> TextEncoder:
    if is_exported(folder):
        raise InputError(f"{folder}: the weights of a run are needed, found an export; name the run itself")
    opened = open_model(folder, ComputeOptions(device))
    # A second reader adds to logits, which are not computed here
    predictor = replace(opened.predictor, second_reader=None)
    weights = files_digest(folder, *MODEL_FILES)
    key = content_key("vectors", VERSION, weights, predictor.max_length, list(predictor.long))
    return TextEncoder(str(folder), key, predictor)
