"""`python -m app`: the list of verbs, mistyped ones, and the scripts at the root: python -m pytest
tests/commands"""

import json
import sys

import pytest

from app.commands import VERBS, main, run_verb
from tests.processes import ROOT, finish

SLOW_IMPORTS = {"torch", "transformers", "numpy", "pandas", "pyarrow", "sklearn"}
DOORS = {"predict.py": "predict", "verify_modes.py": "verify"}
# Print the list of verbs and what has been imported, then the helps, and what has then been imported; a form
# feed after each
HELPS = """
import json, runpy, sys
from contextlib import suppress
from app.commands import main
sys.argv[0] = "app/__main__.py"
assert main([]) == 0
print(*sys.modules, end="\\f")
for verb in json.loads(sys.argv[1]):
    main([verb, "--help"])
    print(end="\\f")
for script in json.loads(sys.argv[2]):
    sys.argv = [script, "--help"]
    with suppress(SystemExit):
        runpy.run_path(script, run_name="__main__")
    print(end="\\f")
print(*sys.modules)
"""


@pytest.fixture(scope="module")
def helps() -> dict[str, str]:
    """The list of verbs, and the help of each verb and of each script at the root, printed by one process."""
    done = finish([sys.executable, "-c", HELPS, json.dumps(list(VERBS)), json.dumps(list(DOORS))], timeout=60)
    assert done.returncode == 0, done.stderr
    verbs, *parts, modules = done.stdout.split("\f")
    assert "torch" not in modules.split()
    return dict(zip(["", *VERBS, *DOORS], [verbs, *parts], strict=True))


def test_without_a_verb_the_verbs_are_listed_and_nothing_slow_is_imported(helps):
    *lines, modules = helps[""].splitlines()
    assert lines[0] == "usage: python -m app VERB [options]"
    assert "app.commands" in modules.split()
    assert not SLOW_IMPORTS & set(modules.split())
    for verb, (_, line) in VERBS.items():
        assert sum(text.split() == [verb, *line.split()] for text in lines) == 1


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
    assert main() == 0
    text = capsys.readouterr().out
    assert text.startswith("usage: chinese-text-classifier predict [")
    assert "\nchinese-text-classifier predict --input " in text


def test_an_unknown_verb_names_the_nearest_or_all(capsys):
    assert main(["verfy", "--steps", "2"]) == main(["xyz"]) == 2
    assert capsys.readouterr() == (
        "",
        "error: there is no verb 'verfy'; did you mean 'verify'?\n"
        f"error: there is no verb 'xyz' (known: {', '.join(VERBS)})\n",
    )


def test_a_verb_reads_the_command_line(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["verify_modes.py", "--steps", "0"])
    assert run_verb("verify", program="python verify_modes.py") == 2
    assert capsys.readouterr().err == "error: --steps must be at least 1, found 0\n"


@pytest.mark.parametrize("command", ["-m app", "-m app verify --help", "run_single.py --help"])
def test_a_help_whose_reader_has_gone_ends_quietly(command):
    """`head` ends after its first line."""
    done = finish(["bash", "-c", f"set -o pipefail; {sys.executable} {command} | true"])
    assert (done.returncode in (0, 141), done.stderr) == (True, "")


@pytest.mark.parametrize("package", ["yaml", "torch"])
def test_without_the_environment_there_is_one_sentence(package):
    code = f"import sys\nsys.modules[{package!r}] = None\nfrom app.run import main\n"
    code += "print(main('single', '', []))"
    done = finish([sys.executable, "-c", code])
    assert done.stdout == "2\n"
    rule = f"error: the package {package} is not installed for {sys.executable}; activate"
    assert done.stderr.startswith(rule)
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("command", [["-m", "app", "compare", "a", "b"], ["-m", "app.run", "single"]])
def test_a_removed_working_folder_is_an_error(tmp_path, command):
    """torch's own libraries end the process there."""
    code = f"import os, sys; os.rmdir(os.getcwd()); os.execv(sys.executable, [sys.executable, *{command}])"
    (tmp_path / "folder").mkdir()
    done = finish([sys.executable, "-c", code], tmp_path / "folder", PYTHONPATH=str(ROOT))
    assert (done.returncode, done.stderr) == (
        2,
        "error: the working folder must exist, but it was removed; change to another one (cd) and run it "
        "again\n",
    )
