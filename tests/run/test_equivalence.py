"""Comparing the modes: it passes what agrees and fails what does not. The command line: tests/commands/test_mode_verbs.py"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app.run.modes.equivalence import compare


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
