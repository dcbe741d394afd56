"""Comparing the modes: it passes what agrees and fails what does not. The command line:
tests/commands/test_mode_verbs.py"""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app import strategies
from app.config.command_line import load_config
from app.run.modes.equivalence import comparable, compare, probe, tolerances
from tests.tiny import write_tiny

COUNTS = {"expected_rows": "4", "processes": "2", "dtypes": "torch.float32"}


@pytest.fixture
def result(tmp_path):
    """Return a function that writes what a mode's rank 0 writes."""

    def write(name: str, rows: int = 4, **changes: torch.Tensor) -> Path:
        tensors = {"losses": torch.ones(3, dtype=torch.float64), "logits": torch.zeros(4, 2)}
        tensors |= {"gradients/a": torch.zeros(2), "weights/a": torch.zeros(2)} | {
            k.replace("__", "/"): v for k, v in changes.items()
        }
        save_file(tensors, tmp_path / name, metadata=COUNTS | {"rows": str(rows)})
        return tmp_path / name

    return write


def test_equal_results_pass(result):
    outcome = compare("ddp", result("a"), result("b"), tolerances("adamw"))
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
    outcome = compare("ddp", result("a"), result("b", **changes), tolerances("adamw"))
    assert outcome.verdict == "FAIL"
    assert reason in outcome.reason


def test_low_precision_may_differ_as_much_as_it_differs_from_fp32(result):
    limits = tolerances("adamw", result("bf16"), result("exact", gradients__a=torch.tensor([0.01, 0.0])))
    assert limits == {"losses": 1e-5, "gradients": pytest.approx(0.03), "weights": 1e-5, "logits": 1e-4}


@pytest.fixture(scope="module")
def train(tmp_path_factory):
    """Return a function that trains three steps in this process, as a mode does, and returns what it wrote."""
    folder = tmp_path_factory.mktemp("verify")
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "intermediate_size": 64}
    words = [f"--model.config.{key}={size}" for key, size in sizes.items()]
    words += ["--data.train", str(write_tiny(folder / "rows.tsv")), "--data.cache_dir", str(folder / "cache")]
    config = load_config([*words, "--data.max_length", "32", "--train.device", "cpu"])

    def train(mode: str, precision: str) -> Path:
        result = folder / f"{mode}-{precision}.safetensors"
        assert result.exists() or probe(comparable(config, 3, precision), mode, str(result)) == 0
        return result

    return train


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "dtype"), [("WrongPrecision", "float16"), ("NoPrecision", "float32")])
def test_a_mode_that_computes_in_another_precision_is_found(train, monkeypatch, strategy, dtype):
    """Numbers alone do not tell: fp16 is nearer to fp32 than bf16 is."""
    monkeypatch.setitem(strategies.MODES, strategy, f"tests.strategies.broken_strategies:{strategy}")
    single = train("single", "bf16")
    limits = tolerances("adamw", single, train("single", "fp32"))
    assert compare("single", single, single, limits, "bf16").verdict == "PASS"
    outcome = compare(strategy, single, train(strategy, "bf16"), limits, "bf16")
    assert outcome.verdict == "FAIL"
    assert outcome.reason.endswith(f"it computed in torch.{dtype}, and torch.bfloat16 was asked for")
