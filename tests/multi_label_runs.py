"""Small runs with several labels a row, for the tests."""

from __future__ import annotations

import csv
import json
import random
from collections.abc import Sequence
from pathlib import Path

import torch

from app.config.command_line import load_config
from app.config.schema import Config, DataConfig, TrainConfig
from app.data.dataset import open_dataset
from app.run import work
from app.tasks import open_task
from app.tasks.task import Task
from tests.ranks import settings
from tests.tiny import SIZES, WORDS, tiny_tokenizer
from tests.verbs import predict

NAMES = sorted(WORDS)


def write_posts(path: Path, words: dict[str, str] = WORDS, counts: Sequence[int] = (0, 1, 1, 2, 3)) -> Path:
    """Write JSON Lines whose texts have characters of their labels, of which they have one of `counts`."""
    generator = random.Random(0)
    names = sorted(words)
    lines = []
    for number in range(150):
        labels = generator.sample(names, generator.choice(counts))
        text = "".join(character for name in labels for character in generator.choices(words[name], k=3))
        answer = {"labels": labels} if len(counts) > 1 else {"label": labels[0]}
        lines.append(json.dumps({"text": f"的{text}{number}"} | answer, ensure_ascii=False))
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def arguments(posts: Path, out: Path, sizes: dict = SIZES, **changes) -> list[str]:
    """Return the command line of a run with several labels a row; `changes` as in `settings`."""
    data = [f"--data.train={posts}", f"--data.cache_dir={posts.parent / 'cache'}"]
    usual = {"data__task": "multi_label", "data__max_length": 32, "train__learning_rate": 3e-3}
    usual |= {"output__resume": "never"}
    return settings(data, out, sizes, **usual | changes)


def train(posts: Path, out: Path, **changes) -> dict:
    """Train, and return the report."""
    assert work(load_config(arguments(posts, out, **changes)), "single") == 0
    return json.loads((out / "report.json").read_text(encoding="utf-8"))


def values_of(rows: list[dict], name: str) -> list:
    """Return the values of a column."""
    return [row[name] for row in rows]


def read_predictions(path: str | Path) -> list[dict]:
    """Return the rows of a CSV file, or the objects of JSON Lines."""
    with Path(path).open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file) if Path(path).suffix == ".csv" else map(json.loads, file))


def predict_again(run: Path, rows: list[dict], output: Path, *words: str) -> list[dict]:
    """Return the rows of `output`, a CSV or JSON Lines file with what a run predicts for texts of rows."""
    source = output.with_suffix(".texts.csv")
    source.write_text("text\n" + "".join(f"{row['text']}\n" for row in rows), encoding="utf-8")
    assert predict(["--checkpoint", str(run), "--input", str(source), "--output", str(output), *words]) == 0
    return read_predictions(output)


def task_of(posts: Path, task: str = "multi_label", **settings) -> Task:
    """Return what a run with settings of `train` predicts."""
    data = DataConfig(task=task, train=str(posts), cache_dir=str(posts.parent / "cache"))
    config = Config(data, train=TrainConfig(**settings))
    dataset = open_dataset(data)
    prepared = open_task(task, dataset.label_names)
    prepared.prepare(config, dataset, tiny_tokenizer(), torch.device("cpu"))
    return prepared
