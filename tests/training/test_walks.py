"""The files that docs/architecture.md names are those that a row and a step go through."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

from app.run import main
from app.tasks.losses import ClassLoss
from tests.processes import ROOT
from tests.ranks import settings
from tests.training.tiny_training import SETTINGS, Training

# A row goes through them, and others do: they have walks of their own, or build what a run works with.
BESIDE = {
    "app/tasks/losses.py",
    "app/training/build.py",
    "app/training/head_start.py",
    "app/training/log.py",
    "app/training/open_run.py",
    "app/training/recorded_passes.py",
    "app/training/recorded_update.py",
    "app/training/step.py",
    "app/training/step_results.py",
    "app/training/token_limit.py",
    "app/training/trackers.py",
    "app/training/train.py",
}


def files_of(section: str) -> set[str]:
    """Return the files of app/ that a section of the document names."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return set(re.findall(r"`(app/[\w/]+\.py)`", text.split(f"## {section}\n")[1].split("\n## ")[0]))


def called(action: Callable[[], object]) -> set[str]:
    """Return the files of app/ that have a function which `action` calls in this thread."""
    files: set[str] = set()

    def profile(frame, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_name != "<module>":
            files.add(frame.f_code.co_filename)

    sys.setprofile(profile)
    try:
        action()
    finally:
        sys.setprofile(None)
    paths = map(Path, files)
    return {str(path.relative_to(ROOT)) for path in paths if path.is_relative_to(ROOT / "app")}


def test_a_step_goes_through_the_files_of_its_walk():
    training = Training(SETTINGS, dropout=0.1)
    training.loss = ClassLoss("cross_entropy")
    training.run(until=2)
    # The step after, whose first pass of the mode was made before
    files = called(lambda: training.run(until=3)) - {"app/training/recorded_passes.py"}
    assert files <= files_of("One training step, in files") | {"app/data/tokens.py"}
    assert len(files) <= 14
    assert {"app/training/step.py", "app/modes/mode.py", "app/model/attention.py"} <= files


def test_a_row_goes_through_the_files_of_its_walk(data, tmp_path):
    files = called(lambda: main("single", "", settings(data, tmp_path / "run", train__epochs=1)))
    rooms = re.compile(r"app/(data|tasks|report|training)/(?!__init__).*\.py")
    on_the_way = set(filter(rooms.fullmatch, files))
    walk = files_of("One row, from its file to the report")
    assert on_the_way - BESIDE <= walk
    # Some are for formats, labels and fixes that this file does not have
    assert len(walk - on_the_way) <= 4
