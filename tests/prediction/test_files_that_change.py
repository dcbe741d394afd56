"""Files that are written while they are read: python -m pytest tests/prediction/test_files_that_change.py"""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.evaluation.logits_file import LOGITS, SplitLogits, write_logits
from tests import saved_classifier
from tests.saved_classifier import LABELS, SIZES, save_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ROWS = 100_000


@pytest.mark.slow
def test_weights_and_logits_written_in_place_end_no_process(tmp_path, monkeypatch):
    large = SIZES["bert"] | {"hidden_size": 256, "intermediate_size": 1024}
    monkeypatch.setitem(saved_classifier.SIZES, "bert", large)
    folder, numbers = save_checkpoint(tmp_path / "model"), np.arange(ROWS)
    logits = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    dev = SplitLogits(numbers, numbers % 3, numbers.astype(np.uint64), logits)
    write_logits(folder / LOGITS, {"dev": dev}, LABELS, 1, "single_label")
    # In a process of its own: a mapped file that is cut short would end it with SIGBUS
    command = [sys.executable, "-m", "tests.prediction.files_that_change", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
