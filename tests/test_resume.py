"""A run that was stopped goes on: bit-identical in its own mode, within the tolerance of the modes in another.

python -m pytest tests/test_resume.py -m slow
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors.torch import load_file

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parent.parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
MODES = {
    "single": [sys.executable, "run_single.py"],
    "ddp": [*TORCHRUN, "run_ddp.py"],
    "fsdp": [*TORCHRUN, "run_fsdp.py"],
}


def settings(folder: Path, dropout: float) -> list[str]:
    shape = ["hidden_size=32", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=64"]
    values = ["--output.dir", folder, "--output.tensorboard", "false", "--output.resume", "auto", "--train.epochs", 1]
    values += ["--data.cache_dir", folder.parent / "cache", "--train.device", "cpu", "--train.eval_every", 20]
    values += ["--train.save_every", 15, "--model.dropout", dropout, *(f"--model.config.{item}" for item in shape)]
    return [str(value) for value in values]


def train(mode: str, folder: Path, dropout: float = 0.0) -> str:
    command = [*MODES[mode], *settings(folder, dropout)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stderr


def stop_at_first_state(mode: str, folder: Path, dropout: float = 0.0) -> None:
    """Start a run, copy the folder as it is when its first training state is there (as after power loss), and kill it."""
    live = folder.with_name("live")
    log = (folder.parent / "log").open("w")
    command = [*MODES[mode], *settings(live, dropout)]
    run = subprocess.Popen(
        command, cwd=ROOT, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=log, stderr=log, start_new_session=True
    )
    while not list((live / "state").glob("step-*")):
        assert run.poll() is None, (folder.parent / "log").read_text()[-3000:]
    os.killpg(run.pid, 9)
    run.wait()
    shutil.copytree(live, folder)


def test_bit_identical_with_dropout(tmp_path):
    train("single", tmp_path / "whole", 0.1)
    stop_at_first_state("single", tmp_path / "stopped", 0.1)
    assert "going on from step" in train("single", tmp_path / "stopped", 0.1)
    for name in ("model.safetensors", "predictions.csv", "report.json"):
        assert (tmp_path / "stopped" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
    lines = [(tmp_path / which / "metrics.jsonl").read_text().count("\n") for which in ("stopped", "whole")]
    assert lines == [3, 3]
    assert not (tmp_path / "stopped" / "state").exists()


@pytest.mark.parametrize(("first", "second"), [("ddp", "single"), ("single", "fsdp")])
def test_goes_on_in_another_mode(first, second, tmp_path):
    train("single", tmp_path / "whole")
    stop_at_first_state(first, tmp_path / "stopped")
    assert "going on from step" in train(second, tmp_path / "stopped")
    whole, stopped = (load_file(tmp_path / which / "model.safetensors") for which in ("whole", "stopped"))
    assert set(whole) == set(stopped)
    # The exact gradient of the key bias is zero; AdamW blows up what rounding leaves of it.
    names = [name for name in whole if "key.bias" not in name]
    assert max(float((whole[name] - stopped[name]).abs().max()) for name in names) <= 1e-5


def test_another_job_is_refused(tmp_path):
    stop_at_first_state("single", tmp_path / "stopped")
    command = [*MODES["single"], *settings(tmp_path / "stopped", 0.0), "--train.learning_rate", "1e-3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "train.learning_rate was 0.0005 and is 0.001" in done.stderr
