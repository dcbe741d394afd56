"""What the machine has for a process, and what becomes of its memory."""

import ctypes
import platform
import sys
from shlex import split

import pytest

from app.config.schema import Config, TrainConfig
from app.modes import open_mode
from app.runtime import machine
from app.runtime.devices import bf16_speedup
from app.runtime.machine import KERNEL_CACHES
from tests.processes import finish

# Frees 240 MB and asks for them again; prints how many new pages that took.
ALLOCATE = """
import ctypes, resource, sys
import torch
from app.runtime.machine import give_back_memory, keep_freed_memory

ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)  # PR_SET_THP_DISABLE: in huge pages there would be too few to count

def pages():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt

keep_freed_memory()
for turn in range(4):
    if turn == 3 and "give" in sys.argv:
        give_back_memory(torch.device("cpu"))
    before = pages()
    tensors = [torch.empty(20 << 18).fill_(1.0) for _ in range(12)]
    taken = pages() - before
    del tensors
print(taken)
"""
# oneDNN finds no memory for a kernel, then there is some again; prints the error of each call, or "done".
NO_KERNEL = """
import resource
from pathlib import Path
import torch
from app.training.step import replace_onednn

def convolve(size):
    try:
        torch.nn.functional.conv2d(torch.zeros(2, 16, size, 37), torch.zeros(16, 16, 3, 3))
        return "done"
    except RuntimeError as error:
        problems.append(error)
        return str(error)

problems, said = [], [convolve(9)]
# Holes for the tensors, so that the kernel alone finds no memory
holes = [torch.empty(16_000) for _ in range(100)]
del holes[::2]
used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_DATA, (used - 2**20, resource.RLIM_INFINITY))
said.append(convolve(10))
resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
said.append(convolve(11))
if problems:
    replace_onednn(problems[0])
said.append(convolve(12))
print(*said, sep="\\n")
"""


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


def said_by(script: str, *words: str, **environment: str) -> str:
    done = finish([sys.executable, "-c", script, *words], **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's malloc is what is set")
def test_freed_memory_is_kept_until_it_is_to_be_given_back():
    # Of 4 KiB
    pages = 240 * 256
    # Not none: a small object may come to lie where a block was
    assert int(said_by(ALLOCATE)) < pages / 4
    assert int(said_by(ALLOCATE, "give")) > pages * 0.9


@pytest.mark.slow
def test_a_run_goes_on_without_onednn_where_that_had_no_memory_for_a_kernel():
    done = finish([sys.executable, "-c", NO_KERNEL])
    assert done.returncode == 0, done.stderr
    before, without_memory, with_memory, checked = done.stdout.splitlines()
    if without_memory == "done":
        pytest.skip("this torch convolves without oneDNN")
    assert (before, checked) == ("done", "done")
    # The control: memory alone does not help.
    assert without_memory == with_memory == "could not create a primitive"
    assert "torch's own kernels are used from now on" in done.stderr


def test_slow_bf16_is_warned_of(monkeypatch, caplog):
    speedup = bf16_speedup()
    assert 0 < speedup < 100
    config = Config(train=TrainConfig(device="cpu", precision="bf16"))
    for limit, warnings in ((0, 0), (float("inf"), 1)):
        monkeypatch.setattr(machine, "SLOW_BF16", limit)
        with open_mode("single", config):
            assert sum("train.precision fp32 is faster here" in line for line in caplog.messages) == warnings


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the heap is asked by a call of glibc 2.33"
)
@pytest.mark.slow
def test_kernels_of_many_sizes_take_little_memory(monkeypatch):
    for name in KERNEL_CACHES:
        monkeypatch.delenv(name, raising=False)

    def grown(**environment: str) -> tuple[float, float]:
        settings = split("--config configs/small_bert.yaml --train.device cpu")
        return tuple(map(float, said_by(MANY_SIZES, *settings, **environment).split()))

    all_sizes, first_sizes = grown()
    if first_sizes < 2:
        pytest.skip("this CPU compiles no kernels for products in bf16")
    # The control: the user's environment counts, and the limit is what keeps the memory small.
    assert grown(**dict.fromkeys(KERNEL_CACHES, "1024"))[0] > 4 * all_sizes
