"""Errors of the system end a run with one sentence, and nothing is lost: python -m pytest
tests/run/test_system_errors.py"""

import os
import resource

from app.run.entry import main
from tests.ranks import settings
from tests.tiny import write_tiny


def test_too_many_open_files_is_one_error_and_removes_nothing(tmp_path, capsys):
    data = [f"--data.train={write_tiny(tmp_path / 'rows.tsv')}", f"--data.cache_dir={tmp_path / 'cache'}"]

    def start(folder: str) -> int:
        return main("single", "", settings(data, tmp_path / folder, train__epochs=1))

    assert start("first") == 0
    cache = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")}
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    # At different files
    for more in (0, 4, 8):
        capsys.readouterr()
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + more, limits[1]))
        try:
            status = start("second")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        error = capsys.readouterr().err.splitlines()[-1]
        assert status == 1
        assert error.startswith("error: ")
        assert "Too many open files" in error
        assert "start again" in error
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").rglob("*")} == cache
    assert start("second") == 0
