"""A run of each kind of answer, trained once for all tests of this folder."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from tests.multi_label_runs import train
from tests.tasks.kinds import KINDS


@pytest.fixture(scope="session")
def run_of(tmp_path_factory) -> Callable[[str], Path]:
    """Return the function that trains the run of a kind; its data file is beside it."""

    @cache
    def trained(name: str) -> Path:
        kind, folder = KINDS[name], tmp_path_factory.mktemp(name)
        train(kind.write(folder / kind.file), folder / "run", **{"data__task": name} | kind.settings)
        return folder / "run"

    return trained
