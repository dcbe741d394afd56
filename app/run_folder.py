"""What a run leaves behind, in one folder: model, configuration, environment, metrics, report, predictions."""

from __future__ import annotations

import csv
import json
import os
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np

from app.config import Config, OutputConfig
from app.dataset import Dataset, Split
from app.errors import InputError

CHECKPOINTS = Path("checkpoints")
REPORT = "report.json"  # written last: a folder that has it is a finished run


def create_run_folder(config: OutputConfig) -> Path:
    """Return a new folder for a run: `config.dir`, or the next free checkpoints/<name>-001.

    Raises InputError for a folder that holds a finished run, unless `config.overwrite`, or anything but a run.
    """
    if config.dir is None:
        number = 1
        while True:
            folder = CHECKPOINTS / f"{config.name}-{number:03d}"
            try:
                folder.mkdir(parents=True)
                return folder
            except FileExistsError:
                number += 1
    folder = Path(config.dir)
    if folder.exists() and not folder.is_dir():
        raise InputError(f"output.dir must be a folder, found the file {folder}")
    if (folder / REPORT).exists() and not config.overwrite:
        raise InputError(
            f"{folder} holds a finished run; choose another output.dir, or replace the run with --output.overwrite true"
        )
    if folder.exists() and any(folder.iterdir()) and not (folder / "config.yaml").exists():
        raise InputError(f"{folder} is not empty and holds no run; choose another output.dir")
    if folder.exists():
        for old in folder.iterdir():  # of the run that is replaced, or of one that did not finish
            shutil.rmtree(old) if old.is_dir() else old.unlink()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_start(folder: Path, config: Config, mode: str, world_size: int, device: str, dataset: Dataset) -> None:
    """Write the resolved configuration, the environment and the list of skipped rows."""
    import yaml

    write_text(folder / "config.yaml", yaml.safe_dump(config.to_dict(), allow_unicode=True, sort_keys=False))
    write_json(folder / "environment.json", environment(mode, world_size, device))
    if any(table.skipped for table in dataset.tables):
        with (folder / "skipped_rows.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["file", "line", "problem"])
            for table in dataset.tables:
                writer.writerows([table.source, row["line"], row["problem"]] for row in table.skipped_rows())


def environment(mode: str, world_size: int, device: str) -> dict:
    """Return versions, device, commit and command line, for a run that somebody wants to repeat."""
    import torch
    import transformers

    root = Path(__file__).resolve().parent.parent
    git = (
        subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        if shutil.which("git")
        else None
    )
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "mode": mode,
        "processes": world_size,
        "device": device,
        "device_name": torch.cuda.get_device_name()
        if device.startswith("cuda")
        else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": git.stdout.strip() if git and git.returncode == 0 else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def save_model(folder: Path, model, state: dict, tokenizer) -> None:
    """Write a transformers checkpoint into `folder`: config.json, model.safetensors, tokenizer; each file whole or absent.

    `model` is transformers' model for its configuration, `state` its full weights by name.
    """
    aside = folder / ".model"
    shutil.rmtree(aside, ignore_errors=True)
    model.save_pretrained(aside, state_dict=state)
    tokenizer.save_pretrained(aside)
    for path in aside.iterdir():
        path.replace(folder / path.name)
    aside.rmdir()


def write_predictions(path: Path, split: Split, logits: np.ndarray, label_names: list[str]) -> None:
    """Write a CSV with a line for each row of the split: id, line in the source, text, true and predicted label, probabilities."""
    from app.metrics import probabilities

    shares = probabilities(logits)
    pairs = ["text_pair"] if split.table.has_pairs else []
    lines = split.table.array("lines")
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(
            ["row_id", split.table.place, "text", *pairs, "label", "predicted", *(f"p_{name}" for name in label_names)]
        )
        for position, row in enumerate(split.rows):
            texts = [split.table.text(row)] + [split.table.pair(row) for _ in pairs]
            predicted = label_names[int(logits[position].argmax())]
            label = label_names[int(split.labels[position])]
            writer.writerow(
                [int(row), int(lines[row]), *texts, label, predicted, *(f"{share:.6f}" for share in shares[position])]
            )


def write_json(path: Path, value) -> None:
    """Write JSON for people (Chinese as it is), whole or not at all."""
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all."""
    aside = path.with_name(f".{path.name}")
    aside.write_text(text, encoding="utf-8")
    aside.replace(path)
