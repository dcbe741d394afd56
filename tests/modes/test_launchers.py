"""Processes that no launcher starts, and those that torch, Accelerate, DeepSpeed and Horovod start."""

import json
import os
import platform
import re
import sys
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from shlex import split

import pytest
import torch

from app.config.command_line import load_config
from app.errors import InputError
from app.modes import check_world_size, torch_group
from app.modes.launch import launch_command
from app.modes.torch_group import TorchGroup
from app.run import main, work
from app.runs.verify_training import run_trainings
from app.runtime.processes import launched_rank
from tests.processes import finish
from tests.ranks import OLD_LAUNCHER, PYTHON, fork, fork_under_horovod, need, settings, start_ranks
from tests.verbs import predict

TWO = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"RANK": "abc"}, "'abc'"),
        (TWO | {"RANK": "-1"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        (TWO | {"RANK": "2"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        ({"WORLD_SIZE": "0"}, "RANK must be from 0 to WORLD_SIZE - 1"),
        (TWO | {"LOCAL_RANK": "0.5"}, "'0.5'"),
        ({"WORLD_SIZE": "2"}, "environment variable RANK expected, but not set"),
        (TWO | {"MASTER_ADDR": ""}, "environment variable MASTER_ADDR expected, but not set"),
        (TWO | {"MASTER_PORT": "65536"}, "from 0 to 65535"),
    ],
)
def test_an_environment_that_no_launcher_makes_is_refused(monkeypatch, capsys, variables, problem):
    """The message needs the rank, and is printed all the same."""
    for name in (*TWO, "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert work(load_config([]), "ddp") == 2
    message = capsys.readouterr().err
    assert problem in message
    assert "or unset these to train in one process" in message


@pytest.mark.parametrize(
    "variables",
    [
        TWO,
        {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "2"},
        {"PMI_RANK": "0", "PMI_SIZE": "2"},
    ],
)
def test_processes_that_would_each_train_alone_are_refused(capsys, monkeypatch, variables):
    """As by torchrun run_single.py, or by a mode without a group; verify does not compare them either."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert work(load_config([]), "single") == 2
    refused = "2 processes were asked for, but mode single has 1, each training alone; start it with"
    assert f"error: {refused}" in capsys.readouterr().err
    with pytest.raises(InputError, match=refused):
        run_trainings(load_config([]), 1, "single", "nowhere", "fp32")


def test_more_processes_than_the_environment_says_train_together():
    """As Horovod under a launcher of MPI whose variables are not known here."""
    assert check_world_size("horovod", 4) is None


@pytest.mark.parametrize("name", ["RANK", "HOROVOD_RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK"])
def test_the_rank_is_the_one_that_the_launcher_gave(monkeypatch, name):
    monkeypatch.setenv(name, "3")
    assert launched_rank() == 3


def count_beside_others(hosts: list[str], folder: Path) -> int:
    """Be a rank whose launcher does not say how many processes a machine has, on the host of its number."""
    host = hosts[int(os.environ["RANK"])]
    del os.environ["LOCAL_WORLD_SIZE"]
    platform.node = lambda: host
    group = TorchGroup()
    (folder / str(group.rank)).write_text(str(group.local_world_size))
    group.join(torch.device("cpu"), timeout=60)
    # No rank ends, and with it the store of the others, before all of them are here
    group.broadcast(None)
    return 0


@pytest.mark.slow
def test_processes_of_a_machine_are_counted_where_the_launcher_does_not_say_how_many(tmp_path):
    fork(count_beside_others, (["one", "other", "one"], tmp_path), 3, tmp_path / "log")
    assert [(tmp_path / str(rank)).read_text() for rank in range(3)] == ["2", "1", "2"]


def work_for_longer_than_a_collective(folder: Path) -> int:
    """Be one of two ranks, of which rank 0 works for longer than a collective waits."""
    torch_group.TIMEOUT = timedelta(seconds=2)
    group = TorchGroup()
    group.join(torch.device("cpu"), timeout=60)
    results = [group.on_rank_0(partial(sleep_and_return, seconds)) for seconds in (0, 5, 0)]
    (folder / str(group.rank)).write_text(str(results))
    group.broadcast(None)
    return 0


def sleep_and_return(seconds: float) -> float:
    time.sleep(seconds)
    return seconds


@pytest.mark.slow
def test_ranks_wait_for_rank_0_for_longer_than_for_a_collective(tmp_path):
    """Rank 0 may fit a linear head for hours."""
    fork(work_for_longer_than_a_collective, (tmp_path,), 2, tmp_path / "log")
    assert [(tmp_path / str(rank)).read_text() for rank in range(2)] == ["[0, 5, 0]"] * 2


def train_as_by_mpirun(has_names: bool, words: list[str]) -> int:
    """Be a rank that horovodrun has started, and then have the environment of mpirun, or one without the
    names that it gives; Horovod is built without MPI here."""
    import horovod.torch as hvd

    hvd.init()
    for name in list(os.environ):
        if re.match("HOROVOD_|MASTER_|(LOCAL_)?RANK$|(LOCAL_)?WORLD_SIZE$", name):
            del os.environ[name]
    if has_names:
        os.environ |= {"OMPI_COMM_WORLD_RANK": str(hvd.rank()), "OMPI_COMM_WORLD_SIZE": str(hvd.size())}
    return main("horovod", "", words)


@pytest.mark.slow
@pytest.mark.parametrize("has_names", [True, False], ids=["named", "none"])
def test_horovod_trains_under_mpirun_and_only_rank_0_logs(has_names, data, tmp_path):
    """Also under another launcher of MPI, which sets other variables."""
    need("horovod")
    words = settings(data, tmp_path / "run", train__max_steps=3)
    log = tmp_path / "log"
    fork_under_horovod(train_as_by_mpirun, (has_names, words), 2, log)
    output = log.read_text()
    assert output.count("2 processes, ") == 1
    assert output.count("Report on test") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "changes"),
    [
        ("ddp", {}),
        ("fsdp", {}),
        ("accelerate", {}),
        ("dp", {}),
        ("horovod", {}),
        ("deepspeed", {"deepspeed__stage": 2, "deepspeed__config": "{}/offload.json"}),
        ("deepspeed", {"deepspeed__stage": 1, "train__precision": "bf16"}),
    ],
)
def test_without_a_launcher_one_process_trains(mode, changes, data, tmp_path):
    need(mode)
    offload = {"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}
    (tmp_path / "offload.json").write_text(json.dumps(offload), encoding="utf-8")
    changes = {key: str(value).format(tmp_path) for key, value in changes.items()}
    log = tmp_path / "log"
    argv = settings(data, tmp_path / "run", train__max_steps=3, **changes)
    assert start_ranks(main, (mode, "", argv), 1, log, is_alone=True) == [0], log.read_text()[-3000:]
    output = log.read_text()
    assert "1 process, " in output
    assert output.count("Report on test") == 1
    assert "compil" not in output.lower(), "nothing may be compiled at the start"


OF_ACCELERATE = "--multi_gpu --num_processes 2 --num_machines 1 --mixed_precision no --dynamo_backend no"
DEEPSPEED = ["deepspeed.launcher.runner", "--num_accelerators=2", "run_deepspeed.py", "--deepspeed.stage=3"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "command"),
    [
        ("accelerate", [*PYTHON, "accelerate.commands.launch", *split(OF_ACCELERATE), "run_accelerate.py"]),
        ("deepspeed", [*PYTHON, *DEEPSPEED]),
        ("horovod", launch_command("horovodrun", ["run_horovod.py"], 2)),
        ("ddp", [*OLD_LAUNCHER, "run_ddp.py"]),
    ],
)
def test_a_launcher_starts_two_processes_that_leave_a_plain_checkpoint(mode, command, data, tmp_path, capsys):
    from transformers import pipeline

    need(mode)
    run = tmp_path / "run"
    words = settings(data, run, train__max_steps=3, train__precision="bf16")
    done = finish([*command, *words], status=0, ACCELERATE_USE_CPU="1")
    assert "2 processes, " in done.stderr + done.stdout
    assert done.stdout.count("Report on test") == 1
    assert predict(["--checkpoint", str(run), "今天真开心"]) == 0
    label = pipeline("text-classification", model=str(run))("今天真开心")[0]["label"]
    assert label in capsys.readouterr().out


@pytest.mark.slow
def test_a_launcher_under_which_processes_would_train_alone_is_refused(data, tmp_path):
    need("horovod")
    log = tmp_path / "log"
    words = settings(data, tmp_path / "run")
    assert 2 in start_ranks(main, ("horovod", "", words), 2, log)
    assert "2 processes were asked for, but mode horovod has 1, each training alone" in log.read_text()


def train_with_fsdp_of_accelerate(words: list[str]) -> int:
    """Train as Accelerate's launcher starts it where its configuration has FSDP."""
    os.environ["ACCELERATE_USE_FSDP"] = "true"
    return main("accelerate", "", words)


@pytest.mark.slow
def test_accelerate_trains_as_ddp_whatever_its_configuration_says(data, tmp_path):
    need("accelerate")
    log = tmp_path / "log"
    words = settings(data, tmp_path / "run")
    assert start_ranks(train_with_fsdp_of_accelerate, (words,), 1, log, is_alone=True) == [2]
    assert "found ACCELERATE_USE_FSDP=true; launch it with --multi_gpu" in log.read_text()


@pytest.mark.slow
def test_a_file_that_deepspeed_refuses_leaves_no_run(data, tmp_path):
    need("deepspeed")
    file = tmp_path / "ds.json"
    log = tmp_path / "log"
    argv = settings(data, tmp_path / "run", deepspeed__config=file)
    for zero in ({"reduce_bucket_size": "large"}, {"mics_shard_size": 2}):
        file.write_text(json.dumps({"zero_optimization": zero}))
        assert start_ranks(main, ("deepspeed", "", argv), 1, log, is_alone=True) == [2]
    assert log.read_text().count(f"error: {file}: DeepSpeed refuses it: ") == 2
    assert not (tmp_path / "run").exists()


def test_without_horovod_one_line_says_how_to_install_it(monkeypatch, capsys):
    # Hides what may be installed
    monkeypatch.setitem(sys.modules, "horovod", None)
    assert main("horovod", "", []) == 2
    [message] = capsys.readouterr().err.splitlines()
    assert "install it: bash scripts/install_horovod.sh" in message


def test_nprocs_belongs_to_spawn(capsys):
    assert main("ddp", "", ["--nprocs", "2"]) == 2
    assert "run_mp.py" in capsys.readouterr().err
