"""Neural systems: the published commands, each run in a separate process,
resumed where it was interrupted."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import yaml

from app.checkpoints.run_folder import REPORT
from app.checkpoints.run_history import code_version
from app.config.schema import DataConfig
from app.data.cache import content_key, file_digest
from app.data.dataset import Dataset
from benchmarks.harness.rounds import ROOT, ProgramFailed
from benchmarks.quality.texts import rows_of

# The small BERT with random weights
RANDOM = "random-bert"
# Before a model's name: it first continues its pretraining on the training texts
MASKED = "masked:"


def program_version(system: str) -> str:
    """Return a key of what decides about the results of a network: the code of app/, torch, transformers and
    tokenizers, the settings in configs/, and the weights where the model is a folder."""
    model = Path(system.removeprefix(MASKED))
    files = sorted([*(ROOT / "configs").glob("*.yaml"), *model.glob("*.safetensors")])
    return content_key(code_version(), *map(file_digest, files))


def predict(
    system: str, settings: DataConfig, dataset: Dataset, folder: Path, seed: int, extra: list[str]
) -> tuple[np.ndarray, dict]:
    """Return the class ids that a fine-tuned model predicts for the test rows, (num_rows,), and its command.

    `system` is RANDOM, a value of `--model.name`, or one after MASKED; `extra` are more arguments of
    run_single.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.yaml"
    data.write_text(yaml.safe_dump({"data": asdict(settings)}, allow_unicode=True), encoding="utf-8")
    if system == RANDOM:
        model = ["--config", str(ROOT / "configs" / "small_bert.yaml")]
    else:
        name = system.removeprefix(MASKED)
        if system.startswith(MASKED):
            name = str(pretrain(name, settings, dataset, folder.parent / "pretrained"))
        model = ["--config", str(ROOT / "configs" / "default.yaml"), "--model.name", name]
    run = folder / "run"
    command = run_single([*model, "--config", str(data), "--train.seed", str(seed), *extra], run)
    return read_predictions(run / "predictions.csv", dataset), {"command": command}


def pretrain(name: str, settings: DataConfig, dataset: Dataset, folder: Path) -> Path:
    """Return the run folder of a model that was pretrained further on the training texts of a dataset."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.txt"
    lines = (" ".join(text.split()) for text in rows_of(dataset, "train").texts)
    texts.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run = folder / "run"
    config = ROOT / "configs" / "pretrain.yaml"
    arguments = ["--config", str(config), "--data.train", str(texts), "--model.name", name]
    run_single([*arguments, "--data.cache_dir", settings.cache_dir], run)
    return run


def run_single(arguments: list[str], run: Path) -> str:
    """Train in a run folder unless it is finished, and return the command; raises ProgramFailed."""
    output = ["--output.dir", str(run), "--output.resume", "auto", "--output.trackers", "[]"]
    command = ["run_single.py", *arguments, *output]
    if not (run / REPORT).is_file():
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [sys.executable, str(ROOT / command[0]), *command[1:]],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise ProgramFailed(
                f"{' '.join(command)} ended with status {done.returncode}: {done.stderr[-1500:]}"
            )
    return f"python {' '.join(command)}"


def read_predictions(path: Path, dataset: Dataset) -> np.ndarray:
    """Return the predicted class ids of a predictions.csv, in the order of the test rows."""
    ids = {name: index for index, name in enumerate(dataset.label_names)}
    with path.open(encoding="utf-8", newline="") as file:
        return np.array([ids[row["predicted"]] for row in csv.DictReader(file)], dtype=np.int64)
