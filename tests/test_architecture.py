"""The structure of app/, drawn from its imports: python -m pytest tests/test_architecture.py

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
    graph = {name: imports(path) for name, path in MODULES.items()}
    assert {name.split(".")[1] for name in MODULES if "." in name} - {"__main__"} <= set(LAYERS)
    assert [(name, one) for name in graph for one in graph[name] if layer(name) < layer(one)] == []
    # It raises CycleError
    TopologicalSorter(graph).prepare()


def test_every_module_is_reached_from_an_entry_point():
    assert set(MODULES) - reached() == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_only_starts_what_is_in_the_package(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 25


@cache
def strings(path: Path) -> frozenset[str]:
    """Return the strings of a file."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return frozenset(
        node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


# All ask a `Task`, which is one label a row where its methods are not overridden.
ASKED = "app.tasks.task"


@pytest.mark.parametrize("task", TASK_CLASSES)
def test_a_kind_of_answer_is_named_in_four_other_files(task):
    """The table of tasks, that of forms, that of settings, and that of metrics; all others ask the
    task. A kind that is a variant of another one imports it. In code it is named by its `data.task`, its
    problem type, or its class, imported."""
    own = {
        module
        for kind in TASK_CLASSES
        for module in (TASK_CLASSES[kind].__module__, type(LABEL_FORMS[kind]).__module__)
    }
    module, names = TASK_CLASSES[task].__module__, {task, TASK_CLASSES[task].problem_type or task}
    places = {
        name
        for name, path in MODULES.items()
        if names & strings(path) or (module != ASKED and module in imports(path))
    }
    assert places - own <= {"app.tasks", "app.data.labels", "app.config.data_settings", "app.report.metrics"}


def test_imports_inside_the_package_are_relative():
    """So that it can be installed under another name than app."""
    absolute = re.compile(r"^\s*(from|import) (app|chinese_text_classifier)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if absolute.search(path.read_text(encoding="utf-8"))] == []
