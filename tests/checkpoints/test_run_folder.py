"""A run writes only into an empty folder, or into its own: python -m pytest
tests/checkpoints/test_run_folder.py"""

from pathlib import Path

import pytest

from app.checkpoints.run_folder import open_run_folder
from app.config.schema import OutputConfig
from app.errors import InputError
from app.run import main
from tests.ranks import settings

pytestmark = pytest.mark.usefixtures("empty_folder")


def open_folder(folder: str | None = "run", **settings) -> bool:
    """Open a folder as rank 0 does; return whether a run in it is resumed."""
    _, is_resumed, lock = open_run_folder(OutputConfig(dir=folder, **settings))
    lock.release()
    return is_resumed


@pytest.mark.parametrize(
    "present",
    [
        ["notes.txt"],
        ["config.yaml", "notes.txt"],
        ["config.yaml", "src/main.py"],
        ["config.yaml"],
        ["report.json"],
        [".gitkeep"],
    ],
)
@pytest.mark.parametrize("resume", ["never", "auto"])
def test_folder_that_is_no_run_is_never_touched(present, resume):
    """Many projects have a config.yaml; that does not make them ours."""
    for name in present:
        path = Path("run") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    with pytest.raises(InputError, match="is not empty and holds no run; choose another output.dir"):
        open_folder(resume=resume)
    assert all((Path("run") / name).read_text() == "mine" for name in present)


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"folder": "file"}, r"output\.dir"),
        ({"folder": "file/run"}, r"output\.dir"),
        ({"folder": None, "name": "run"}, r"output\.dir"),
        ({"folder": "checkpoints"}, "a link to nowhere"),
    ],
    ids=["a file", "below a file", "below a dead link", "a dead link"],
)
def test_a_folder_that_cannot_be_made(settings, problem):
    Path("file").write_text("")
    Path("checkpoints").symlink_to("no-such-disk")
    with pytest.raises(InputError, match=problem):
        open_folder(**settings)


def test_a_run_that_was_killed_in_its_first_write_left_an_empty_folder():
    Path("run").mkdir()
    Path("run/.run_history.json").write_text("{")
    assert not open_folder()


def test_a_run_that_was_killed_at_its_very_start_is_resumed_from_the_beginning():
    Path("run").mkdir()
    Path("run/run_history.json").write_text("{")
    with pytest.raises(InputError, match=r"not finished \(it has no training state yet\); continue it with"):
        open_folder()
    assert open_folder(resume="auto")


def test_what_a_run_reads_is_never_written(data):
    """Its data or its pretrained model are in the folder of a run."""
    first = settings(data, Path("run"), train__max_steps=1)
    assert main("single", "", first) == 0
    before = {path: path.read_bytes() for path in Path("run").rglob("*") if path.is_file()}
    for resume in ("never", "auto"):
        for reads in ("--model.name=run", "--data.train=run/predictions.csv"):
            assert main("single", "", [*first, f"--output.resume={resume}", reads]) == 2
    assert {path: path.read_bytes() for path in before} == before
