"""Reports of made-up rows with seeded logits, for every kind of answer, written as a run writes them."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import NamedTuple

import numpy as np

from app.checkpoints.progress import RunProgress
from app.checkpoints.run_files import MODEL, REPORT
from app.checkpoints.run_history import describe_start, write_start
from app.config.command_line import load_config
from app.modes.mode import Single
from app.tasks.scores import Scores
from app.tasks.task import Task
from app.training.build import Components, build
from app.training.final_report import write_report
from app.words import in_language
from tests.multi_label_runs import arguments

TASKS = ("single_label", "multi_label")
PATHS = ["体育-足球", "体育-篮球-职业", "体育-篮球", "财经-股票", "财经-基金", "天气"]
# Settings beside data.task, and the labels of the files
KINDS = {
    "single_label": ({}, list("甲乙丙丁")),
    "two_classes": ({}, ["常见", "少见"]),
    "many_classes": ({}, [f"类别{number:02d}" for number in range(60)]),
    "multi_label": ({}, list("甲乙丙丁")),
    "ordinal": ({"data__labels": "[一星, 二星, 三星, 四星]"}, ["一星", "二星", "三星", "四星"]),
    "regression": ({}, []),
    "single_path": ({"data__label_hierarchy": "-"}, PATHS),
    "multi_path": ({"data__label_hierarchy": "-"}, PATHS),
    "masked_language_modelling": ({}, []),
}
SINGLE = ("two_classes", "many_classes")
ROWS = {"train": 240, "dev": 160, "test": 170}


def random_rows(name: str, num_rows: int, num_labels: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return labels, as the task `name` has them, and logits that have something to do with them."""
    generator = np.random.default_rng(seed)
    if name == "multi_label":
        labels = (generator.random((num_rows, num_labels)) < 0.3).astype(np.uint8)
        return labels, (labels * 2.0 - 1 + generator.normal(0, 1.5, labels.shape)).astype(np.float32)
    labels = generator.integers(0, num_labels, num_rows)
    logits = generator.normal(0, 1, (num_rows, num_labels)).astype(np.float32)
    logits[np.arange(num_rows), labels] += 3
    return labels, logits


def write_rows(folder: Path, answer_kind: str, labels: list[str], texts: tuple[str, ...]) -> dict[str, Path]:
    """Write the files of a kind of answer, by split; some rows of test are also in dev, some are long, and
    some begin with one of `texts`."""
    generator = random.Random(answer_kind)
    files = {}
    lines = []
    shares = [0.85, 0.15] if answer_kind == "two_classes" else [1.0] * len(labels)
    for split, num_rows in ROWS.items():
        copied = lines[:6] if split == "test" else []
        lines = []
        for number in range(num_rows):
            characters = generator.choices("天地玄黄宇宙洪荒日月盈昃", k=generator.randint(2, 40))
            begin = texts[number % len(texts)] if texts else ""
            row = {"text": f"{begin}{''.join(characters)}{split}{number}"}
            if answer_kind == "regression":
                row["score"] = round(generator.gauss(50, 12), 2)
            elif answer_kind in ("multi_label", "multi_path"):
                row["labels"] = sorted(generator.sample(labels, generator.choice([0, 1, 1, 2])))
            elif labels:
                # Every class is in train
                if split == "train" and number < 2 * len(labels):
                    row["label"] = labels[number % len(labels)]
                else:
                    row["label"] = generator.choices(labels, shares)[0]
            lines.append(row)
        lines += copied if labels or answer_kind == "regression" else []
        is_plain = answer_kind == "masked_language_modelling"
        files[split] = folder / f"{split}.{'txt' if is_plain else 'jsonl'}"
        written = [row["text"] if is_plain else json.dumps(row, ensure_ascii=False) for row in lines]
        files[split].write_text("\n".join(written) + "\n", encoding="utf-8")
    return files


def seeded_results(components: Components, split: str) -> np.ndarray:
    """Return what an evaluation of a split gives: logits that have something to do with its labels."""
    labels = np.asarray(components.loaders[split].split.labels)
    generator = np.random.default_rng(len(split))
    names = components.dataset.label_names
    task = components.config.data.task
    if task == "masked_language_modelling":
        targets = generator.integers(1, 6, len(labels))
        return np.c_[targets * generator.uniform(1, 3, len(labels)), targets, targets // 2].astype(np.float32)
    if task == "regression":
        return ((labels[:, None] - 50) / 12 + generator.normal(0, 0.6, (len(labels), 1))).astype(np.float32)
    logits = generator.normal(0, 1.5, (len(labels), len(names)))
    if labels.ndim == 2:
        return (logits + labels * 3.0 - 2).astype(np.float32)
    if task == "ordinal":
        logits[:, 0] += 3 * labels - 2
    else:
        logits[np.arange(len(labels)), labels] += 2.5
    return logits.astype(np.float32)


class Written(NamedTuple):
    """The folder of a report on test, and what it was written from."""

    folder: Path
    components: Components
    results: dict[str, np.ndarray]

    @property
    def task(self) -> Task:
        return self.components.task

    @property
    def report(self) -> dict:
        return json.loads(self.read(REPORT))

    @property
    def scores(self) -> Scores:
        return self.task.score(self.components.loaders["test"].split.labels, self.results["test"])

    def read(self, name: str) -> str:
        return (self.folder / name).read_text(encoding="utf-8")


def report_of(
    folder: Path,
    answer_kind: str,
    language: str = "en",
    labels: list[str] | None = None,
    texts: tuple[str, ...] = (),
    name: str = "run",
) -> Written:
    """Write the report of a kind of answer as a run does, for the labels of the kind or others."""
    paths = write_rows(folder, answer_kind, labels or KINDS[answer_kind][1], texts)
    files = {f"data__{split}": path for split, path in paths.items()}
    out = folder / name
    task = "single_label" if answer_kind in SINGLE else answer_kind
    # The report is that of the seeded logits, without a second reader
    settings = {"data__task": task, "data__max_length": 32, "model__ngrams": "off"}
    settings |= {**files, **KINDS[answer_kind][0]}
    config = load_config(arguments(files["data__train"], out, **settings))
    with Single(config) as mode, in_language(language):
        components = build(config, mode)
        out.mkdir()
        write_start(out, config, describe_start("single", 1, "cpu"), components.dataset)
        # Its checksum is kept
        (out / MODEL).touch()
        lines = [dict.fromkeys(components.task.log_metrics, 1 - 1 / step) for step in (10, 20, 30)]
        for step, line in zip((10, 20, 30), lines, strict=True):
            line |= {"step": step, "split": "dev", "train_loss": 1 / step}
        lines = "".join(f"{json.dumps(line)}\n" for line in lines)
        (out / "metrics.jsonl").write_text(lines, encoding="utf-8")
        results = {split: seeded_results(components, split) for split in ("test", "dev")}
        write_report(out, components, "test", RunProgress(step=30, best_step=30, best_value=0.9), results)
    return Written(out, components, results)
