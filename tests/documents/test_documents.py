"""The documents are about this repository, and the same in both languages. Commands are parsed, not run."""

import argparse
import ast
import hashlib
import re
import runpy
import shlex
import sys
import tomllib
from functools import cache
from importlib.util import find_spec
from itertools import dropwhile
from pathlib import Path
from unittest.mock import patch

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from torch.distributed.run import get_args_parser

from app.commands import VERBS
from app.commands.predict import build_parser, parse
from app.config.command_line import SHORT_OPTIONS, load_config
from app.config.schema import SETTINGS, Config
from app.modes import MODES
from app.text_table import columns_of
from tests.processes import ROOT
from tests.test_architecture import LAYERS

PAGES = [path for name in ("*.md", "d*/**/*.md") for path in sorted(ROOT.glob(name))]
DOCUMENTS = [str(path.relative_to(ROOT)) for path in PAGES]
# English documents that have a Chinese twin
TRANSLATED = [name.replace(".zh-CN", "") for name in DOCUMENTS if name.endswith(".zh-CN.md")]
MOST_LINES = {"docs/architecture.md": 250}
SCRIPTS = [path for name in ("*.py", "app/commands/*.py", "benchmarks/**/*.py") for path in ROOT.glob(name)]
GROUPS = tuple(Config().to_dict())
RUN_FILES = (".tsv", ".csv", ".json", ".jsonl", ".log", ".md", ".txt", ".safetensors", ".yaml", ".bin", ".py")
LAUNCHERS = ("torchrun", "deepspeed", "horovodrun", "accelerate")
PROGRAMS = ("python", "bash", "pip", "chinese-text-classifier", *LAUNCHERS)
NOT_CHECKED = ("cat", "cp", "kill", "ruff", "kubectl", "git", "cd", "curl", "docker")


def read(document: str | Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def simple_commands(line: str) -> list[list[str]]:
    """Return the commands of a line of shell, without variables set before them and without a comment."""
    line = re.sub(r"(^| )# .*", "", line)
    parts = re.findall(r"""(?:'[^']*'|"[^"]*"|[^'"&|;])+""", line)
    commands = [list(dropwhile(re.compile(r"[A-Z_]+=").match, shlex.split(part))) for part in parts]
    return [command for command in commands if command]


def inline_code(text: str) -> list[str]:
    """Return what stands between single backticks, outside of blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", text)]


def commands_of(document: str) -> list[list[str]]:
    """Return the commands in the blocks of a document, and between its words."""
    blocks = re.findall(r"^```bash\n(.*?)^```", read(document), re.DOTALL | re.MULTILINE)
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    lines += [code for code in inline_code(read(document)) if code.split()[0] in PROGRAMS and "$" not in code]
    return [command for line in lines for command in simple_commands(line)]


def docstring_commands(path: Path) -> list[list[str]]:
    """Return the commands in docstrings; what they do may follow after three spaces."""
    nodes = ast.walk(ast.parse(read(path)))
    documented = [node for node in nodes if isinstance(node, (ast.Module, ast.FunctionDef))]
    text = "\n".join(ast.get_docstring(node) or "" for node in documented)
    lines = text.replace("\\\n", " ").splitlines()
    lines = [line for line in lines if re.match(rf" *({'|'.join(PROGRAMS)}) [^.:]*[-/=.]", line)]
    return [command for line in lines for command in simple_commands(re.split(r" {3,}", line.strip())[0])]


def batch_commands() -> list[list[str]]:
    slurm = re.search(r"^srun (.*)", read("examples/slurm.sh").replace("\\\n", " "), re.MULTILINE)[1]
    job = yaml.safe_load(read("examples/kubeflow.yaml"))
    container = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"][0]
    return [shlex.split(re.sub(r"\$\w+", "2", slurm)), [*container["command"], *container["args"]]]


PROJECT = tomllib.loads(read("pyproject.toml"))
PUBLISHED = {name: commands_of(name) for name in DOCUMENTS}
OF_SCRIPTS = {str(path.relative_to(ROOT)): docstring_commands(path) for path in SCRIPTS}
WITH_COMMANDS = {name: commands for name, commands in OF_SCRIPTS.items() if commands}
EVERYWHERE = PUBLISHED | {"batch": batch_commands()} | WITH_COMMANDS


@cache
def check(program: str, *words: str) -> None:
    """Raise an error unless what a command starts exists and its parser takes the arguments. Cached, because
    both languages have the same commands."""
    if program == "python":
        target, *arguments = words[1:] if words[0] == "-m" else words
        check_start(target, arguments)
    elif program == "python3":
        assert words[:2] == ("-m", "venv")
    elif program == "chinese-text-classifier":
        check_start("app", list(words))
    elif program in LAUNCHERS:
        check_launcher(program, list(words))
    elif program == "pip":
        assert [word for word in words if word.endswith(".txt") and not (ROOT / word).is_file()] == []
        extras = set(re.findall(r"\.\[(\w+)\]", " ".join(words)))
        assert extras <= set(PROJECT["project"]["optional-dependencies"])
    elif program in ("bash", "sbatch", "."):
        assert (ROOT / words[0]).is_file() or words[0] == ".venv/bin/activate", f"there is no {words[0]}"
    else:
        assert program in NOT_CHECKED or ("/" in program and (ROOT / program).is_file()), program


def check_launcher(launcher: str, words: list[str]) -> None:
    """Check the options with the launcher's own parser, where it is installed, and then what it starts; a
    launcher that is named alone starts a script."""
    if not any(word.endswith(".py") or word == "-m" for word in words):
        words = [*words, "run_ddp.py"]
    if launcher == "torchrun":
        get_args_parser().parse_args(words)
    elif launcher == "accelerate":
        launch_command_parser().parse_args(words[words[0] == "launch" :])
    elif launcher == "deepspeed" and find_spec("deepspeed"):
        from deepspeed.launcher.runner import parse_args

        parse_args(words)
    at = next(at for at, word in enumerate(words) if word.endswith(".py") or word == "-m")
    check("python", *words[at:])


def check_start(target: str, arguments: list[str]) -> None:
    # The name of app where it is installed
    target = target.replace("chinese_text_classifier", "app")
    if target == "app.run":
        target = f"run_{arguments[0]}.py"
        arguments = arguments[1:]
    if target == "predict.py":
        target = "app"
        arguments = ["predict", *arguments]
    if target == "torch.distributed.launch":
        check_launcher("torchrun", arguments)
    elif target == "pytest":
        check_pytest(arguments)
    elif target == "app" and (len(arguments) < 2 or "--help" in arguments):
        assert set(arguments) <= {*VERBS, "--help"}
    elif target == "app" and arguments[0] == "predict":
        # It checks more than its parser does
        parse(build_parser("predict"), arguments[1:])
    elif re.fullmatch(r"run_\w+\.py", target):
        assert (ROOT / target).is_file(), f"there is no {target}"
        check_settings(arguments, target)
    elif target != "app.config.help":  # which takes no arguments
        check_parser(target, arguments)


def check_pytest(words: list[str]) -> None:
    markers = PROJECT["tool"]["pytest"]["ini_options"]["markers"]
    named = re.findall(r"\w+", words[words.index("-m") + 1]) if "-m" in words else []
    assert {*named} <= {"not", "and", "or", *(line.split(":")[0] for line in markers)}
    assert [word for word in words if "/" in word and not (ROOT / word.split("::")[0]).exists()] == []


def check_settings(arguments: list[str], script: str = "run_single.py") -> None:
    if "--nprocs" in arguments:
        at = arguments.index("--nprocs")
        assert arguments[at + 1].isdecimal()
        arguments = arguments[:at] + arguments[at + 2 :]
    if arguments != ["--help"]:
        load_config(arguments, script)


class Parsed(Exception):
    """A parser has taken the command line; `rest` is what it left for the trainer."""


def check_parser(target: str, arguments: list[str]) -> None:
    """Start a script or module up to its parser; what that leaves of the arguments must be settings."""
    original = argparse.ArgumentParser.parse_known_args
    intermixed = argparse.ArgumentParser.parse_known_intermixed_args

    def stop(self, args=None, namespace=None):
        raise Parsed(original(self, args, namespace)[1])

    def stop_between_words(self, args=None, namespace=None):
        """Options may stand between the words of this parser, for which it parses twice."""
        with patch.object(argparse.ArgumentParser, "parse_known_args", original):
            raise Parsed(intermixed(self, args, namespace)[1])

    path = sys.path
    run = runpy.run_module
    place = target
    if target.endswith(".py"):
        path = [str((ROOT / target).parent), *sys.path]
        run = runpy.run_path
        place = str(ROOT / target)
    with (
        patch.object(argparse.ArgumentParser, "parse_known_args", stop),
        patch.object(argparse.ArgumentParser, "parse_known_intermixed_args", stop_between_words),
        patch.object(sys, "argv", [target, *arguments]),
        patch.object(sys, "path", path),
        pytest.raises(Parsed) as parsed,
    ):
        run(place, run_name="__main__")
    check_settings(parsed.value.args[0])


@pytest.mark.parametrize("place", EVERYWHERE)
def test_every_command_is_parsed(place):
    for command in EVERYWHERE[place]:
        try:
            check(*command)
        except BaseException as error:
            raise AssertionError(f"{place}: {shlex.join(command)}: {error!r}") from error


def test_every_script_has_a_command_and_batch_scripts_resume_when_they_are_requeued():
    assert len(EVERYWHERE) - len(PUBLISHED) >= 16
    words = {word for commands in PUBLISHED.values() for command in commands for word in command}
    assert {path.name for path in ROOT.glob("*.py")} - {"chinese_text_classifier.py"} <= words
    assert ["--resume auto" in shlex.join(command) for command in batch_commands()] == [True, True]


def test_every_verb_has_a_command_in_the_docs():
    """With its arguments, on a page in docs/: the README has no room for all. A verb that is only named,
    `python -m app VERB`, has none yet."""
    verbs = set()
    for document in DOCUMENTS:
        if not document.startswith("docs/"):
            continue
        for command in PUBLISHED[document]:
            if command[:3] == ["python", "-m", "app"] and len(command) > 4:
                verbs.add(command[3])
            elif command[:2] == ["python", "predict.py"] and len(command) > 2:
                verbs.add("predict")
    assert set(VERBS) - verbs == set(), "write a command of it on a page in docs/"


@pytest.mark.parametrize(
    "command",
    [
        "python run_single.py --train.epoch 3",
        "python run_none.py",
        "python predict.py --chekpoint x",
        "python verify_modes.py --step 3.5",
        "torchrun --nproc=2 run_ddp.py --no.setting 1",
        "python -m benchmarks.reference_job --train.epoch 1",
        "python -m pytest tests/none",
        'python -m pytest -m "not sloww"',
        "pip install -r requirements/none.txt",
        "bash scripts/none.sh",
    ],
)
def test_a_wrong_command_is_found(command):
    """A control: the check above can fail."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - an InputError, an exit or an assertion, by the parser
        check(*shlex.split(command))


@cache
def known_options() -> set[str]:
    """Return every option that a parser of this repository or of a launcher defines."""
    files = [path for folder in ("app", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]
    options = {name for path in files for name in re.findall(r'"(--[\w-]+)"', read(path))}
    for parser in (get_args_parser(), launch_command_parser(), build_parser("predict")):
        options |= set(parser._option_string_actions)
    return options | {f"--{name}" for name in (*SHORT_OPTIONS, "config")}


def is_setting(name: str) -> bool:
    """Return whether `group.key` is a setting; keys of `model.config` are those of transformers."""
    return name in SETTINGS or name.startswith("model.config.")


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_option_and_setting_exists(document):
    for code in inline_code(read(document)):
        name = re.split("[ =]", code)[0]
        words = code.split()
        if re.match(rf"({'|'.join(GROUPS)})\.\w", name) and not name.endswith(RUN_FILES):
            assert is_setting(name)
        elif re.match(r"--\w", name) and not (is_setting(name[2:]) or name[2:] in SHORT_OPTIONS):
            assert name in known_options(), f"no parser has {name}"
        elif name.startswith("--") and len(words) > 1 and not re.fullmatch(r"[A-Z]+", words[1]):
            check_settings(shlex.split(code))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_and_every_test_exists(document):
    """A path is inline code that begins with a name of this repository's root, or is a Python file; a test is
    `test_file.py::test_name`, and `::test_name` is of the file named before it."""
    roots = {path.name for path in ROOT.iterdir()} - {"checkpoints", ".cache", ".git"}
    codes = (code.rstrip("/") for code in inline_code(read(document)))
    for path in (code for code in codes if re.fullmatch(r"[\w.\-*]+(/[\w.\-*]+)*", code)):
        if path.endswith(".py"):
            assert (ROOT / path).exists() or any(ROOT.glob(f"*/**/{path}")), path
        elif (path.split("/")[0] in roots and "/" in path) or path.endswith((".sh", ".yml")):
            assert any(ROOT.glob(path)), path
    file = ""
    for name, test in re.findall(r"`(?:[\w/]*/)?(test_\w+\.py)?::(\w+)`", read(document)):
        file = name or file
        (path,) = (ROOT / "tests").rglob(file)
        assert f"def {test}(" in read(path), f"{document}: {file} has no {test}"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_somewhere_and_lines_are_short(document):
    """Rows of tables may be longer, and a word that does not fit, such as a link."""
    for link in re.findall(r"\]\(((?!\w+://)[^)]+)\)", read(document)):
        path, _, anchor = link.partition("#")
        target = (ROOT / document).parent / path if path else ROOT / document
        assert target.exists(), link
        headings = re.findall(r"^#+ (.*)", read(target), re.MULTILINE) if anchor else []
        anchors = [re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-") for name in headings]
        assert not anchor or anchor in anchors, link
    lines = read(document).splitlines()
    assert len(lines) <= MOST_LINES.get(document, len(lines))
    # A block without a language is what the program prints, which stands as it is
    text = read(document)
    for block in re.findall(r"^```.*?^```$", text, re.DOTALL | re.MULTILINE):
        if block.startswith("```\n"):
            text = text.replace(block, "\n" * block.count("\n"))
    too_wide = []
    for number, line in enumerate(text.splitlines(), start=1):
        is_table = line.startswith("|")
        is_one_word = " " not in line.strip(" -")
        if columns_of(line) > 110 and not is_table and not is_one_word:
            too_wide.append(f"{document}:{number} has {columns_of(line)} columns")
    assert too_wide == [], "python scripts/wrap_pages.py wraps paragraphs"


def structure(text: str) -> dict[str, list]:
    """Return what a document has in each language: links; commands, without their comments; of what the
    program prints, which is in the reader's language, the numbers; numbers and inline code of each cell of a
    table; the level of each heading, and the inline code below it up to the next."""
    links = re.findall(r"\]\(([^)#]*)(?:#[^)]*)?\)", text)
    blocks = re.findall(r"^```.*?^```", text, re.DOTALL | re.MULTILINE)
    printed = [re.findall(r"\d+(?:[.,]\d+)*", block) for block in blocks if block[3] == "\n"]
    cells = [cell for row in re.findall(r"^\|.*", text, re.MULTILINE) for cell in row.split("|")]
    numbers = [re.findall(r"\d[\d,.]*\d|\d", re.sub(r"`[^`]+`", "", cell)) for cell in cells]
    code_and_numbers = []
    for cell, cell_numbers in zip(cells, numbers, strict=True):
        code_and_numbers.append(sorted(inline_code(cell) + cell_numbers))
    for block in blocks:
        text = text.replace(block, block.replace("#", "&"))
    parts = re.split(r"^(#+) .*\n", text, flags=re.MULTILINE)
    sections = zip(parts[1::2], parts[2::2], strict=True)
    return {
        "links": [path.replace(".zh-CN.md", ".md") for path in links],
        "commands": [re.sub(r" +# .*", "", block) for block in blocks if block[3] != "\n"],
        "printed": [sorted(block_numbers) for block_numbers in printed],
        "cells": code_and_numbers,
        "sections": [(level, {*inline_code(body)}) for level, body in sections],
    }


@pytest.mark.parametrize("document", TRANSLATED)
def test_both_languages_have_the_same_commands_tables_headings_code_and_links(document):
    english = structure(read(document))
    assert structure(read(f"{document.removesuffix('.md')}.zh-CN.md")) == english
    assert len(english["sections"]) >= 3


def test_every_room_and_mode_is_documented_and_the_licence_is_the_text_of_apache_2():
    rooms = re.findall(r"^\| `app/(\w+)` \|", read("docs/architecture.md"), re.MULTILINE)
    assert rooms == [layer for layer in LAYERS if (ROOT / "app" / layer).is_dir()]
    assert set(rooms) == {path.parent.name for path in (ROOT / "app").glob("*/__init__.py")}
    scripts = {f"run_{mode}.py" for mode in MODES}
    assert scripts == {path.name for path in ROOT.glob("run_*.py")}
    for document in ("README.md", "README.zh-CN.md", "docs/modes.md", "docs/modes.zh-CN.md"):
        assert {script for script in scripts if script not in read(document)} == set()
    digest = hashlib.sha256((ROOT / "LICENSE").read_bytes()).hexdigest()
    assert digest == "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
    assert "../../LICENSE" in read("data/sample/README.md")
