"""What the machine has for a process, and what becomes of its memory."""

import platform
import sys

import pytest

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
