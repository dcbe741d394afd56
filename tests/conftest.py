"""Fixtures of several files. `python -m pytest FILE` runs the quick tests of a file, with `-m ""` all."""

import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.words import use_language

# Tests that run side by side would slow each other down with threads on the same cores.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# The tests read what the program says in English
os.environ["LC_ALL"] = "C.UTF-8"

# Files of minutes, the longest first: where two processes share the tests, none waits for such a file at the
# end. One process runs all tests of a file.
LONG_FILES = ["test_contract.py", "test_resume.py", "test_dead_ranks.py", "test_chaos.py"]
LONG_FILES += ["test_hub_layouts.py", "test_next_commands.py", "test_search.py", "test_examples.py"]
LONG_FILES += ["test_memory.py", "test_launchers.py", "test_train.py", "test_fuzz.py", "test_guide.py"]
LONG_FILES += ["test_verify.py", "test_installed_package.py", "test_folds.py", "test_other_devices.py"]
LONG_FILES += ["test_benchmarks.py", "test_many_files.py", "test_every_kind.py"]
HANDLERS = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first, and skip tests that need a GPU where there is none."""
    places = {name: place for place, name in enumerate(LONG_FILES)}
    items.sort(key=lambda item: places.get(item.path.name, len(places)))
    for_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if for_gpu:
        import torch

        if not torch.cuda.is_available():
            for item in for_gpu:
                item.add_marker(pytest.mark.skip(reason="torch finds no CUDA device"))


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Undo what a run sets in its process, so that no test depends on another."""
    # A fixture of a whole file may have run the program already
    restore()
    environment = dict(os.environ)
    torch = sys.modules.get("torch")
    threads = torch.get_num_threads() if torch else None
    yield
    use_language("auto")
    restore()
    os.environ.clear()
    os.environ.update(environment)
    if torch:
        torch.set_num_threads(threads)
        torch.use_deterministic_algorithms(False)
    distributed = sys.modules.get("torch.distributed")
    has_group = distributed and distributed.is_available() and distributed.is_initialized()
    assert not has_group, "this test leaves a process group behind, with which no later test could start one"


def restore() -> None:
    """Restore the log and the handlers of signals, which a finished run ignores."""
    root = logging.getLogger()
    root.handlers[:] = [handler for handler in root.handlers if type(handler).__module__ == "_pytest.logging"]
    # Setting a level clears what all loggers know
    if root.level != logging.WARNING:
        root.setLevel(logging.WARNING)
    for number, handler in HANDLERS.items():
        signal.signal(number, handler)


@pytest.fixture(scope="session")
def checkpoint(tmp_path_factory) -> Path:
    """A random classifier as transformers saves it, which no test changes."""
    from tests.saved_classifier import save_checkpoint

    return save_checkpoint(tmp_path_factory.mktemp("bert"))


@pytest.fixture
def empty_folder(tmp_path, monkeypatch) -> None:
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    """The arguments for a file of 120 rows, 96 of them for training, which all runs of a test file share."""
    from tests.tiny import write_tiny

    folder = tmp_path_factory.mktemp("data")
    rows = write_tiny(folder / "rows.tsv", 40)
    return ["--data.train", str(rows), "--data.cache_dir", str(folder / "cache")]


@pytest.fixture
def at_step(monkeypatch) -> Callable[..., None]:
    """Return a function that has SIGTERM or another `action` happen in the next run of this process, in its
    optimizer step after `count` others; None: nothing. An exception is raised there."""
    from app.modes.mode import Single

    step = Single.step

    def plan(count: int | None, action: Callable | Exception | None = None) -> None:
        seen = []

        def disturbed(self, max_norm):
            seen.append(1)
            if len(seen) - 1 == count:
                if isinstance(action, Exception):
                    raise action
                action() if action else signal.raise_signal(signal.SIGTERM)
            return step(self, max_norm)

        monkeypatch.setattr(Single, "step", disturbed)

    return plan


@pytest.fixture
def write(tmp_path) -> Callable[..., Path]:
    """Write a file below `tmp_path` (text as UTF-8, lone surrogates allowed) and return its path."""

    def write_file(name: str, content: str | bytes) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass"))
        return path

    return write_file


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """A BERT tokenizer of a few characters; all others are [UNK]."""
    from tests.tiny import tiny_tokenizer

    return tiny_tokenizer(characters=[*"今天真开心气死我了好坏，。0123456789ab", "##a", "##b"])
