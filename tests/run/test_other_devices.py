"""A device that is not CUDA, up to a prediction."""

import sys
from shlex import split

import pytest

from app.runtime.disk import read_json
from tests.processes import ROOT, finish
from tests.stand_in_npu import installed

CHOICES = """
import pytest
import torch
import torch.distributed as dist
from app.batching.loader import to_device
from app.errors import InputError
from app.runtime.devices import choose_device, fastest_precision, peak_memory
from app.modes.torch_group import backends

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
"""
TINY = ["--model.config", "{num_hidden_layers: 1, hidden_size: 32, num_attention_heads: 2}"]
TINY += split("--model.name random --model.dropout 0 --train.device npu --train.precision fp32")
TINY += split("--train.max_steps 2 --output.trackers []")


@pytest.fixture
def with_npu(tmp_path):
    """Run Python with the stand-in device, which must end with `status`; return the finished process."""

    def run(*arguments, status=0, **environment):
        command = [sys.executable, *arguments]
        environment = installed(tmp_path) | environment
        return finish(command, tmp_path, status=status, **environment)

    return run


@pytest.mark.slow
def test_a_device_is_chosen_and_has_its_back_end(with_npu):
    with_npu("-c", CHOICES)


@pytest.mark.slow
def test_a_device_is_compared_with_the_cpu_trains_and_predicts(with_npu, tmp_path):
    verify = ("-m", "app", "verify", "--device", "npu", "--steps", "2", *TINY)
    wrong = with_npu(*verify, status=1, WRONG_NPU="aten.gelu.default")
    _heading, row = (line.split() for line in wrong.stdout.splitlines())
    assert (row[0], row[11]) == ("npu:0", "FAIL")
    assert float(row[7]) > 10
    right = with_npu(*verify)
    assert right.stdout.split()[-4:] == ["33", "of", "33", "PASS"]
    run = with_npu(str(ROOT / "run_single.py"), *TINY, "--output.dir", "run", "--data.limit", "120")
    assert run.stderr.count("Peak memory of npu:0 after step 1: 3 MiB.") == 1
    folder = tmp_path / "run"
    assert run.stdout.strip() == (folder / "report.txt").read_text(encoding="utf-8").strip()
    assert read_json(folder / "run_history.json")["starts"][0]["command"][0].endswith("run_single.py")
    with_npu("-m", "app", "predict", "--checkpoint", "run", "--device", "npu", "今天真开心")
