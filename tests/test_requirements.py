"""Requirements, constraints and pyproject.toml say the same."""

import re
import tomllib

import pytest

from app.commands import main
from app.config import shipped
from tests.processes import ROOT

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
EXTRAS = PROJECT["optional-dependencies"]
FILES = {f"requirements/{extra}.txt": EXTRAS[extra] for extra in EXTRAS if extra != "test"}
FILES |= {"requirements.txt": PROJECT["dependencies"] + EXTRAS["test"]}
# It has no extra, because pip alone cannot build it; a script builds the one version that there is
HOROVOD = {"requirements/horovod.txt": ["horovod==0.28.1"]}


def lines(name: str) -> list[str]:
    text = (ROOT / name).read_text(encoding="utf-8").splitlines()
    return [line.split(" #")[0].strip() for line in text if line.strip() and not line.startswith("#")]


def test_requirements_are_those_of_pyproject_and_of_the_table_of_optional_packages():
    names = ["requirements.txt", *(f"requirements/{path.name}" for path in (ROOT / "requirements").iterdir())]
    assert {name: lines(name) for name in names} == FILES | HOROVOD
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| .* \| `(requirements/\w+\.txt)`", page, re.MULTILINE)
    assert {*rows, "requirements.txt"} == set(names)


@pytest.mark.parametrize("script", [".ci/run", "examples/Dockerfile", "scripts/install_horovod.sh"])
def test_a_script_names_files_that_exist(script):
    """Of requirements, also those that a loop of the script names one by one, and of other scripts."""
    text = (ROOT / script).read_text(encoding="utf-8")
    loop = re.search(r"for extra in ([\w ]+); do", text)
    named = {f"requirements/{extra}.txt" for extra in loop[1].split()} if loop else set()
    files = r"(?<![\w/])(?:requirements/|scripts/|constraints|requirements)\w*\.(?:txt|sh|py)"
    named |= set(re.findall(files, text))
    assert named
    assert [name for name in sorted(named) if not (ROOT / name).exists()] == []


def package_names(requirements: list[str]) -> set[str]:
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in requirements}


def test_every_requirement_has_a_tested_version():
    requirements = sum(FILES.values(), [])
    constraints = lines("constraints.txt")
    assert all("==" in line for line in constraints)
    assert package_names(requirements) <= package_names(constraints)


def test_a_wheel_has_the_files_that_the_program_names_and_the_console_command():
    targets = PYPROJECT["tool"]["hatch"]["build"]["targets"]
    included = targets["wheel"]["only-include"]
    assert [name for name in included if not (ROOT / name).exists()] == []
    for path in (shipped.FEW_LABELS_CONFIG, shipped.SAMPLE_FOLDER):
        assert any(path.is_relative_to(ROOT / name) for name in included)
    folders = {name.partition("/")[0] for name in included}
    places = {folder: f"chinese_text_classifier/shipped/{folder}" for folder in folders}
    assert targets["wheel"]["sources"] == places | {"app": "chinese_text_classifier"}
    assert targets["sdist"]["only-include"] == sorted([*included, "chinese_text_classifier.py"])
    assert PROJECT["scripts"] == {"chinese-text-classifier": "chinese_text_classifier.commands:main"}
    assert main
