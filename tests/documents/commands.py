"""The commands, settings and paths that the documents name, and how each is checked without running it."""

from __future__ import annotations

import argparse
import ast
import re
import runpy
import shlex
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import yaml

from app.config.command_line import SHORT_OPTIONS, load_config, take_number
from app.config.schema import SETTINGS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    *sorted(path.name for path in ROOT.glob("*.md")),
    *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("d*/**/*.md")),
]
LAUNCHERS = ("torchrun", "deepspeed", "horovodrun", "accelerate")
PROGRAMS = ("python", "bash", "pip", "chinese-text-classifier", *LAUNCHERS)
NOT_CHECKED = ("cat", "kill", "ruff", "kubectl", "git", "cd", "curl", "docker")
# For a launcher that is named without one
SCRIPT = "run_ddp.py"


def read(document: str) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def project(*keys: str) -> dict:
    """Return a table of pyproject.toml."""
    table = tomllib.loads(read("pyproject.toml"))
    for key in keys:
        table = table[key]
    return table


def fenced_commands(text: str) -> list[list[str]]:
    """Return the words of each command in the bash blocks of a document, without comments."""
    blocks = re.findall(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    return [command for line in lines for command in simple_commands(line)]


def simple_commands(line: str) -> list[list[str]]:
    """Return the commands of a line of shell, which may be joined by `&&`, `|`, `&` or `;`, without variables
    set before them."""
    commands: list[list[str]] = [[]]
    # In quotes they join nothing
    line = re.sub(r"""(['"])(&&|[|&;])\1""", r"\\\2~", line)
    for word in shlex.split(line, comments=True):
        if word in ("&&", "|", "&", ";"):
            commands.append([])
        elif commands[-1] or not re.match(r"[A-Z_]+=", word):
            commands[-1].append(re.sub(r"^(&&|[|&;])~$", r"\1", word))
    return [command for command in commands if command]


def inline_code(text: str) -> list[str]:
    """Return what stands between single backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def inline_commands(text: str) -> list[list[str]]:
    """Return the words of the commands in inline code; a launcher alone gets a script."""
    codes = [code for code in inline_code(text) if code.split()[0] in PROGRAMS and "$" not in code]
    return [with_script(command) for code in codes for command in simple_commands(code)]


def with_script(command: list[str]) -> list[str]:
    launcher, *words = command
    if launcher not in LAUNCHERS or any(word.endswith(".py") or word == "-m" for word in words):
        return command
    defaults = {"accelerate": ["launch"], "horovodrun": ["-np", "2"]}
    words = words or defaults.get(launcher, [])
    return [launcher, *words, *(["python"] if launcher == "horovodrun" else []), SCRIPT]


def docstring_commands(path: Path) -> list[list[str]]:
    """Return the words of the commands in a docstring; what they do may follow after three spaces."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    lines = docstring.replace("\\\n", " ").splitlines()
    lines = [line for line in lines if re.match(rf" *({'|'.join(PROGRAMS)}) [^.:]*[-/=.]", line)]
    return [command for line in lines for command in simple_commands(re.split(r" {3,}", line.strip())[0])]


def batch_scripts() -> list[list[str]]:
    """Return the commands of the files for Slurm and Kubernetes."""
    slurm = re.search(r"^srun (.*)", read("examples/slurm.sh").replace("\\\n", " "), re.MULTILINE)[1]
    job = yaml.safe_load(read("examples/kubeflow.yaml"))
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return [shlex.split(re.sub(r"\$\w+", "2", slurm)), [*container["command"], *container["args"]]]


@cache
def check(command: tuple[str, ...]) -> None:
    """Raise an error unless the script exists and its parser takes the arguments; nothing is run.

    Cached, because both languages have the same commands.
    """
    program, *words = command
    if program in ("python", "python3"):
        check_python(words)
    elif program in LAUNCHERS:
        check_launcher(program, words)
    elif program == "pip":
        check_pip(words)
    elif program in project("project", "scripts"):
        check_verb(words)
    elif program in ("bash", "sbatch", "."):
        assert (ROOT / words[0]).is_file() or words[0] == ".venv/bin/activate", f"there is no {words[0]}"
    elif "/" in program:
        assert (ROOT / program).is_file(), f"there is no {program}"
    else:
        assert program in NOT_CHECKED, f"no check for {program}"


def check_python(words: list[str]) -> None:
    if words[:1] != ["-m"]:
        check_script(words[0], words[1:])
    elif words[1] == "pytest":
        check_pytest(words[2:])
    elif words[1] == "torch.distributed.launch":
        from torch.distributed.launch import parse_args

        args = parse_args(words[2:])
        check_script(args.training_script, args.training_script_args)
    elif words[1] not in ("venv", "pip"):
        check_module(words[1], words[2:])


def check_launcher(launcher: str, words: list[str]) -> None:
    """Check the options with the launcher's own parser, where it is installed, and then what it starts."""
    if launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        args = get_args_parser().parse_args(words)
        start = check_module if args.module else check_script
        start(args.training_script, args.training_script_args)
    elif launcher == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        args = launch_command_parser().parse_args(words[1:])
        check_script(args.training_script, args.training_script_args)
    elif launcher == "deepspeed" and find_spec("deepspeed"):
        from deepspeed.launcher.runner import parse_args

        args = parse_args(words)
        check_script(args.user_script, args.user_args)
    else:
        first = next(index for index, word in enumerate(words) if word.endswith(".py"))
        check_script(words[first], words[first + 1 :])


def check_pip(words: list[str]) -> None:
    files = [file for option, file in zip(words, words[1:], strict=False) if option in ("-r", "-c")]
    assert [file for file in files if not (ROOT / file).is_file()] == []
    for word in words:
        if word.startswith(".["):
            assert set(word[2:-1].split(",")) <= set(project("project", "optional-dependencies"))


def check_pytest(words: list[str]) -> None:
    markers = {line.split(":")[0] for line in project("tool", "pytest", "ini_options")["markers"]}
    for option, word in zip(["", *words], words, strict=False):
        if option == "-m":
            unknown = set(re.findall(r"\w+", word)) - {"not", "and", "or"} - markers
            assert not unknown, f"-m {word}: no such marker"
        elif not word.startswith("-") and option not in ("-k", "-n", "--dist"):
            assert (ROOT / word.split("::")[0]).exists(), f"there is no {word}"


def check_script(script: str, arguments: list[str]) -> None:
    path = ROOT / script
    assert path.is_file(), f"there is no {script}"
    if re.fullmatch(r"run_\w+\.py", script):
        check_settings(arguments, script)
    elif script == "predict.py":
        check_verb(["predict", *arguments])
    else:
        check_parser(arguments, path)


def check_module(module: str, arguments: list[str]) -> None:
    # The name of app where it is installed
    module = module.replace("chinese_text_classifier", "app")
    if module == "app":
        check_verb(arguments)
    elif module == "app.run":
        check_script(f"run_{arguments[0]}.py", arguments[1:])
    else:
        assert find_spec(module), f"there is no module {module}"
        check_parser(arguments, module)


def check_verb(words: list[str]) -> None:
    words = words[:1] if "--help" in words else words
    if words[:1] == ["predict"] and len(words) > 1:
        from app.commands.predict import build_parser, parse

        # It checks more than its parser does
        parse(build_parser("predict"), words[1:])
    elif len(words) > 1:
        check_parser(words, "app")
    elif words:
        from app.commands import VERBS

        assert words[0] in VERBS, f"there is no verb {words[0]}"


def check_settings(arguments: list[str], script: str = "run_single.py") -> None:
    arguments, _ = take_number(arguments, "--nprocs")
    if arguments != ["--help"]:
        load_config(arguments, script)


class Parsed(Exception):
    """A parser has taken the command line; `rest` is what it left for the trainer."""

    def __init__(self, rest: list[str]) -> None:
        self.rest = rest


def check_parser(arguments: list[str], target: Path | str) -> None:
    """Start a script or module and stop it when its parser has taken the arguments; what that leaves must be
    settings."""
    path = [str(target.parent), *sys.path] if isinstance(target, Path) else sys.path[:]
    run = runpy.run_path if isinstance(target, Path) else runpy.run_module
    argv = [str(target), *arguments]
    with stopped_after_parsing(), patch.object(sys, "argv", argv), patch.object(sys, "path", path):
        try:
            run(str(target), run_name="__main__")
        except Parsed as parsed:
            check_settings(parsed.rest)
            return
    # This one takes no arguments, and has printed what it prints
    assert target == "app.config.help", f"{target} has no parser"


@contextmanager
def stopped_after_parsing() -> Iterator[None]:
    """Make every argparse parser raise `Parsed` instead of returning; parse_args and others call this one."""
    original = argparse.ArgumentParser.parse_known_args

    def parse(self, args=None, namespace=None):
        raise Parsed(original(self, args, namespace)[1])

    with patch.object(argparse.ArgumentParser, "parse_known_args", parse):
        yield


@cache
def known_options() -> set[str]:
    """Return every option that a parser of this repository or of a launcher defines."""
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser

    from app.commands.predict import build_parser

    files = [path for folder in ("app", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    options = {name for path in files for name in re.findall(r'"(--[\w-]+)"', path.read_text("utf-8"))}
    for parser in (get_args_parser(), launch_command_parser(), build_parser("predict")):
        options |= set(parser._option_string_actions)
    return options | {f"--{name}" for name in [*SHORT_OPTIONS, "config", *SETTINGS]}


def is_setting(name: str) -> bool:
    """Return whether `group.key` is a setting; keys of `model.config` are those of transformers."""
    return name in SETTINGS or name.startswith("model.config.")


def check_option(code: str) -> None:
    """Check inline code that begins with an option: a setting with its value, or a known name."""
    words = shlex.split(code)
    name = words[0].split("=")[0]
    if is_setting(name[2:]) or name[2:] in SHORT_OPTIONS:
        if len(words) > 1 and not re.fullmatch(r"[A-Z]+", words[1]):
            check_settings(words)
    else:
        assert name in known_options(), f"no parser has {name}"
