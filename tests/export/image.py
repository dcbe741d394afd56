"""A process with the packages of the image that the Dockerfile builds, and no others."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: the image has not got it", name=name)
sys.meta_path.insert(0, Absent())
"""


def image_requirements() -> list[str]:
    """Return the requirements that the Dockerfile installs by default."""
    dockerfile = (ROOT / "examples" / "Dockerfile").read_text(encoding="utf-8")
    wanted = re.search(r'^ARG PACKAGES="(.*)"$', dockerfile, re.MULTILINE)[1].split()
    command = dockerfile.split("RUN pip install")[1].split("\n")[0]
    for name in re.findall(r"-r (requirements/\S+\.txt)", command):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        wanted += [line for line in lines if line and not line.startswith("#")]
    return wanted


def with_dependencies(requirements: list[str]) -> set[str]:
    """Return the names of the packages that requirements need, as far as they are installed here."""
    found, waiting = set(), [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        if name in found:
            continue
        try:
            needed = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            # Pip installs it only elsewhere
            continue
        found.add(name)
        extras = requirement.extras or {""}
        waiting += [
            one for one in needed if not one.marker or any(one.marker.evaluate({"extra": e}) for e in extras)
        ]
    return found


def run_in_image(code: str, *arguments: str, home: Path) -> subprocess.CompletedProcess:
    """Run Python code with the image's packages only, and an empty folder for `HOME`; raises where it
    fails."""
    packages = with_dependencies(image_requirements())
    modules = packages_distributions().items()
    absent = {name for name, owners in modules if not packages & set(map(canonicalize_name, owners))}
    # Some libraries behave otherwise where they see that they are tested.
    dropped = {"CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.run(
        [sys.executable, "-c", ABSENT.format(absent=absent) + code, *arguments],
        cwd=ROOT,
        env=kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
