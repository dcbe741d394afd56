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


def cuts_off_sums(cpu: Path = Path("/proc/cpuinfo")) -> bool:
    """Return whether this CPU adds pairs of 8-bit products in 16 bits, which overflow, so that labels change
    (https://github.com/microsoft/onnxruntime/issues/5849): one with AVX2 and without VNNI."""
    features = set(cpu.read_text(encoding="utf-8", errors="replace").split()) if cpu.is_file() else set()
    return "avx2" in features and not features & {"avx512_vnni", "avx_vnni", "amx_int8"}


class OnnxRuntime:
    """Computes logits with an exported graph, in batches of at most `batch_tokens` tokens (None: 256). The
    graph has the names of its `inputs`, and its weights in a file beside it, GRAPH.data."""

    remedy = "export again from another checkpoint"

    def __init__(
        self, graph: Path, inputs: list[str], pad_id: int, precision: str, batch_tokens: int | None = None
    ) -> None:
        self.batch_tokens = batch_tokens or BATCH_TOKENS
        self.description = {"runtime": "onnx", "device": "cpu", "precision": precision}
        self.inputs, self.pad_id = inputs, pad_id
        with needed("onnx"):
            import onnxruntime
        options = onnxruntime.SessionOptions()
        # Errors; warnings are about the graph, which was tried when it was exported
        options.log_severity_level = 3
        given = os.environ.get("OMP_NUM_THREADS", "")
        options.intra_op_num_threads = int(given) if given.isdecimal() and int(given) else joblib.cpu_count()
        try:
            # Read, and not mapped: the file may be replaced, or cut short, while the model is used
            name, weights = f"{graph.name}.data", Path(f"{graph}.data").read_bytes()
            options.add_external_initializers_from_files_in_memory([name], [weights], [len(weights)])
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
            outputs.append(self.session.run(None, {name: arrays[name] for name in self.inputs})[0])
            on_batch(len(batch.windows))
        return np.concatenate(outputs)


def padded(batch: Tokens, pad_id: int) -> dict[str, np.ndarray]:
    """Return `input_ids`, `attention_mask` and `token_type_ids`, each (num_rows, longest) int64."""
    lengths = np.array(list(map(len, batch.windows)))
    columns = np.arange(lengths.max())
    mask = columns < lengths[:, None]
    input_ids = np.full(mask.shape, pad_id, dtype=np.int64)
    input_ids[mask] = np.concatenate(batch.windows)
    starts = lengths if batch.second_starts is None else batch.second_starts
    types = mask & (columns >= starts[:, None])
    return {
        "input_ids": input_ids,
        "attention_mask": mask.astype(np.int64),
        "token_type_ids": types.astype(np.int64),
    }
