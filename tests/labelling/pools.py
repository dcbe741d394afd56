"""Pools of short texts whose labels are known, and vectors of them, for tests of labelling."""

from pathlib import Path

import numpy as np

from app.labelling.pool import Pool, open_pool
from app.ngrams.character_model import character_vectorizer

LABELS = ["好评", "差评"]
GOOD = ["很好吃", "味道不错", "送得很快", "非常满意", "下次再来"]
BAD = ["太难吃了", "味道很差", "送得太慢", "非常失望", "再也不来"]


class CharacterVectors:
    """Vectors of the characters of texts, which are there at once."""

    def chunks(self, texts, should_stop=lambda: False):
        vectorizer = character_vectorizer()
        vectors = vectorizer.fit_transform([parts[0] for parts in texts]).toarray()
        yield np.arange(len(texts)), vectors[:, :100]


def label_of(text: str) -> str:
    """Return the right label of a text of `write_pool`."""
    return LABELS[0] if text[: text.index("，")] in GOOD else LABELS[1]


def write_pool(path: Path, num_texts: int = 120) -> Pool:
    """Write a file of different texts with another column, and open it."""
    generator = np.random.default_rng(0)
    lines = ["id,content"]
    for number in range(num_texts):
        beginning = generator.choice([GOOD, BAD][number % 2])
        lines.append(f'{number},"{beginning}，第{number}单"')
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_pool(path)
