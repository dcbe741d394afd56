"""The figures of reports stay what they were: python -m pytest tests/report/test_golden.py

The reports are on seeded logits, for every kind of answer. Where a figure is meant to change, write
golden.json with python -m tests.report.test_golden, and look at the difference.
"""

from __future__ import annotations

import json
import random
import tempfile
from pathlib import Path

import numpy as np
import pytest

from app.checkpoints.run_folder import MODEL, REPORT, TEXT, describe_start, write_first_start
from app.checkpoints.training_state import RunProgress
from app.config.command_line import load_config
from app.modes import open_mode
from app.training.build import Components, build
from app.training.final_report import write_report
from app.words import in_language
from tests.multi_label_runs import arguments

GOLDEN = Path(__file__).with_name("golden.json")
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
TASKS = {"two_classes": "single_label", "many_classes": "single_label"}
ROWS = {"train": 240, "dev": 160, "test": 170}


def write_rows(folder: Path, kind: str) -> dict[str, Path]:
    """Write the files of a kind of answer, by split; some rows of test are also in train, some are long."""
    generator, files, lines = random.Random(kind), {}, []
    labels = KINDS[kind][1]
    shares = [0.85, 0.15] if kind == "two_classes" else [1.0] * len(labels)
    for split, num_rows in ROWS.items():
        copied = lines[:6] if split == "test" else []
        lines = []
        for number in range(num_rows):
            characters = generator.choices("天地玄黄宇宙洪荒日月盈昃", k=generator.randint(2, 40))
            row = {"text": f"{''.join(characters)}{split}{number}"}
            if kind == "regression":
                row["score"] = round(generator.gauss(50, 12), 2)
            elif kind in ("multi_label", "multi_path"):
                row["labels"] = sorted(generator.sample(labels, generator.choice([0, 1, 1, 2])))
            elif labels:
                # Every class is in train
                known = split == "train" and number < 2 * len(labels)
                row["label"] = labels[number % len(labels)] if known else generator.choices(labels, shares)[0]
            lines.append(row)
        lines += copied if labels or kind == "regression" else []
        is_plain = kind == "masked_language_modelling"
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


def report_of(folder: Path, kind: str) -> dict:
    """Write the report of a kind of answer as a run does, in English, and return what it says."""
    files, out = {f"data__{name}": path for name, path in write_rows(folder, kind).items()}, folder / "run"
    settings = {"data__task": TASKS.get(kind, kind), "data__max_length": 32, **files, **KINDS[kind][0]}
    config = load_config(arguments(files["data__train"], out, **settings))
    with open_mode("single", config) as mode, in_language("en"):
        components = build(config, mode)
        out.mkdir()
        write_first_start(out, config, describe_start("single", 1, "cpu"), components.dataset)
        # Its checksum is kept
        (out / MODEL).touch()
        lines = [dict.fromkeys(components.task.log_metrics, 1 - 1 / step) for step in (10, 20, 30)]
        for step, line in zip((10, 20, 30), lines, strict=True):
            line |= {"step": step, "split": "dev", "train_loss": 1 / step}
        lines = "".join(f"{json.dumps(line)}\n" for line in lines)
        (out / "metrics.jsonl").write_text(lines, encoding="utf-8")
        results = {split: seeded_results(components, split) for split in ("test", "dev")}
        progress = RunProgress(step=30, best_step=30, best_value=0.9)
        write_report(out, components, "test", progress, results)
    return {
        "report": json.loads((out / REPORT).read_text(encoding="utf-8")),
        "text": (out / TEXT).read_text(encoding="utf-8").splitlines(),
    }


def flat(value, where: str = "") -> dict:
    """Return the values of a report by where they are."""
    if not isinstance(value, (dict, list)):
        return {where: value}
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    return {place: one for name, part in parts for place, one in flat(part, f"{where}.{name}").items()}


def differences(kept: dict, found: dict) -> list[str]:
    """Return where two reports differ: values by more than 1e-12, ends of intervals by more than 0.002."""
    kept, found, differ = flat(kept), flat(found), []
    for where in kept | found:
        one, other = kept.get(where, "absent"), found.get(where, "absent")
        is_same = one == other and type(one) is type(other)
        if isinstance(one, float) and isinstance(other, float):
            is_same = abs(one - other) <= (0.002 if "interval" in where else 1e-12) * max(1.0, abs(one))
        differ += [] if is_same else [f"{where}: {other}, was {one}"]
    return differ


@pytest.mark.parametrize("kind", KINDS)
def test_the_figures_of_a_report_are_those_that_are_kept(kind, tmp_path):
    found, kept = report_of(tmp_path, kind), json.loads(GOLDEN.read_text(encoding="utf-8"))[kind]
    assert differences(kept["report"], found["report"]) == []
    assert kept["text"] == found["text"]


def test_a_difference_is_found():
    report = {"rows": 3, "loss": 0.5, "intervals": {"loss": [0.4, 0.6]}}
    assert differences(report, report | {"intervals": {"loss": [0.401, 0.6]}}) == []
    assert differences(report, report | {"loss": 0.5 + 1e-9}) == [".loss: 0.500000001, was 0.5"]
    assert differences(report, report | {"intervals": {"loss": [0.4, 0.61]}})
    assert len(differences(report, {"rows": 3, "loss": 0.5})) == 2


if __name__ == "__main__":
    found = {}
    for name in KINDS:
        with tempfile.TemporaryDirectory() as place:
            found[name] = report_of(Path(place), name)
    GOLDEN.write_text(json.dumps(found, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")
