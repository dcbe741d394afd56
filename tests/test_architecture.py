"""The structure of app/, drawn from its imports: python -m pytest tests/test_architecture.py

A folder imports only folders before it in LAYERS, modules do not import each other in circles, every module
is reached from an entry point. Imports inside functions and under TYPE_CHECKING count too.
"""

import ast
import re
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

from app.data.labels import LABEL_FORMS
from app.tasks import TASK_CLASSES, task_class

ROOT = Path(__file__).resolve().parents[1]
LAYERS = [
    *("words", "errors", "text_table", "config", "runtime", "data", "batching", "model", "vectors", "tasks"),
    *("report", "modes", "checkpoints", "training", "prediction", "explanation", "export", "serving", "run"),
    *("runs", "commands", "api"),
]
# `python -m` runs these; the scripts at the root are found by themselves.
ENTRIES = ("app", "app.__main__", "app.run")


def name_of(path: Path) -> str:
    """Return the name of a module: app/run.py is app.run."""
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


MODULES = {name_of(path): path for path in sorted((ROOT / "app").rglob("*.py"))}
SCRIPTS = sorted(ROOT.glob("*.py"))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules of app/ that a file imports, anywhere in it."""
    package = path.relative_to(ROOT).parent.parts
    imported = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*parents, *filter(None, [node.module])])
            names = {f"{module}.{alias.name}" for alias in node.names}
            submodules = names & set(MODULES)
            imported |= submodules | ({module} if names - submodules else set())
    return frozenset(imported & set(MODULES))


@cache
def named_modules(path: Path) -> frozenset[str]:
    """Return the modules that a file of app/ names in strings, ".module" or ".module:Class", to import them
    when needed."""
    package = ".".join(path.relative_to(ROOT).parent.parts)
    names = {string.split(":")[0] for string in strings(path)}
    relative = {name for name in names if re.match(r"\.{1,2}\w", name)}
    return frozenset({resolve_name(name, package) for name in relative} & set(MODULES))


def layer(module: str) -> int:
    """Return the place of a module's folder in LAYERS; app and app.__main__ are above all."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if len(parts) > 1 and parts[1] != "__main__" else len(LAYERS)


def upward(pairs: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the imports of a later folder by an earlier one."""
    return {(one, other) for one, other in pairs if layer(one) < layer(other)}


def circle(pairs: set[tuple[str, str]]) -> list[str] | None:
    """Return the modules of one circle of imports, or None."""
    sorter = TopologicalSorter()
    for one, other in pairs:
        sorter.add(one, other)
    try:
        sorter.prepare()
    except CycleError as error:
        return error.args[1]
    return None


def reached() -> set[str]:
    """Return the modules that the entry points import, directly or through others, with their packages."""
    wanted = set(ENTRIES)
    for script in SCRIPTS:
        wanted |= imports(script)
    done: set[str] = set()
    while wanted - done:
        name = (wanted - done).pop()
        done.add(name)
        package = {name.rpartition(".")[0]} & set(MODULES)
        wanted |= package | imports(MODULES[name]) | named_modules(MODULES[name])
    return done


def test_folders_import_earlier_folders_only_and_modules_not_in_circles():
    edges = {(name, imported) for name, path in MODULES.items() for imported in imports(path)}
    assert {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"} <= set(LAYERS)
    assert upward(edges) == set()
    assert circle(edges) is None


def test_every_module_is_reached_from_an_entry_point():
    assert set(MODULES) - reached() == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_only_starts_what_is_in_the_package(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 25


def modules_of_kind(task: str) -> set[str]:
    """Return the modules with the task of a kind of answer, and with the form of its labels."""
    return {task_class(task).__module__, type(LABEL_FORMS[task]).__module__}


@cache
def strings(path: Path) -> frozenset[str]:
    """Return the strings of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# All ask a `Task`, which is one label a row where its methods are not overridden.
ASKED = "app.tasks.task"


def places_of_kind(task: str, sources: dict[str, Path]) -> set[str]:
    """Return which modules name a kind of answer in code, beside its own: its `data.task`, its problem type,
    or its class, imported."""
    own, module = modules_of_kind(task), task_class(task).__module__
    names = {task, task_class(task).problem_type or task}
    return {
        name
        for name, path in sources.items()
        if name not in own and (names & strings(path) or (module != ASKED and module in imports(path)))
    }


@pytest.mark.parametrize("task", TASK_CLASSES)
def test_a_kind_of_answer_is_named_in_four_other_files(task):
    """The table of tasks, that of forms, that of settings, and that of metrics; all others ask the
    task. A kind that is a variant of another one imports it."""
    places = places_of_kind(task, MODULES)
    variants = {module for kind in TASK_CLASSES for module in modules_of_kind(kind)}
    allowed = {"app.tasks", "app.data.labels", "app.config.data_settings", "app.report.metrics"}
    assert places - variants <= allowed


def test_imports_inside_the_package_are_relative():
    """So that it can be installed under another name than app."""
    absolute = re.compile(r"^\s*(from|import) (app|chinese_text_classifier)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if absolute.search(path.read_text(encoding="utf-8"))] == []


def test_the_rules_find_what_breaks_them(tmp_path, monkeypatch):
    path = tmp_path / "app" / "data" / "x.py"
    path.parent.mkdir(parents=True)
    path.write_text(
        "import torch\nfrom app import words\nfrom . import rows\ndef f():\n    from ..run import main\n"
    )
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    assert imports(path) == {"app.words", "app.data.rows", "app.run"}
    wrong = {("app.data.rows", "app.training.train"), ("app.run", "app.__main__")}
    assert upward(wrong | {("app.training.train", "app.data.rows")}) == wrong
    assert circle({("a", "b"), ("b", "c")}) is None
    assert set(circle({("a", "b"), ("b", "c"), ("c", "a")})) == {"a", "b", "c"}
