"""Small runs with several labels a row, for the tests."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path

from app.config.command_line import load_config
from app.outcomes import open_outcome
from app.outcomes.multi_label import MultiLabel
from app.outcomes.thresholds import LabelRule
from app.run.entry import work
from tests.tiny import SIZES, WORDS

NAMES = sorted(WORDS)


def write_posts(path: Path) -> Path:
    """Write JSON Lines whose texts have characters of each of their labels; some rows have none."""
    generator = random.Random(0)
    lines = []
    for number in range(150):
        labels = generator.sample(NAMES, generator.choice([0, 1, 1, 2, 3]))
        text = "".join(character for name in labels for character in generator.choices(WORDS[name], k=3))
        lines.append(json.dumps({"text": f"的{text}{number}", "labels": labels}, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def arguments(posts: Path, out: Path, **settings) -> list[str]:
    """Return the command line of a run; settings are written data__task for data.task."""
    values = {f"model__config__{key}": value for key, value in SIZES.items()}
    values |= {"data__train": posts, "data__cache_dir": posts.parent / "cache", "output__dir": out}
    values |= {
        "data__task": "multi_label",
        "data__max_length": 32,
        "train__device": "cpu",
        "train__threads": 1,
        "train__precision": "fp32",
    }
    values |= {
        "output__trackers": "[]",
        "train__batch_size": 16,
        "train__learning_rate": "3e-3",
        **settings,
    }
    return [word for key, value in values.items() for word in (f"--{key.replace('__', '.')}", str(value))]


def train(posts: Path, out: Path, **settings) -> dict:
    """Train, and return the report."""
    assert work(load_config(arguments(posts, out, **settings)), "single") == 0
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


def read_predictions(path: Path) -> list[dict]:
    """Return the rows of a CSV file of predictions."""
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def write_rule(folder: Path, rule: LabelRule, names: list[str], step: int) -> None:
    """Write the thresholds of a run into its folder."""
    outcome = open_outcome("multi_label", names)
    outcome.rule = rule
    outcome.write_fitted(folder, step, {})


def write_thresholds(folder: Path, rule: LabelRule, label_names: list[str]) -> None:
    """Write the thresholds and limits of a model into its folder, as a run does."""
    outcome = MultiLabel(label_names)
    outcome.rule = rule
    outcome.write_fitted(folder, 1, {})
