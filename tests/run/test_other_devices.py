"""A device that is not CUDA, up to a prediction."""

import os
import sys
from collections.abc import Callable
from shlex import split

import pytest
import torch
import torch.distributed as dist

from app.batching.loader import to_device
from app.commands import run_verb
from app.errors import InputError
from app.modes.torch_group import backends
from app.runtime.devices import choose_device, fastest_precision, peak_memory
from app.runtime.disk import read_json
from tests.processes import ROOT, finish
from tests.ranks import start_ranks
from tests.stand_in_npu import installed, load

TINY = ["--model.config", "{num_hidden_layers: 1, hidden_size: 32, num_attention_heads: 2}"]
TINY += split("--model.name random --model.dropout 0 --train.device npu --train.precision fp32")
TINY += split("--train.max_steps 2 --output.trackers []")


def check_choices() -> int:
    device = choose_device("auto")
    assert (device, choose_device("npu", 1)) == (torch.device("npu", 0), torch.device("npu", 1))
    assert (choose_device("cpu").type, choose_device("npu:1", 0).index) == ("cpu", 1)
    assert fastest_precision(device) == "fp32"
    assert (peak_memory(device), peak_memory(torch.device("cpu"))) == (3 * 2**20, None)
    assert to_device({"ids": torch.tensor([1, 2])}, device)["ids"].tolist() == [1, 2]
    assert backends(device) == "gloo"
    dist.Backend.register_backend("hccl", lambda *arguments: None, devices=["npu"])
    assert backends(device) == "cpu:gloo,npu:hccl"
    for wanted in ("npu:2", "cuda", "hip", "npu:x"):
        message = f"npu, cpu, with :N for one of several, found '{wanted}' for process 0"
        with pytest.raises(InputError, match=message):
            choose_device(wanted)
    return 0


def work_with_npu(environment: dict[str, str], work: Callable[..., int], arguments: tuple) -> int:
    """Be a process that has the stand-in device, as the processes that it starts have."""
    os.environ |= environment
    load()
    return work(*arguments)


@pytest.fixture
def fork_with_npu(tmp_path, monkeypatch):
    """Call a function in a forked process with the stand-in device, which must end with `status`; return what
    it prints. It runs in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def fork(work: Callable[..., int], *arguments, status: int = 0, **variables: str) -> str:
        log = tmp_path / "log"
        log.unlink(missing_ok=True)
        environment = installed(tmp_path) | variables
        statuses = start_ranks(
            work_with_npu, (environment, work, arguments), 1, log, is_alone=True, seconds=300
        )
        assert statuses == [status], log.read_text()
        return log.read_text()

    return fork


@pytest.mark.slow
def test_a_device_is_chosen_and_has_its_back_end(fork_with_npu):
    fork_with_npu(check_choices)


@pytest.mark.slow
def test_a_device_is_compared_with_the_cpu_trains_and_predicts(fork_with_npu, tmp_path):
    """torch loads the device in the workers of verify and in the run: they are started as always."""
    verify = ["--device", "npu", "--steps", "2", *TINY]
    wrong = fork_with_npu(run_verb, "verify", verify, status=1, WRONG_NPU="aten.gelu.default")
    row = wrong.splitlines()[-1].split()
    assert (row[0], row[11]) == ("npu:0", "FAIL")
    assert float(row[7]) > 10
    right = fork_with_npu(run_verb, "verify", verify)
    assert right.split()[-4:] == ["33", "of", "33", "PASS"]
    command = [sys.executable, str(ROOT / "run_single.py"), *TINY]
    command += ["--output.dir", "run", "--data.limit", "120"]
    run = finish(command, tmp_path, status=0, **installed(tmp_path))
    assert run.stderr.count("Peak memory of npu:0 after step 1: 3 MiB.") == 1
    folder = tmp_path / "run"
    assert run.stdout.strip() == (folder / "report.txt").read_text(encoding="utf-8").strip()
    assert read_json(folder / "run_history.json")["starts"][0]["command"][0].endswith("run_single.py")
    fork_with_npu(run_verb, "predict", ["--checkpoint", "run", "--device", "npu", "今天真开心"])
