"""The rows that predict writes for a checkpoint."""

import csv
import io
from pathlib import Path

from tests.saved_classifier import random_texts
from tests.verbs import predict as main


def predict(folder: Path, tmp_path: Path, *options: str) -> list[dict]:
    """Return the rows of the CSV file that predict writes for 40 texts."""
    (tmp_path / "texts.txt").write_text("\n".join(random_texts(40)), encoding="utf-8")
    output = tmp_path / "output.csv"
    files = ["--input", str(tmp_path / "texts.txt"), "--output", str(output), "--device", "cpu"]
    assert main(["--checkpoint", str(folder), *files, *options]) == 0
    text = output.read_text(encoding="utf-8")
    output.unlink()
    return list(csv.DictReader(io.StringIO(text, newline="")))
