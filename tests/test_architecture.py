"""The structure of app/, drawn from its imports.

A folder imports only folders before it in LAYERS, modules do not import each other in circles, every module
is reached from an entry point. Imports inside functions and under TYPE_CHECKING count too.
"""

import ast
import re
from functools import cache
from graphlib import TopologicalSorter
from importlib.util import resolve_name
from pathlib import Path

import pytest

from app.data.labels import LABEL_FORMS
from app.tasks import TASK_CLASSES

ROOT = Path(__file__).resolve().parents[1]
LAYERS = [
    *("words", "errors", "text_table", "config", "runtime", "data", "batching", "model", "tasks"),
    *("report", "modes", "checkpoints", "training", "prediction", "explanation", "export", "serving", "run"),
    *("runs", "commands", "api"),
]
# `python -m` runs these; the scripts at the root are found by themselves.
ENTRIES = ("app", "app.__main__", "app.run")
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "app").rglob("*.py"))
}
SCRIPTS = sorted(ROOT.glob("*.py"))


@cache
def nodes(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def package_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).parent.parts)


@cache
def strings(path: Path) -> frozenset[str]:
    values = (node.value for node in nodes(path) if isinstance(node, ast.Constant))
    return frozenset(value for value in values if isinstance(value, str))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules of app/ that a file imports, anywhere in it."""
    package, imported = package_of(path), set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            names = {f"{module}.{alias.name}" for alias in node.names}
            imported |= names & set(MODULES) | ({module} if names - set(MODULES) else set())
    return frozenset(imported & set(MODULES))


def named_modules(path: Path) -> set[str]:
    """Return the modules that a file of app/ imports when needed, by ".module" or ".module:Class"."""
    package, names = package_of(path), {one.split(":")[0] for one in strings(path)}
    return {resolve_name(name, package) for name in names if re.match(r"\.{1,2}\w", name)} & set(MODULES)


def layer(module: str) -> int:
    """Return the place of a module's folder in LAYERS; app and app.__main__ are above all."""
    parts = module.split(".")
    return LAYERS.index(parts[1]) if len(parts) > 1 and parts[1] != "__main__" else len(LAYERS)


def test_folders_import_earlier_folders_only_and_modules_not_in_circles():
    graph = {name: imports(path) for name, path in MODULES.items()}
    assert {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"} <= set(LAYERS)
    assert [(name, one) for name in graph for one in graph[name] if layer(name) < layer(one)] == []
    # It raises CycleError
    TopologicalSorter(graph).prepare()


def test_every_module_is_reached_from_an_entry_point():
    wanted, done = set(ENTRIES).union(*map(imports, SCRIPTS)), set()
    while wanted - done:
        name = (wanted - done).pop()
        done.add(name)
        # Importing a module imports the packages above it too
        package = {name.rpartition(".")[0]} & set(MODULES)
        wanted |= package | imports(MODULES[name]) | named_modules(MODULES[name])
    assert set(MODULES) - done == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_only_starts_what_is_in_the_package(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 25


# All ask a `Task`, which is one label a row where its methods are not overridden.
ASKED = "app.tasks.task"


@pytest.mark.parametrize("task", TASK_CLASSES)
def test_a_kind_of_answer_is_named_in_four_other_files(task):
    """The table of tasks, that of forms, that of settings, and that of metrics; all others ask the
    task. A kind that is a variant of another one imports it. In code it is named by its `data.task`, its
    problem type, or its class, imported."""
    kinds = [*TASK_CLASSES.values(), *map(type, map(LABEL_FORMS.get, TASK_CLASSES))]
    module, names = TASK_CLASSES[task].__module__, {task, TASK_CLASSES[task].problem_type or task}
    places = {
        name
        for name, path in MODULES.items()
        if names & strings(path) or (module != ASKED and module in imports(path))
    }
    places -= {kind.__module__ for kind in kinds}
    assert places <= {"app.tasks", "app.data.labels", "app.config.schema", "app.report.metrics"}


def test_imports_inside_the_package_are_relative():
    """So that it can be installed under another name than app."""
    absolute = re.compile(r"^\s*(from|import) (app|chinese_text_classifier)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if absolute.search(path.read_text(encoding="utf-8"))] == []
