"""Files of generated rows: as long as the sample set's texts, of its characters as often as they are there."""

from __future__ import annotations

from pathlib import Path

import numpy as np

SAMPLE = Path(__file__).resolve().parents[2] / "data" / "sample" / "train.tsv"
# Rows made at once
BLOCK = 100_000


def write_rows(path: Path, num_rows: int, seed: int = 0) -> None:
    """Write a TSV file of `num_rows` texts with labels; the same seed gives the same rows."""
    lines = SAMPLE.read_text(encoding="utf-8").splitlines()[1:]
    texts, labels = zip(*(line.split("\t") for line in lines), strict=True)
    characters = np.array([c for text in texts for c in text if c.isprintable() and not c.isspace()])
    lengths = np.array([len(text) for text in texts])
    label_names = np.array(sorted(set(labels)))
    generator = np.random.default_rng(seed)
    with path.open("w", encoding="utf-8", newline="") as file:
        file.write("text\tlabel\n")
        for start in range(0, num_rows, BLOCK):
            ends = np.cumsum(generator.choice(lengths, min(BLOCK, num_rows - start)))
            drawn = "".join(generator.choice(characters, ends[-1]).tolist())
            starts = [0, *ends[:-1].tolist()]
            chosen = generator.choice(label_names, len(ends)).tolist()
            file.writelines(
                f"{drawn[start:end]}\t{label}\n"
                for start, end, label in zip(starts, ends.tolist(), chosen, strict=True)
            )
