"""The other ways in which users start the scripts: no launcher at all, and Accelerate's.

python -m pytest tests/strategies/test_launchers.py -m slow
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).resolve().parents[2]
SHAPE = ["hidden_size=32", "num_hidden_layers=1", "num_attention_heads=2", "intermediate_size=64"]
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess:
    settings = ["--output.dir", folder / "run", "--data.cache_dir", folder / "cache", "--train.max_steps", 3]
    settings += ["--train.device", "cpu", *(f"--model.config.{item}" for item in SHAPE)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run(
        [*command, *map(str, settings)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("script", ["run_ddp.py", "run_fsdp.py", "run_accelerate.py", "run_dp.py"])
def test_without_a_launcher_one_process_trains(script, tmp_path):
    done = run([sys.executable, script], tmp_path)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "1 process(es)" in done.stderr
    assert "Report on test" in done.stdout


def test_accelerate_launch_with_two_processes(tmp_path):
    command = [*ACCELERATE, *split("--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no")]
    done = run([*command, "--dynamo_backend", "no", "run_accelerate.py"], tmp_path, ACCELERATE_USE_CPU="1")
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 process(es)" in done.stderr
    assert done.stdout.count("Report on test") == 1


def test_accelerate_launch_that_would_train_alone_is_refused(tmp_path):
    done = run([*ACCELERATE, "--cpu", "--num_processes", "2", "run_accelerate.py"], tmp_path)
    assert done.returncode != 0
    assert "2 processes were asked for, but 1 would train alone" in done.stderr


@pytest.mark.parametrize("compression", ["fp16", "bf16"])
def test_compressed_gradients_are_nearly_the_same(compression, tmp_path):
    losses = []
    for chosen in ("none", compression):
        command = [
            sys.executable,
            *split("run_mp.py --nprocs 2 --ddp.compression"),
            chosen,
            "--output.overwrite",
            "true",
        ]
        done = run([*command, "--train.learning_rate", "1e-2", "--train.optimizer", "sgd"], tmp_path)
        assert done.returncode == 0, done.stderr[-3000:]
        losses.append(json.loads((tmp_path / "run" / "report.json").read_text())["loss"])
    assert losses[0] != losses[1], "nothing was compressed"
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_nprocs_belongs_to_spawn(tmp_path):
    done = run([sys.executable, "run_ddp.py", "--nprocs", "2"], tmp_path)
    assert done.returncode == 2
    assert "run_mp.py" in done.stderr
