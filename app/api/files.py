"""The files of a model that Python has opened: a temporary folder of its own, and what is saved of them."""

from __future__ import annotations

import shutil
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path

from ..errors import InputError
from ..prediction.trained_model import model_files

# The time of the last change in nanoseconds and the bytes of each file, by name
FileStates = dict[str, tuple[int, int]]


class OwnFolder:
    """A new temporary folder, `path`, that is removed with this object, or when the process ends.

    It belongs to the process that made it. A child that was forked has this object too, and when the child
    ends or drops it, the folder must stay.
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="chinese-text-classifier-"))
        # Unlike weakref.finalize, it does nothing in another process, and it also removes what a child of
        # multiprocessing made itself. With this priority it waits for the children at the end.
        self.remove = Finalize(
            self, shutil.rmtree, args=(self.path,), kwargs={"ignore_errors": True}, exitpriority=-1
        )


def file_states(folder: Path) -> FileStates:
    """Return the state of each file in `folder` that predictions depend on."""
    states = {}
    for path in model_files(folder):
        status = path.stat()
        states[path.name] = (status.st_mtime_ns, status.st_size)
    return states


def read_files(folder: Path, states: FileStates) -> dict[str, bytes]:
    """Return the content of the files of a model, by name. Raises InputError unless they are there as they
    were when the model was opened, in these `states`: other files would be another model."""
    remedy = "load or train the model again, and save it"
    files: dict[str, bytes] = {}
    try:
        for name in states:
            files[name] = (folder / name).read_bytes()
        current_states = file_states(folder)
    except OSError as error:
        raise InputError(
            f"{folder}: the files of this model are gone, so it cannot be saved or copied ({error}); {remedy}"
        ) from error
    for name in sorted(states | current_states):
        if states.get(name) != current_states.get(name):
            raise InputError(
                f"{folder}: the files of this model have changed since it was opened, so it cannot be "
                f"saved or copied (found another {name}); {remedy}"
            )
    return files


def write_new_folder(folder: Path, files: dict[str, bytes]) -> None:
    """Write files into `folder`, which is new or empty. Where one of them cannot be written, none is left,
    nor a folder that was made for them."""
    # The folders that do not exist yet, the innermost first
    new_folders = [path for path in (folder, *folder.parents) if not path.exists()]
    begun_files: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in files.items():
            path = folder / name
            with path.open("xb") as file:
                begun_files.append(path)
                file.write(content)
    except BaseException:
        for path in begun_files:
            path.unlink(missing_ok=True)
        for path in new_folders:
            if path.exists():
                path.rmdir()
        raise
