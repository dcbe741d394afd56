"""The structure of app/, drawn from its imports, and how dense its code is.

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
    *(
        "program",
        "words",
        "errors",
        "text_table",
        "config",
        "runtime",
        "data",
        "batching",
        "model",
        "ngrams",
        "tasks",
    ),
    *("report", "modes", "checkpoints", "training", "prediction"),
    *("vectors", "explanation", "export", "serving", "labelling", "run"),
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
    """Return all nodes of the syntax tree of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def package_of(path: Path) -> str:
    """Return the name of the package that a file is in, such as app.data."""
    return ".".join(path.relative_to(ROOT).parent.parts)


@cache
def strings(path: Path) -> frozenset[str]:
    """Return the constant strings of a file."""
    constants = [node.value for node in nodes(path) if isinstance(node, ast.Constant)]
    return frozenset(value for value in constants if isinstance(value, str))


@cache
def imports(path: Path) -> frozenset[str]:
    """Return the modules of app/ that a file imports, anywhere in it."""
    package = package_of(path)
    imported = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            imported.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = resolve_name("." * node.level + (node.module or ""), package)
            for alias in node.names:
                submodule = f"{module}.{alias.name}"
                imported.add(submodule if submodule in MODULES else module)
    return frozenset(imported & set(MODULES))


def named_modules(path: Path) -> set[str]:
    """Return the modules that a file of app/ imports when needed, by ".module" or ".module:Class"."""
    modules = set()
    for string in strings(path):
        name = string.split(":")[0]
        if re.match(r"\.{1,2}\w", name):
            modules.add(resolve_name(name, package_of(path)))
    return modules & set(MODULES)


def layer(module: str) -> int:
    """Return the place of a module's folder in LAYERS; app and app.__main__ are above all."""
    if module in ("app", "app.__main__"):
        return len(LAYERS)
    return LAYERS.index(module.split(".")[1])


def test_folders_import_earlier_folders_only_and_modules_not_in_circles():
    graph = {name: imports(path) for name, path in MODULES.items()}
    folders = {name.split(".")[1] for name in MODULES if name not in ("app", "app.__main__")}
    assert folders <= set(LAYERS)
    upward = []
    for name, imported_names in graph.items():
        upward += [(name, imported) for imported in imported_names if layer(name) < layer(imported)]
    assert upward == []
    # It raises CycleError
    TopologicalSorter(graph).prepare()


def test_every_module_is_reached_from_an_entry_point():
    waiting = set(ENTRIES).union(*map(imports, SCRIPTS))
    reached = set()
    while waiting:
        name = waiting.pop()
        reached.add(name)
        # Importing a module imports the packages above it too
        package = {name.rpartition(".")[0]} & set(MODULES)
        waiting |= package | imports(MODULES[name]) | named_modules(MODULES[name])
        waiting -= reached
    assert set(MODULES) - reached == set()


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_only_starts_what_is_in_the_package(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) <= 25


@pytest.mark.parametrize("task", TASK_CLASSES)
def test_a_kind_of_answer_is_named_in_four_other_files(task):
    """The table of tasks, that of forms, that of settings, and that of metrics; all others ask the
    task. A kind that is a variant of another one imports it. In code it is named by its `data.task`, its
    problem type, or its class, imported."""
    task_modules = {task_class.__module__ for task_class in TASK_CLASSES.values()}
    form_modules = {type(LABEL_FORMS.get(name)).__module__ for name in TASK_CLASSES}
    module = TASK_CLASSES[task].__module__
    names = {task, TASK_CLASSES[task].problem_type or task}
    naming = set()
    for name, path in MODULES.items():
        if module in imports(path) or names & strings(path):
            naming.add(name)
    naming -= task_modules | form_modules
    assert naming <= {"app.tasks", "app.data.labels", "app.config.schema", "app.report.metrics"}


def test_imports_inside_the_package_are_relative():
    """So that it can be installed under another name than app."""
    absolute = re.compile(r"^\s*(from|import) (app|chinese_text_classifier)\b", re.MULTILINE)
    assert [name for name, path in MODULES.items() if absolute.search(path.read_text(encoding="utf-8"))] == []


# Names of variables and parameters that do not say what is in them
VAGUE_NAMES = {
    *("of", "found", "said", "shown", "known", "kept", "one", "some", "more", "least", "most", "told", "how"),
    *("own", "given", "other", "about", "way", "kind", "thing", "things", "what", "used", "rest"),
}
# The most that a folder may have for each 1,000 lines, and the mean width of a line in characters. Nine code
# bases of this field were counted in 2026-11 (accelerate, scikit-learn, torch.distributed, Lightning Fabric,
# peft, pydantic, optuna, cleanlab, captum): they have up to 1.8, 6.7, 13.1, 1.1, 5.3 and 0.6, and a width of
# 41 to 51.
DENSITY_LIMITS = {
    "app": {
        "tuple assignments of separate values": 1,
        "conditional expressions": 6,
        "comprehensions": 18,
        "assignments inside expressions": 1,
        "calls with unpacked positions": 2,
        "vague names": 0.5,
        "mean width of a line": 50.5,
    },
    "tests": {
        "tuple assignments of separate values": 1,
        "conditional expressions": 9,
        "comprehensions": 50,
        "assignments inside expressions": 1,
        "calls with unpacked positions": 5,
        "vague names": 0.5,
        "mean width of a line": 55,
    },
}


def dense_places(path: Path) -> list[tuple[str, int]]:
    """Return the figure of DENSITY_LIMITS and the line of each place in a file that counts for it."""
    places = []
    for node in nodes(path):
        match node:
            case ast.Assign(targets=[ast.Tuple(), *_], value=ast.Tuple()):
                places.append(("tuple assignments of separate values", node.lineno))
            case ast.IfExp():
                places.append(("conditional expressions", node.lineno))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                places.append(("comprehensions", node.lineno))
            case ast.NamedExpr():
                places.append(("assignments inside expressions", node.lineno))
            case ast.Call() if any(isinstance(argument, ast.Starred) for argument in node.args):
                places.append(("calls with unpacked positions", node.lineno))
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name) if name in VAGUE_NAMES:
                places.append(("vague names", node.lineno))
    return places


@cache
def dense_places_of_folder(folder: str) -> dict[str, list[str]]:
    """Return the places of all files of a folder, "file:line", for each figure."""
    places = {figure: [] for figure in DENSITY_LIMITS[folder]}
    for path in sorted((ROOT / folder).rglob("*.py")):
        for figure, number in dense_places(path):
            places[figure].append(f"{path.relative_to(ROOT)}:{number}")
    return places


@cache
def lines_of_folder(folder: str) -> list[str]:
    """Return the lines of all files of a folder."""
    lines = []
    for path in sorted((ROOT / folder).rglob("*.py")):
        lines += path.read_text(encoding="utf-8").splitlines()
    return lines


CASES = [(folder, figure) for folder, limits in DENSITY_LIMITS.items() for figure in limits]


@pytest.mark.parametrize(("folder", "figure"), CASES)
def test_code_is_no_denser_than_its_field(folder, figure):
    """Where it fails, rewrite the functions that you changed, so that a reader finds them plainer. A line
    that is broken in two gains nothing. `-vv` shows all places."""
    lines = lines_of_folder(folder)
    limit = DENSITY_LIMITS[folder][figure]
    if figure == "mean width of a line":
        widths = [len(line) for line in lines if line.strip()]
        assert sum(widths) / len(widths) <= limit
    else:
        places = dense_places_of_folder(folder)[figure]
        assert 1000 * len(places) / len(lines) <= limit, places


def test_each_dense_place_is_counted(tmp_path):
    path = tmp_path / "dense.py"
    path.write_text(
        "def call(of):\n"
        "    kept, width = 1, 2\n"
        "    print(*of)\n"
        "    while line := read():\n"
        "        names = [name for name in line]\n"
        "    return 1 if names else 2\n",
        encoding="utf-8",
    )
    assert sorted(dense_places(path)) == [
        ("assignments inside expressions", 4),
        ("calls with unpacked positions", 3),
        ("comprehensions", 5),
        ("conditional expressions", 6),
        ("tuple assignments of separate values", 2),
        ("vague names", 1),
        ("vague names", 2),
    ]
