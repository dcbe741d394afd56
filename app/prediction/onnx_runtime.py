"""Logits by ONNX Runtime, on the CPU, from an exported folder; torch is not imported."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import joblib
import numpy as np

from ..errors import InputError, needed, shorten
from .predictor import Tokens

# Larger batches are padded more, and compute no faster
BATCH_TOKENS = 256
# Names in /proc/cpuinfo of instructions that add products of 8 bits in 32 bits
VNNI_FEATURES = {"avx512_vnni", "avx_vnni", "amx_int8"}


def cuts_off_sums(cpu: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this CPU adds pairs of 8-bit products in 16 bits, which overflow, so that labels change
    (https://github.com/microsoft/onnxruntime/issues/5849): one with AVX2 and without VNNI."""
    if not cpu.is_file():
        return False
    features = set(cpu.read_text(encoding="utf-8", errors="replace").split())
    return "avx2" in features and features.isdisjoint(VNNI_FEATURES)


def num_threads() -> int:
    """Return the threads of a computation: OMP_NUM_THREADS, else one for each CPU core."""
    setting = os.environ.get("OMP_NUM_THREADS", "")
    if setting.isdecimal() and int(setting) > 0:
        return int(setting)
    return joblib.cpu_count()


class OnnxRuntime:
    """Computes logits with an exported graph, in batches of at most `batch_tokens` tokens (None: 256). The
    graph has the names of its `inputs`, and its weights in a file beside it, GRAPH.data."""

    remedy = "export again from another checkpoint"

    def __init__(
        self, graph: Path, inputs: list[str], pad_id: int, precision: str, batch_tokens: int | None = None
    ) -> None:
        self.batch_tokens = batch_tokens or BATCH_TOKENS
        self.description = {"runtime": "onnx", "device": "cpu", "precision": precision}
        self.inputs = inputs
        self.pad_id = pad_id
        with needed("onnx"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        # Errors; warnings are about the graph, which was tried when it was exported
        options.log_severity_level = 3
        options.intra_op_num_threads = num_threads()
        try:
            # Read, and not mapped: the file may be replaced, or cut short, while the model is used
            weights_file = Path(f"{graph}.data")
            weights = weights_file.read_bytes()
            options.add_external_initializers_from_files_in_memory(
                [weights_file.name], [weights], [len(weights)]
            )
            self.session = onnxruntime.InferenceSession(
                str(graph), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # noqa: BLE001 - the library's errors have no common class
            raise InputError(
                f"{graph}: the graph could not be loaded ({shorten(str(error), 200)}); export again"
            ) from error

    def logits(self, batches: Iterable[Tokens], on_batch: Callable[[int], None]) -> np.ndarray:
        """Return the logits, (num_rows, num_labels) float32, of the rows of all batches."""
        outputs = []
        for batch in batches:
            arrays = padded(batch, self.pad_id)
            inputs = {name: arrays[name] for name in self.inputs}
            logits = self.session.run(None, inputs)[0]
            outputs.append(logits)
            on_batch(len(batch.windows))
        return np.concatenate(outputs)


def padded(batch: Tokens, pad_id: int) -> dict[str, np.ndarray]:
    """Return `input_ids`, `attention_mask` and `token_type_ids`, each (num_rows, longest) int64."""
    lengths = batch.lengths()
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(batch.windows)
    second_starts = lengths if batch.second_starts is None else batch.second_starts
    types = mask & (columns >= second_starts[:, None])
    return {
        "input_ids": input_ids,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": types.astype(np.int64),
    }
