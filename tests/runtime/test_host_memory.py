"""Where the memory of tensors comes from: python -m pytest tests/runtime/test_host_memory.py"""

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.runtime.host_memory import KERNEL_CACHES

ROOT = Path(__file__).resolve().parents[2]
SETTING = Path("/sys/kernel/mm/transparent_hugepage/enabled")
TRAIN = """
import sys
from app.config.command_line import load_config
from app.strategies import open_strategy

with open_strategy("single", load_config(sys.argv[1:])):
    import torch
    tensor = torch.ones(16 << 20)
    print(open("/proc/self/smaps").read())
"""
# Multiplies in bf16 with 600 numbers of tokens; prints by how many MB the heap has grown after all of them,
# and after 20.
MANY_SIZES = """
import ctypes, sys
from app.config.command_line import load_config
from app.strategies import open_strategy

class HeapFigures(ctypes.Structure):
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(7)] + [("used", ctypes.c_size_t), ("rest", ctypes.c_size_t * 2)]

heap_figures = ctypes.CDLL(None).mallinfo2
heap_figures.restype = HeapFigures
with open_strategy("single", load_config(sys.argv[1:])):
    import torch
    weight = torch.ones(768, 768, dtype=torch.bfloat16)
    grown = []
    for tokens in range(300, 900):
        torch.ones(tokens, 768, dtype=torch.bfloat16) @ weight
        grown.append(heap_figures().used)
    print((grown[-1] - grown[0]) / 2**20, (grown[20] - grown[0]) / 2**20)
"""


@pytest.mark.skipif(
    not SETTING.exists() or "[never]" in SETTING.read_text(),
    reason="this system has no huge pages for programs that ask",
)
@pytest.mark.parametrize("switch", ["1", "0"])
def test_a_large_tensor_is_in_huge_pages_unless_the_environment_says_otherwise(switch):
    if switch == "0" and "[always]" in SETTING.read_text():
        pytest.skip("this system gives huge pages to all programs")
    environment = {name: value for name, value in os.environ.items() if name != "THP_MEM_ALLOC_ENABLE"}
    if switch == "0":
        environment["THP_MEM_ALLOC_ENABLE"] = "0"
    command = [sys.executable, "-c", TRAIN, "--config", "configs/small_bert.yaml", "--train.device", "cpu"]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kilobytes = sum(map(int, re.findall(r"AnonHugePages:\s+(\d+)", done.stdout)))
    assert (kilobytes > 32 << 10) == (switch == "1")


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the heap is asked by a call of glibc 2.33"
)
def test_kernels_of_many_sizes_take_little_memory():
    def grown(**environment: str) -> tuple[float, float]:
        command = [
            sys.executable,
            "-c",
            MANY_SIZES,
            "--config",
            "configs/small_bert.yaml",
            "--train.device",
            "cpu",
        ]
        clean = {name: value for name, value in os.environ.items() if name not in KERNEL_CACHES}
        done = subprocess.run(
            command,
            cwd=ROOT,
            env=clean | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return tuple(map(float, done.stdout.split()))

    all_sizes, first_sizes = grown()
    if first_sizes < 2:
        pytest.skip("this CPU compiles no kernels for products in bf16")
    # The control: the user's environment counts, and the limit is what keeps the memory small.
    assert grown(**dict.fromkeys(KERNEL_CACHES, "1024"))[0] > 4 * all_sizes
