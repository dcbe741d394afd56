"""Real learning, not only equal steps: DeepSpeed and Horovod reach what one process reaches on the sample
set.

python -m pytest tests/run/test_learning.py -m slow
"""

import json
import os
import subprocess
from pathlib import Path

import pytest

from app.strategies import load_strategy

# Two runs of up to 900 seconds
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
ROOT = Path(__file__).resolve().parents[2]


def train(mode: str, processes: int, folder: Path) -> dict:
    """Train on the sample set without dropout, whose random numbers depend on the number of processes."""
    settings = ["--config", "configs/small_bert.yaml", "--output.dir", str(folder / mode)]
    settings += ["--model.dropout", "0", "--train.epochs", "4", "--train.precision", "fp32"]
    settings += ["--train.device", "cpu", "--train.threads", "1", "--train.seed", "7"]
    command = load_strategy(mode).launcher.command([f"run_{mode}.py", *settings], processes)
    done = subprocess.run(
        command, cwd=ROOT, env=os.environ, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads((folder / mode / "report.json").read_text())


@pytest.fixture(scope="module")
def single(tmp_path_factory) -> dict:
    return train("single", 1, tmp_path_factory.mktemp("learning"))


@pytest.mark.parametrize("mode", ["deepspeed", "horovod"])
def test_two_processes_learn_as_much_as_one(mode, single, tmp_path):
    if reason := load_strategy(mode).unavailable_reason():
        pytest.skip(reason)
    report = train(mode, 2, tmp_path)
    assert single["accuracy"] > 0.4, "well above the 0.195 of the largest class"
    assert report["rows"] == single["rows"] == 302
    assert abs(report["accuracy"] - single["accuracy"]) * 302 <= 1.001
