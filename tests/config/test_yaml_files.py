"""YAML files -> plain values: python -m pytest tests/config/test_yaml_files.py

tests/model/test_strangers.py has the files that would run code.
"""

from datetime import date

import pytest

from app.config.command_line import read_yaml
from app.errors import InputError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "a: 1\nb: [x, 2.5, true, null, 2001-02-03]\n",
            {"a": 1, "b": ["x", 2.5, True, None, date(2001, 2, 3)]},
        ),
        ("a: &name 1\nb: *name\n", {"a": 1, "b": 1}),
        ("a: &x {y: 1}\nb: {<<: *x, z: 2}\n", {"a": {"y": 1}, "b": {"y": 1, "z": 2}}),
        ("\ufeffa: 好😀\n", {"a": "好😀"}),
        ("a: '<<'\n'<<': {b: 1}\n", {"a": "<<", "<<": {"b": 1}}),
        (f"a: '{'1' * 5000}'\n", {"a": "1" * 5000}),
        ("[a, {a: 1}, {a: 1}]", ["a", {"a": 1}, {"a": 1}]),
        ("# nothing\n", None),
    ],
)
def test_plain_values_are_read(write, text, values):
    assert read_yaml(write("a.yaml", text)) == values


REFUSED = {
    "key twice": ("a: 1\nb: 2\na: 3\n", "line 3: 'a' is set twice; keep one of them"),
    "key twice in a list": ("- a: 1\n  a: 1\n", "line 2: 'a' is set twice"),
    "key twice in other words": ("1: a\n'1': b\n", "line 2: '1' is set twice"),
    "tag": ("a: !x 1\n", "not a readable YAML file", "line 1"),
    "long number": (f"a: {'1' * 5000}\n", "not a readable YAML file", "put strings in quotes"),
    "time zone": ("a: 2001-01-01 00:00:00 +99:99\n", "not a readable YAML file: offset must be", "in quotes"),
    "list as a key": ("? [a]\n: 1\n", "not a readable YAML file", "unhashable key", "line 1"),
    "equals sign": ("a: =\n", "not a readable YAML file", "line 1"),
    "two documents": ("a: 1\n---\nb: 2\n", "not a readable YAML file: expected a single document", "line 2"),
    "ten thousand levels": ("[" * 10_000, "not a readable YAML file: too many levels"),
}


@pytest.mark.parametrize("fault", REFUSED)
def test_files_that_are_refused(write, fault):
    text, *parts = REFUSED[fault]
    path = write("a.yaml", text)
    with pytest.raises(InputError) as error:
        read_yaml(path)
    assert str(error.value).startswith(str(path))
    assert all(part in str(error.value) for part in parts), error.value
