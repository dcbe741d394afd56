"""How much host memory a process keeps: python -m pytest tests/runtime/test_machine.py"""

import ctypes
import sys
from shlex import split

import pytest

from app.runtime.machine import KERNEL_CACHES
from tests.processes import finish

# Multiplies in bf16 with 600 numbers of tokens; prints by how many MB the heap has grown after all of them,
# and after 20.
MANY_SIZES = """
import ctypes, sys
from app.config.command_line import load_config
from app.modes import open_mode

class HeapFigures(ctypes.Structure):
    _fields_ = [(str(number), ctypes.c_size_t) for number in range(7)]
    _fields_ += [("used", ctypes.c_size_t), ("rest", ctypes.c_size_t * 2)]

heap_figures = ctypes.CDLL(None).mallinfo2
heap_figures.restype = HeapFigures
with open_mode("single", load_config(sys.argv[1:])):
    import torch
    weight = torch.ones(768, 768, dtype=torch.bfloat16)
    grown = []
    for tokens in range(300, 900):
        torch.ones(tokens, 768, dtype=torch.bfloat16) @ weight
        grown.append(heap_figures().used)
    print((grown[-1] - grown[0]) / 2**20, (grown[20] - grown[0]) / 2**20)
"""


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the heap is asked by a call of glibc 2.33"
)
@pytest.mark.slow
def test_kernels_of_many_sizes_take_little_memory(monkeypatch):
    for name in KERNEL_CACHES:
        monkeypatch.delenv(name, raising=False)

    def grown(**environment: str) -> tuple[float, float]:
        settings = split("--config configs/small_bert.yaml --train.device cpu")
        done = finish([sys.executable, "-c", MANY_SIZES, *settings], **environment)
        assert done.returncode == 0, done.stderr
        return tuple(map(float, done.stdout.split()))

    all_sizes, first_sizes = grown()
    if first_sizes < 2:
        pytest.skip("this CPU compiles no kernels for products in bf16")
    # The control: the user's environment counts, and the limit is what keeps the memory small.
    assert grown(**dict.fromkeys(KERNEL_CACHES, "1024"))[0] > 4 * all_sizes
