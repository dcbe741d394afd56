"""Files that are written while they are read, as `cp` and a full disk do it: python -m pytest
tests/prediction/test_files_that_change.py -m slow"""

import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from app.errors import InputError
from app.report.logits_file import LOGITS, SplitLogits, read_logits, write_logits
from chinese_text_classifier import load
from tests import saved_classifier
from tests.saved_classifier import LABELS, SIZES, save_checkpoint

ROOT = Path(__file__).resolve().parents[2]
ROWS, LOADS, PIECES = 100_000, 40, 8


@pytest.mark.slow
def test_weights_and_logits_written_in_place_end_no_process(tmp_path, monkeypatch):
    large = SIZES["bert"] | {"hidden_size": 256, "intermediate_size": 1024}
    monkeypatch.setitem(saved_classifier.SIZES, "bert", large)
    folder, numbers = save_checkpoint(tmp_path / "model"), np.arange(ROWS)
    logits = np.random.default_rng(0).normal(size=(ROWS, 3)).astype(np.float32)
    dev = SplitLogits(numbers, numbers % 3, numbers.astype(np.uint64), logits)
    write_logits(folder / LOGITS, {"dev": dev}, LABELS, 1, "single_label")
    # In a separate process: a mapped file that is cut short would end it with SIGBUS
    command = [sys.executable, "-m", "tests.prediction.test_files_that_change", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def write_in_place(contents: dict[Path, bytes], done: threading.Event) -> None:
    """Write files again and again until it is `done`; each is whole for a moment, and whole at the end."""
    while not done.is_set():
        for path, content in contents.items():
            size = -(-len(content) // PIECES)
            with path.open("wb", 0) as file:
                for start in range(0, len(content), size):
                    file.write(content[start : start + size])
                    done.wait(0.001)
            done.wait(0.02)


def main(folder: Path) -> int:
    """Load again and again; return 0 where each load gives the right numbers or InputError, else 1."""

    def probabilities() -> list:
        return load(folder, device="cpu").predict_proba(["今天"]).tolist()

    def logits() -> list:
        return read_logits(folder / LOGITS).splits["dev"].logits.tolist()

    wanted = {read: read() for read in (probabilities, logits)}
    contents = {path: path.read_bytes() for path in (folder / "model.safetensors", folder / LOGITS)}
    done, refused, found = threading.Event(), [], []
    writer = threading.Thread(target=write_in_place, args=[contents, done])
    writer.start()
    for read in [*wanted] * LOADS:
        try:
            found.append(read() == wanted[read])
        except InputError as error:
            refused.append(str(error))
    done.set()
    writer.join()
    found.append(probabilities() == wanted[probabilities])
    sys.stdout.write(f"{len(found)} loaded, {len(refused)} refused: {refused[-1:]}\n")
    return 0 if all(found) and refused else 1


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
