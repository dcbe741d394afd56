"""The other ways in which users start the scripts: no launcher at all, and Accelerate's.

python -m pytest tests/modes/test_launchers.py -m slow
"""

import json
import sys
from shlex import split

import pytest

from app.modes import load_mode
from app.run import main
from tests.modes.launched import run
from tests.ranks import run_alone, settings

pytestmark = pytest.mark.slow
ACCELERATE = [sys.executable, "-m", "accelerate.commands.launch"]


@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        *((mode, {}) for mode in ("ddp", "fsdp", "accelerate", "dp", "horovod")),
        ("deepspeed", {"deepspeed__stage": 2, "deepspeed__config": "{}/offload.json"}),
        ("deepspeed", {"deepspeed__stage": 1, "train__precision": "bf16"}),
    ],
)
def test_without_a_launcher_one_process_trains(mode, changes, data, tmp_path):
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)
    offload = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
    (tmp_path / "offload.json").write_text(json.dumps(offload), encoding="utf-8")
    changes = {key: str(value).format(tmp_path) for key, value in changes.items()}
    log, argv = tmp_path / "log", settings(data, tmp_path / "run", train__max_steps=3, **changes)
    assert run_alone(mode, argv, log) == 0, log.read_text()[-3000:]
    said = log.read_text()
    assert "1 process(es)" in said
    assert said.count("Report on test") == 1
    assert "compil" not in said.lower(), "nothing may be compiled at the start"


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


def test_nprocs_belongs_to_spawn(capsys):
    assert main("ddp", "", ["--nprocs", "2"]) == 2
    assert "run_mp.py" in capsys.readouterr().err
