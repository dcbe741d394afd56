"""What the program calls its commands and files where it is installed: only what is there."""

import ast
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from app.commands import VERBS
from app.config.shipped import FEW_LABELS_CONFIG
from app.program import file_here, install_command, with_names_here
from tests.processes import ROOT, finish

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
WHEEL = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]
# Files and commands that a clone has, and an installed package has not, or calls otherwise
OF_A_CLONE = re.compile(
    r"(?<![\w/.-])(?:configs|docs|examples|requirements|scripts|data/sample)/\w"
    r"|(?<![\w/])(?:run_\w+|predict|verify_modes)\.py|-m app\b"
    r"|(?<![\w/])(?:requirements|constraints)\.txt|python run_"
)
# These make the names, or write for a clone only; help texts are renamed by `with_names_here`
WRITERS = {
    *("app/program.py", "app/report/commands.py", "app/run.py", "app/commands/parser.py"),
    *("app/config/help.py", "app/config/command_line.py"),
}


def messages_in(tree: ast.AST) -> list[ast.Constant]:
    """Return the strings of a file that are no docstrings, and are not given to `file_here`."""
    left_out = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            left_out.add(node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "file_here":
            left_out.update(node.args)
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node not in left_out]
    return [node for node in nodes if isinstance(node.value, str)]


def test_messages_name_files_and_commands_by_the_functions_for_it():
    problems = []
    for path in sorted((ROOT / "app").rglob("*.py")):
        name = str(path.relative_to(ROOT))
        if name in WRITERS:
            continue
        for node in messages_in(ast.parse(path.read_text("utf-8"))):
            if OF_A_CLONE.search(node.value):
                problems.append(f"{name}:{node.lineno}: {node.value[:80]}")
    for path in (ROOT / "app").rglob("*.jinja"):
        if OF_A_CLONE.search(path.read_text("utf-8")):
            problems.append(str(path))
    assert problems == []


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the package as a wheel puts it there."""
    folder = tmp_path_factory.mktemp("site")
    for name in WHEEL["only-include"]:
        first, slash, rest = name.partition("/")
        target = folder / (WHEEL["sources"][first] + slash + rest)
        if (ROOT / name).is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        else:
            shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


HELPS = """
import sys
from chinese_text_classifier.commands import main
from chinese_text_classifier.errors import needed
from chinese_text_classifier.report.commands import training_command, verb_command
from chinese_text_classifier.run import main_of_module

sys.argv[0] = "chinese_text_classifier/__main__.py"
for verb in sys.argv[1:]:
    assert main([verb, "--help"]) == 0
for words in (["--help"], ["ddp", "--help"], ["single", "--help", "all"]):
    assert main_of_module(words) == 0
assert main_of_module([]) == main_of_module(["tpu"]) == main(["train", "--mode", "tpu"]) == 2
print(verb_command("predict", "x"), training_command("y"), sep="\\n", flush=True)
with needed("serve"):
    raise ImportError("no module")
"""


def test_an_installed_package_names_only_what_is_there(site, tmp_path):
    done = finish([sys.executable, "-c", HELPS, *VERBS], tmp_path, PYTHONPATH=str(site))
    assert "a mode must come first (accelerate, ddp," in done.stderr
    assert done.stderr.count("found nothing\n") == done.stderr.count("found tpu\n") == 1
    assert "error: there is no mode tpu (known: accelerate, ddp," in done.stderr
    assert done.stderr.count("Traceback") == 2
    assert "install it: pip install 'chinese-text-classification[serve]'" in done.stderr
    lines = [line for line in done.stdout.splitlines() if OF_A_CLONE.search(line)]
    assert len(lines) == 1
    assert lines[0].startswith("In a clone, run_single.py, run_ddp.py, ... do the same.")
    program = "python -m chinese_text_classifier"
    assert done.stdout.endswith(f"{program} predict x\n{program} train y\n")
    paths = re.findall(rf"{re.escape(str(site))}/[\w./-]*\w", done.stdout)
    shipped = site / "chinese_text_classifier" / "shipped"
    names = {str(Path(path).relative_to(shipped)) for path in paths}
    assert {"configs/small_bert.yaml", "docs/data.md", "docs/settings.md"} <= names
    assert [path for path in paths if not Path(path).exists()] == []


def test_in_a_clone_files_are_named_from_the_current_folder(tmp_path, monkeypatch):
    text = "python predict.py --config configs/few_labels.yaml (docs/data.md, docs/none.md, my/docs/data.md)"
    monkeypatch.chdir(ROOT)
    assert file_here("docs/data.md") == "docs/data.md"
    assert install_command("ray") == "pip install -r requirements/ray.txt -c constraints.txt"
    assert with_names_here(text) == text
    monkeypatch.chdir(tmp_path)
    assert install_command("ray") == f"pip install -r {ROOT}/requirements/ray.txt -c {ROOT}/constraints.txt"
    named = f"python {ROOT}/predict.py --config {FEW_LABELS_CONFIG} ({ROOT}/docs/data.md, "
    assert with_names_here(text) == f"{named}docs/none.md, my/docs/data.md)"


EDITABLE = """
import site, sys
site.addsitedir(sys.argv[1])
import app
from chinese_text_classifier import TextClassifier, load
from chinese_text_classifier.commands import main
from chinese_text_classifier.errors import InputError
assert app.NAME == "the app of the project"
assert TextClassifier.__module__ == "chinese_text_classifier"
try:
    load("nothing")
except InputError:
    print("refused")
sys.argv[0] = "chinese-text-classifier"
sys.exit(main(["train", "--print_config"]))
"""


@pytest.mark.slow
def test_an_editable_installation_works_beside_an_app_of_the_project(tmp_path):
    prefix = tmp_path / "prefix"
    words = ["--quiet", "--no-deps", "--ignore-installed", f"--prefix={prefix}", "-e", str(ROOT)]
    finish([sys.executable, "-m", "pip", "install", *words], tmp_path, status=0)
    [packages] = prefix.glob("lib*/python*/site-packages")
    assert not (packages / "chinese_text_classifier").exists()
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("NAME = 'the app of the project'\n")
    done = finish([sys.executable, "-c", EDITABLE, str(packages)], tmp_path, status=0)
    assert done.stdout.startswith("refused\ndata:\n  task: single_label\n")
    program = [sys.executable, "-m", "chinese_text_classifier"]
    done = finish([*program, "train", "--train.epoch", "1"], tmp_path, status=2, PYTHONPATH=str(ROOT))
    assert "did you mean 'train.epochs'?" in done.stderr
