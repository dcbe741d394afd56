"""Compose multi-label rows from the sample set: python scripts/compose_labels.py
data/composed/posts.jsonl

Two rows of data/sample/train.tsv are joined and have the labels of both; a third of the rows are single
texts. 其他 (no emotion) is no label here. Each text is used at most once, so no text is in two splits.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

SAMPLE = Path(__file__).resolve().parents[1] / "data" / "sample" / "train.tsv"
NONE = "其他"
PAIRS, SINGLES, SEED = 500, 250, 0


def ended(text: str) -> str:
    """Return a text with a full stop, unless it ends with another mark."""
    return f"{text}。" if text[-1].isalnum() else text


def compose(lines: list[str]) -> list[dict]:
    """Return rows with `text` and `labels`, from lines of text and label."""
    generator = random.Random(SEED)
    left = [line.split("\t") for line in lines]
    generator.shuffle(left)
    sizes = [2] * PAIRS + [1] * SINGLES
    generator.shuffle(sizes)
    rows = []
    for size in sizes:
        parts = [left.pop() for _ in range(size)]
        labels = dict.fromkeys(label for _, label in parts if label != NONE)
        rows.append({"text": "".join(ended(text) for text, _ in parts), "labels": list(labels)})
    return rows


def main() -> None:
    """Write the rows as JSON Lines."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path, metavar="FILE", help="file to write; replaces an earlier one")
    output = parser.parse_args().output
    rows = compose(SAMPLE.read_text(encoding="utf-8").splitlines()[1:])
    lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
    output.write_text("".join(lines), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
