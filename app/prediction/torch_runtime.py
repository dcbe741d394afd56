"""A checkpoint folder -> its classifier and tokenizer, after checks of the folder; and logits by torch: the
packed classifier that training uses, on any of its devices."""

from collections.abc import Callable, Iterable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoTokenizer

from ..batching import BATCH_TOKENS, CPU_BATCH_TOKENS
from ..batching.collate import collate
from ..batching.loader import to_device
from ..checkpoints.model_record import check_record
from ..checkpoints.run_files import MODEL
from ..data.tokens import CUT, LongTexts, guarded, highest_id
from ..errors import InputError, excerpt, listed, nearest
from ..model.checkpoint import checkpoint_config, load_weights
from ..model.classifier import Classifier, max_positions
from ..model.tokenizer import check_tokenizer
from ..model.transformers_errors import quiet_transformers
from ..model.weight_checks import check_passes, check_vocabulary, check_weights
from ..runtime.devices import Precision, choose_device
from ..runtime.disk import read_json
from ..runtime.memory import keep_freed_memory
from ..runtime.processes import MODEL_LOCK
from ..tasks import task_of_model
from ..tasks.decision_file import read_decision_file
from ..tasks.task import Task
from ..words import _
from .predictor import Predictor, Tokens

INDEX = f"{MODEL}.index.json"
TOKENIZERS = ("tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "*.bpe.model")
NEEDED = {"config.json": ("config.json",), "weights": (MODEL, INDEX), "tokenizer": TOKENIZERS}


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
        self.layout = self.model.layout(self.model.can_pack, self.model.has_varlen_kernels(self.device))
        self.precision = Precision(precision, self.device)
        self.model.autocast = self.precision.autocast
        self.batch_tokens = batch_tokens or (CPU_BATCH_TOKENS if self.device.type == "cpu" else BATCH_TOKENS)
        bf16 = ", or set --precision fp32" if self.precision.name == "bf16" else ""
        self.remedy = f"choose another checkpoint{bf16}"
        self.description = {"runtime": "torch", "device": str(self.device), "precision": self.precision.name}

    @torch.inference_mode()
    def logits(self, batches: Iterable[Tokens], on_batch: Callable[[int], None]) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of all batches, copied at the end."""
        outputs = []
        for batch in batches:
            inputs = to_device(collate(batch.windows, batch.second_starts, self.layout), self.device)
            try:
                outputs.append(self.model(**inputs).float())
            except torch.OutOfMemoryError as error:
                raise InputError(
                    f"{self.device} is out of memory with {self.batch_tokens:,} tokens a batch; set a "
                    "smaller --batch_tokens"
                ) from error
            on_batch(len(batch.windows))
        return torch.cat(outputs).cpu().numpy()


def load_predictor(
    folder: Path, trained_length: int | None = None, long: LongTexts = CUT, calibrate: bool = True, **settings
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
    check_passes(classifier, [backend.encode(text).ids[:length] for text in ("好", "好" * 20)])
    runtime = TorchRuntime(classifier, tokenizer, **settings)
    return Predictor(runtime, backend, task, length, tokenizer.truncation_side, long)


def load_checkpoint(folder: Path) -> tuple[torch.nn.Module, object]:
    """Return transformers' model for sequence classification, on the CPU in fp32, and its fast tokenizer.

    Nothing is downloaded, no code of the checkpoint is run, and weights are read from safetensors only, into
    memory: the file may be replaced, or cut short, while the model is used. Raises InputError saying what is
    wrong with the folder.
    """
    check_folder(folder)
    check_record(folder)
    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        # Its warnings about missing weights are errors below
        with MODEL_LOCK, quiet_transformers():
            config = checkpoint_config(folder)
            with guarded("its tokenizer"):
                tokenizer = AutoTokenizer.from_pretrained(folder, config=config, **local)
            model, info = load_weights(folder, config, use_safetensors=True, **local)
    except Exception as error:  # noqa: BLE001 - tokenizers raises plain Exception, transformers errors of many types
        problem = " ".join(str(error).split()) or type(error).__name__
        raise InputError(
            f"{folder}: the checkpoint could not be loaded: {problem}; copy the folder again, or save "
            "the model again"
        ) from error
    check_weights(str(folder), model, info)
    for name, saved, needed in sorted(info["mismatched_keys"]):
        found = f"{name} has shape {tuple(saved)}, and {tuple(needed)} is needed"
        raise InputError(f"{folder}: {found}; correct config.json, or copy the folder again")
    if wrong := sorted(info["missing_keys"]):
        raise InputError(
            f"{folder}: weights are missing or of the wrong size: {listed(wrong, 1)}; a trained classifier "
            f"is needed; train one with --model.name {folder}"
        )
    if not tokenizer.is_fast:
        raise InputError(
            f"{folder}: the tokenizer must be a fast one, found {type(tokenizer).__name__}; add a "
            "tokenizer.json"
        )
    check_tokenizer(tokenizer.backend_tokenizer, str(folder))
    check_vocabulary(model.config, highest_id(tokenizer.backend_tokenizer) + 1, f"{folder}: ")
    return model, tokenizer


def check_folder(folder: Path) -> None:
    """Raise InputError unless `folder` has a configuration, safetensors weights and a tokenizer, and an index
    of weights names nothing else: transformers would open whatever it names, pickles too."""
    rule = _(
        "{folder}: a checkpoint must be a folder with config.json, model.safetensors and a tokenizer; "
        "{problem}"
    )
    if not folder.is_dir():
        beside = folder.parent.iterdir() if folder.parent.is_dir() else ()
        problem = _("found a file") if folder.exists() else _("there is no such folder")
        problem += nearest(str(folder), [str(path) for path in beside if path.is_dir()])
        raise InputError(rule.format(folder=folder, problem=problem))
    names = sorted(path.name for path in folder.iterdir() if path.is_file())
    for what, patterns in NEEDED.items():
        if not any(fnmatch(name, pattern) for name in names for pattern in patterns):
            # A pickle is no weights: it could run any code
            problem = f"found no {what}, only: {listed(names, 8) or '(it is empty)'}; save it there with "
            problem += "save_pretrained of a recent transformers"
            raise InputError(rule.format(folder=folder, problem=problem))
    if MODEL in names:
        return
    index = read_json(folder / INDEX)
    shards = index.get("weight_map") if isinstance(index, dict) else index
    named = shards.values() if isinstance(shards, dict) and shards else [shards]
    for name in named:
        if not (isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors")):
            raise InputError(
                f"{folder / INDEX}: not a readable index of weights: only safetensors files of the folder "
                f"are read, found {excerpt(name)}; save the model again"
            )


def longest_row(model_config, tokenizer, trained_length: int | None) -> int | None:
    """Return the tokens at which rows are cut, or None for no limit. It is the length of the training, else
    that of the tokenizer, but no more than the model has positions."""
    candidates = (trained_length or tokenizer.model_max_length, max_positions(model_config))
    # A tokenizer without a limit has 10**30.
    limits = [limit for limit in candidates if isinstance(limit, int) and 0 < limit < 1 << 31]
    return min(limits, default=None)


def task_of_checkpoint(folder: Path, config, calibrate: bool = True) -> Task:
    """Return the fitted task of a checkpoint; raises InputError for another kind, too few labels, and for
    missing, repeated or unprintable ones."""
    names = [str(config.id2label.get(label, "")) for label in range(config.num_labels)]
    is_named = len(set(names)) == len(names)
    if not is_named or any(not name or name.encode(errors="ignore").decode() != name for name in names):
        rule = f"id2label must name each label from 0 to {len(names) - 1}, each once"
        raise InputError(f"{folder / 'config.json'}: {rule}, found {listed(names)}; correct it")
    try:
        task = task_of_model(config.problem_type, names)
    except InputError as error:
        raise InputError(f"{folder}: {error}") from error
    read_decision_file(folder, task, calibrate)
    return task
