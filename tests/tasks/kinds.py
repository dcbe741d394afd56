"""A small run of each kind of answer: the rows that its label follows from, and its settings."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tests.multi_label_runs import write_posts
from tests.tiny import WORDS

# A path may end where others go on
CHARACTERS = {
    "体育": "体",
    "体育-球类-篮球": "篮",
    "体育-球类-足球": "足",
    "财经-基金": "金",
    "财经-股票": "股",
}
PATHS = list(CHARACTERS)


def write_lines(path: Path, rows: list[dict]) -> Path:
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n", encoding="utf-8")
    return path


def write_counted(path: Path, column: str, answers: list, rows: int = 160, seed: int = 0) -> Path:
    """Write rows whose answer is the later one the more often a character is in the text."""
    generator, lines, size = random.Random(seed), [], len(answers)
    for number in range(rows):
        often = generator.randrange(size)
        characters = list("好" * often + "天" * (size - often))
        generator.shuffle(characters)
        lines.append({"text": f"{''.join(characters)}{number % 10}", column: answers[often]})
    return write_lines(path, lines)


def write_news(path: Path, several: bool = False) -> Path:
    """Write rows whose texts have the characters of their labels, paths in a hierarchy."""
    generator, lines = random.Random(0), []
    for number in range(160):
        labels = generator.sample(PATHS, generator.choice([0, 1, 1, 2]) if several else 1)
        text = "".join(CHARACTERS[name] * 4 for name in labels) + f"的{number}"
        lines.append({"text": text, "label": labels if several else labels[0]})
    return write_lines(path, lines)


def write_complaints(path: Path) -> Path:
    """Write rows of which one in eight is 投诉, by one character that others have too."""
    generator, lines = random.Random(0), []
    for number in range(400):
        is_rare = number % 8 == 0
        seen = "差" if generator.random() < (0.8 if is_rare else 0.15) else "好"
        text = "".join(generator.choices("天地玄黄宇宙", k=6)) + seen + str(number)
        lines.append({"text": text, "label": "投诉" if is_rare else "其他"})
    return write_lines(path, lines)


def write_texts(path: Path) -> Path:
    """Write texts in which words of two characters come in pairs, so that a hidden character can be
    guessed."""
    generator = np.random.default_rng(0)
    words = [a + b for a, b in zip("".join(WORDS.values()), reversed("".join(WORDS.values())), strict=True)]
    texts = {"".join(generator.choice(words, 6)) for _ in range(150)}
    path.write_text("\n".join(sorted(texts)) + "\n", encoding="utf-8")
    return path


class Kind(NamedTuple):
    """What a run of one kind needs: who writes its file, the name of this, and the settings. `column` has the
    answers in files, `other` is another data.task of the same rows."""

    write: Callable[[Path], Path]
    settings: dict
    column: str = "label"
    other: str | None = None
    file: str = "rows.jsonl"


write_stars = partial(write_counted, column="label", answers=["1", "1", "2", "2", "10", "10"])
write_scores = partial(write_counted, column="score", answers=[1000 + 2.5 * often for often in range(8)])
HIERARCHY = {"data__label_hierarchy": "-", "train__epochs": 8}
LARGE = {"data__test_size": 0.2, "data__dev_size": 0.2}
THIRDS = {"data__dev_size": 0.3, "data__test_size": 0.3}
KINDS = {
    "multi_label": Kind(write_posts, {"train__epochs": 12} | LARGE, "labels"),
    "ordinal": Kind(write_stars, {"train__epochs": 8}, other="single_label"),
    "regression": Kind(write_scores, {"train__epochs": 8}, "score"),
    "single_path": Kind(write_news, HIERARCHY, other="single_label"),
    "multi_path": Kind(partial(write_news, several=True), HIERARCHY, "labels"),
    "rare_class": Kind(
        write_complaints,
        {"data__task": "single_label", "train__best_metric": "rare_f1", "train__epochs": 4} | THIRDS,
    ),
    "masked_language_modelling": Kind(write_texts, {"train__epochs": 15}, file="texts.txt"),
}
