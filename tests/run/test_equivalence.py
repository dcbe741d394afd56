"""verify_modes.py: it passes what agrees, fails what does not, and says why a mode cannot run."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app.run.equivalence import compare

ROOT = Path(__file__).resolve().parents[2]
TINY = ["--model.config.hidden_size=32", "--model.config.num_hidden_layers=1", "--model.config.intermediate_size=64"]


@pytest.fixture
def result(tmp_path):
    """Return a function that writes what a mode's rank 0 writes."""

    def write(name: str, rows: int = 4, **changes: torch.Tensor) -> Path:
        tensors = {"losses": torch.ones(3, dtype=torch.float64), "logits": torch.zeros(4, 2)}
        tensors |= {"gradients/a": torch.zeros(2), "weights/a": torch.zeros(2)} | {
            k.replace("__", "/"): v for k, v in changes.items()
        }
        save_file(tensors, tmp_path / name, metadata={"rows": str(rows), "expected_rows": "4", "processes": "2"})
        return tmp_path / name

    return write


def test_equal_results_pass(result):
    outcome = compare("ddp", result("a"), result("b"), "adamw")
    assert (outcome.verdict, outcome.processes, outcome.weights, outcome.rows) == ("PASS", 2, 0.0, 4)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weights__a": torch.tensor([0.0, 2e-5])}, "weights differ"),
        ({"gradients__a": torch.tensor([1e-3, 0.0])}, "gradients differ"),
        ({"losses": torch.tensor([1.0, 1.0, float("nan")], dtype=torch.float64)}, "losses differ"),
        ({"logits": torch.full((4, 2), 1e-2)}, "logits differ"),
        ({"logits": torch.zeros(3, 2)}, "logits differ"),
        ({"rows": 8}, "counted once"),
        ({"weights__b": torch.zeros(2)}, "names of the parameters differ"),
    ],
)
def test_differences_fail(result, changes, reason):
    outcome = compare("ddp", result("a"), result("b", **changes), "adamw")
    assert outcome.verdict == "FAIL"
    assert reason in outcome.reason


def run(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "verify_modes.py", *arguments, *TINY, "--train.device", "cpu"]
    return subprocess.run(command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=600, check=False)


def test_unknown_mode_is_refused():
    done = run("--modes", "ddpp")
    assert done.returncode == 2
    assert "there is no mode ddpp" in done.stderr


@pytest.mark.slow
def test_modes_agree_on_the_sample_set(tmp_path):
    done = run("--steps", "4", "--modes", "single", "ddp", "mp", "--output", str(tmp_path / "table.json"))
    assert done.returncode == 0, done.stderr + done.stdout
    rows = json.loads((tmp_path / "table.json").read_text())
    assert [(row["mode"], row["processes"], row["verdict"], row["rows"]) for row in rows] == [
        ("single", 1, "PASS", 302),
        ("ddp", 2, "PASS", 302),
        ("mp", 2, "PASS", 302),
    ]


@pytest.mark.slow
def test_a_job_that_fails_says_why():
    done = run("--steps", "2", "--modes", "ddp", "--train.class_weights", "[1,2]")
    assert done.returncode != 0
    assert "train.class_weights must be 6 numbers" in done.stderr
