"""Files that are read and written whole: python -m pytest tests/runtime/test_disk.py"""

import os

import pytest

from app.errors import InputError
from app.runtime.disk import read_json, write_json


def test_what_is_written_is_read(tmp_path):
    write_json(tmp_path / "a.json", {"好": [1, None]})
    assert read_json(tmp_path / "a.json") == {"好": [1, None]}


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "not valid JSON: the key 'c' is twice in an object"),
        (b'{"a": 1', "not valid JSON: Expecting"),
        (b"\xff", "not valid JSON: .*can't decode"),
        (b"[" * 100_000, "not valid JSON: "),
    ],
    ids=["key twice", "cut off", "no UTF-8", "too deep"],
)
def test_files_that_are_no_json(write, content, problem):
    with pytest.raises(InputError, match=rf"a\.json: {problem}"):
        read_json(write("a.json", content))


@pytest.mark.timeout(20)
def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "a.json")
    found = "a regular file is needed, not a directory, a pipe or a device"
    for name, problem in (("a.json", found), (".", found), ("no.json", "cannot be read: No such file")):
        with pytest.raises(InputError, match=problem):
            read_json(tmp_path / name)
