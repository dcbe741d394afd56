"""Neural systems: the published command in a separate process, resumed where it was interrupted."""

import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd
import yaml

from app.checkpoints.run_files import REPORT
from app.checkpoints.run_history import code_version
from app.config.schema import DataConfig
from app.config.shipped import ROOT
from app.data.cache import content_key, file_digest
from app.data.dataset import Dataset
from benchmarks.harness.program import ProgramFailed

RANDOM = "random-bert"  # the small BERT with random weights
CONFIGS = ROOT / "configs"


def program_version(system: str) -> str:
    """Return a key of what decides about the results of a network: the code of app/, torch, transformers and
    tokenizers, the settings in configs/, and the weights where the model is a folder."""
    files = sorted([*CONFIGS.glob("*.yaml"), *Path(system).glob("*.safetensors")])
    return content_key(code_version(), *map(file_digest, files))


def predict(
    system: str, settings: DataConfig, dataset: Dataset, folder: Path, seed: int, extra: list[str]
) -> tuple[np.ndarray, dict]:
    """Return the class ids that a fine-tuned model predicts for the test rows, (num_rows,), and its command.

    `system` is RANDOM or a value of `--model.name`; `extra` are more arguments of run_single.py.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data.yaml"
    data.write_text(yaml.safe_dump({"data": asdict(settings)}, allow_unicode=True), encoding="utf-8")
    model = ["--config", str(CONFIGS / "small_bert.yaml")]
    if system != RANDOM:
        model = ["--model.name", system]
    command = run_single([*model, "--config", str(data), "--train.seed", str(seed), *extra], folder / "run")
    predicted = pd.read_csv(folder / "run" / "predictions.csv", dtype=str, keep_default_na=False)["predicted"]
    return pd.Index(dataset.label_names).get_indexer(predicted), {"command": command}


def run_single(arguments: list[str], run: Path) -> str:
    """Train in a run folder unless it is finished, and return the command; raises ProgramFailed."""
    output = ["--output.dir", str(run), "--output.resume", "auto", "--output.trackers", "[]"]
    command = ["run_single.py", *arguments, *output]
    if not (run / REPORT).is_file():
        words = [sys.executable, str(ROOT / command[0]), *command[1:]]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            failed = f"{' '.join(command)} ended with status {done.returncode}"
            raise ProgramFailed(f"{failed}: {done.stderr[-1500:]}")
    return f"python {' '.join(command)}"
