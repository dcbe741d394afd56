"""Commands that people copy, in a shell, or in this process with the words that the shell makes of them."""

import os
import subprocess
import sys
from pathlib import Path

from app.commands import run_verb
from app.run import main
from tests.processes import ROOT

# In place of Python: it prints where it would look for packages, and its arguments
PYTHON_PRINTS_ITS_WORDS = 'python() { printf \'%s\\0\' "$PYTHONPATH" "$@"; }\n'


def run_in_shell(command: str, **variables: str) -> str:
    """Run a command as it would be typed; return its standard output."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = os.environ | {"PATH": path} | variables
    result = subprocess.run(
        ["bash", "-c", command], env=environment, capture_output=True, text=True, timeout=900
    )
    assert result.returncode == 0, f"{command}\n{result.stdout}\n{result.stderr}"
    return result.stdout


def words_of_shell(command: str) -> tuple[str, list[str]]:
    """Return PYTHONPATH and the arguments that Python would get from a shell in a command."""
    environment = os.environ | {"PYTHONPATH": ""}
    words = ["bash", "-c", PYTHON_PRINTS_ITS_WORDS + command]
    printed = subprocess.run(words, env=environment, capture_output=True, check=True).stdout
    packages, *arguments, rest = printed.split(b"\0")
    assert rest == b"", f"not one command of Python: {command}"
    return os.fsdecode(packages), [os.fsdecode(argument) for argument in arguments]


def run_here(command: str) -> int:
    """Run a command of the program in this process, with the words that a shell makes of it; return its
    status. Starting Python and importing torch takes longer than most commands."""
    packages, arguments = words_of_shell(command)
    program, *words = arguments
    if program == "-m":
        module, verb, *words = words
        assert module == "app"
        assert Path(packages, "app").resolve() == ROOT / "app"
        return run_verb(verb, words)
    script = Path(program).resolve()
    assert script.parent == ROOT
    if script.name == "predict.py":
        return run_verb("predict", words)
    assert script.name == "run_single.py"
    return main("single", "", words)
