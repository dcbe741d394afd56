"""Where the memory of tensors comes from: python -m pytest tests/runtime/test_host_memory.py"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

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
