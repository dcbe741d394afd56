"""The precision of a processor, and the line about cores that other programs keep busy."""

import os

import pytest
import torch

from app.config.schema import Config, TrainConfig
from app.modes.mode import Single
from app.runtime import cores, devices
from app.runtime.cores import busy_cores, load_message

AMD = "AuthenticAMD"
INTEL = "GenuineIntel"
# Two cores as Linux lists them; {0} is the vendor, {1} has the instruction sets
CORE = (
    "processor\t: {{0}}\nvendor_id\t: {0}\nmodel name\t: a core: of 2\nflags\t\t: fpu avx2 {1}\nbugs\t\t:\n\n"
)
# docs/lab/decisions.md has the speeds that these choices follow from
CHOICES = [
    (INTEL, "avx512f avx512_bf16 amx_bf16 amx_tile", "bf16"),
    (INTEL, "avx512f avx512_bf16", "fp32"),
    (INTEL, "avx512f avx512_vnni", "fp32"),
    (AMD, "avx512f avx512_bf16", "bf16"),
    (AMD, "", "fp32"),
]


def precision_of_run(wanted: str) -> str:
    with Single(Config(train=TrainConfig(device="cpu", precision=wanted, threads=1))) as mode:
        return mode.config.train.precision


@pytest.mark.parametrize(("vendor", "instruction_sets", "expected"), CHOICES)
def test_precision_auto_is_that_of_the_processor(write, monkeypatch, vendor, instruction_sets, expected):
    core = CORE.format(vendor, instruction_sets)
    monkeypatch.setattr(devices, "CPUINFO", write("cpuinfo", core.format(0) + core.format(1)))
    assert precision_of_run("auto") == expected
    assert precision_of_run("fp32") == "fp32"


@pytest.mark.parametrize("content", [None, "", "processor\t: 0\nFeatures\t: fp asimd bf16\n"])
def test_precision_auto_is_fp32_where_nothing_was_measured(tmp_path, write, monkeypatch, content):
    """Without /proc, as on macOS and Windows, and on Arm."""
    path = tmp_path / "nothing" if content is None else write("cpuinfo", content)
    monkeypatch.setattr(devices, "CPUINFO", path)
    assert precision_of_run("auto") == "fp32"


def test_precision_auto_does_not_depend_on_the_speed_of_the_moment(monkeypatch):
    """Beside other programs the same machine began one run in fp32 and the next in bf16."""
    precisions = set()
    for speedup in (0.5, 2.0):
        speeds = {torch.bfloat16: speedup, torch.float32: 1.0}
        monkeypatch.setattr(
            cores, "product_speed", lambda device, dtype, threads, speeds=speeds: speeds[dtype]
        )
        precisions.add(precision_of_run("auto"))
    assert len(precisions) == 1


@pytest.mark.parametrize(
    ("busy", "threads", "processes", "advice"),
    [
        ([0.0, 0.1], 2, 1, None),
        ([0.3, 0.1], 2, 1, None),
        ([1.0, 0.1], 1, 1, None),
        ([1.0, 0.1], 2, 1, "--train.threads 1 "),
        ([1.0, 1.0], 2, 1, "--train.threads 1 "),
        ([1.0, 1.0], 1, 2, None),
        ([0.0] * 6 + [1.0] * 2, 4, 2, "--train.threads 3 "),
        ([0.0] * 8, 4, 2, None),
    ],
)
def test_busy_cores_are_worth_a_line_where_fewer_threads_have_cores_of_their_own(
    busy, threads, processes, advice
):
    message = load_message(busy, threads, processes)
    assert (message is None) == (advice is None)
    assert advice is None or advice in message


def test_the_cores_of_this_process_are_watched():
    busy = busy_cores()
    assert len(busy) == len(os.sched_getaffinity(0))
    assert all(0 <= share <= 1 for share in busy)
