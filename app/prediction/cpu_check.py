"""A quantised model on another kind of CPU: a few random rows are computed again before it is used.

Without the instructions for sums of 8-bit products (VNNI), a CPU may cut such sums off, and labels change
(https://github.com/microsoft/onnxruntime/issues/5849).
"""

import platform
from pathlib import Path

import numpy as np

from ..errors import InputError
from .predictor import Predictor, Tokens

FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
# x86 instructions that add 8-bit products in 32 bits
EXACT = {"avx512_vnni", "avx_vnni", "amx_int8"}
NUM_ROWS, MAX_TOKENS = 8, 64
# Sums in another order differ too, by less than what quantising changed
SLACK = 2


def cpu_kind() -> str:
    """Return the kind of this CPU, as far as sums of 8-bit products depend on it."""
    path = Path("/proc/cpuinfo")
    words = set(path.read_text(encoding="utf-8", errors="replace").split()) if path.is_file() else set()
    return " ".join([platform.machine(), *(name for name in FEATURES if name in words)])


def cuts_off_sums(kind: str = "") -> bool:
    """Return whether a CPU, by default this one, adds pairs of 8-bit products in 16 bits, which overflow."""
    features = set((kind or cpu_kind()).split())
    return "avx2" in features and not features & EXACT


def make_check(predictor: Predictor, tolerance: float) -> dict:
    """Return what `run_check` needs: random rows, no texts of the user, their logits here, the kind of CPU.
    `tolerance` is the largest difference of a logit that quantising made."""
    generator = np.random.default_rng(0)
    longest = min(predictor.max_length or MAX_TOKENS, MAX_TOKENS)
    size = predictor.tokenizer.get_vocab_size()
    rows = [generator.integers(0, size, length) for length in np.linspace(4, longest, NUM_ROWS, dtype=int)]
    logits = predictor.runtime.logits([Tokens(rows, None)], lambda count: None)
    values = {
        "rows": [row.tolist() for row in rows],
        "logits": logits.tolist(),
        "tolerance": SLACK * tolerance,
    }
    return {"cpu": cpu_kind()} | values


def run_check(folder: Path, predictor: Predictor, check: dict) -> None:
    """Raise InputError if a model that was exported on another kind of CPU gives other logits here."""
    if not check or check["cpu"] == cpu_kind():
        return
    tokens = Tokens([np.array(row, dtype=np.int64) for row in check["rows"]], None)
    logits = predictor.runtime.logits([tokens], lambda count: None)
    largest = float(np.abs(logits - np.array(check["logits"])).max())
    if not largest <= check["tolerance"]:
        raise InputError(
            f"{folder}: the model was quantised on another kind of CPU ({check['cpu']}); on this one "
            f"({cpu_kind()}) a logit differs by {largest:.3g}, allowed is {check['tolerance']:.3g}; export "
            "it again on this machine"
        )
