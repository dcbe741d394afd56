"""`python -m app`: the list of verbs, mistyped ones, and the scripts at the root: python -m pytest
tests/commands"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.commands import VERBS, main, run_verb

ROOT = Path(__file__).resolve().parents[2]
SLOW_IMPORTS = {"torch", "transformers", "numpy", "pandas", "pyarrow", "sklearn"}
DOORS = {"predict.py": "predict", "verify_modes.py": "verify"}
# Print the helps, a form feed after each, and then what has been imported
HELPS = """
import json, runpy, sys
from contextlib import suppress
from app.commands import main
for verb in json.loads(sys.argv[1]):
    sys.argv[0] = "app/__main__.py"
    with suppress(SystemExit):
        main([verb, "--help"])
    print(end="\\f")
for script in json.loads(sys.argv[2]):
    sys.argv = [script, "--help"]
    with suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    print(end="\\f")
print(*sys.modules)
"""


def run_python(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", timeout=60, check=False)


def test_without_a_verb_the_verbs_are_listed_and_nothing_slow_is_imported():
    code = (
        "import runpy, sys\ntry:\n    runpy.run_module('app', run_name='__main__')\nfinally:\n    "
        "print(*sys.modules)"
    )
    done = run_python("-c", code)
    assert done.returncode == 0, done.stderr
    *lines, modules = done.stdout.splitlines()
    assert "app.commands" in modules.split()
    assert not SLOW_IMPORTS & set(modules.split())
    for verb, (_, line) in VERBS.items():
        assert sum(text.split() == [verb, *line.split()] for text in lines) == 1


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["-m", "app", "--help"], 1), (["-m", "app", "verify", "--help"], 1), (["run_single.py", "--help"], 2)],
)
def test_help_that_cannot_be_written_is_one_error(arguments, status):
    """Standard output on a full disk, or whose reader has gone."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, *arguments]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment, cwd=ROOT, check=False
        )
    assert done.returncode == status
    assert done.stderr == "error: the help cannot be written to standard output: No space left on device\n"


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"]])
def test_help_lists_the_verbs(capsys, monkeypatch, arguments):
    monkeypatch.setattr("sys.argv", ["app/__main__.py"])
    assert main(arguments) == 0
    assert capsys.readouterr().out.startswith("usage: python -m app VERB [options]\n\nverbs:\n  predict ")


def test_an_unknown_verb_names_the_nearest_or_all(capsys):
    assert main(["verfy", "--steps", "2"]) == main(["xyz"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: there is no verb 'verfy'; did you mean 'verify'?\n"
        f"error: there is no verb 'xyz' (known: {', '.join(VERBS)})\n",
    )


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The help of each verb and of each script at the root, printed by one process."""
    done = run_python("-c", HELPS, json.dumps(sorted(VERBS)), json.dumps(sorted(DOORS)))
    assert done.returncode == 0, done.stderr
    *parts, modules = done.stdout.split("\f")
    assert "torch" not in modules.split()
    return dict(zip(sorted(VERBS) + sorted(DOORS), parts, strict=True))


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb_has_its_commands_without_torch(verb, helps):
    assert helps[verb].startswith(f"usage: python -m app {verb} [")
    assert helps[verb].count(f"python -m app {verb}") > 2


@pytest.mark.parametrize("script", DOORS)
def test_a_script_at_the_root_is_a_door_to_its_verb(script, helps):
    text, verb = helps[script], DOORS[script]
    assert text.startswith(f"usage: python {script} [")
    assert text.count(f"python {script}") > 2
    assert "-m app" not in text
    assert text.split() == helps[verb].replace(f"python -m app {verb}", f"python {script}").split()


def test_the_console_command_is_named_in_its_help(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/usr/bin/chinese-text-classifier", "predict", "--help"])
    with pytest.raises(SystemExit, match="0"):
        main()
    text = capsys.readouterr().out
    assert text.startswith("usage: chinese-text-classifier predict [")
    assert "\nchinese-text-classifier predict --input " in text


def test_a_verb_reads_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["verify_modes.py", "--steps", "0"])
    assert run_verb("verify", program="python verify_modes.py") == 2
    assert capsys.readouterr().err == "error: --steps must be at least 1, found 0\n"


@pytest.mark.parametrize("package", ["yaml", "torch"])
def test_without_the_environment_there_is_one_sentence(package):
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom app.run import main\n"
    code += "print(main('single', '', []))"
    done = run_python("-c", code)
    assert done.stdout == "2\n"
    assert done.stderr.startswith(
        f"error: the package {package} is not installed for {sys.executable}; activate"
    )
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["-m", "app", "compare", "a", "b"], ["-m", "app.run", "single"]])
def test_a_removed_working_folder_is_an_error(tmp_path, command):
    """torch's own libraries end the process there."""
    code = f"import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *{command}])"
    folder = tmp_path / "folder"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr == (
        "error: the working folder must exist, but it was removed; change to another one (cd) and run it "
        "again\n"
    )
