"""YAML files -> plain values: python -m pytest tests/config/test_yaml_files.py

tests/model/test_strangers.py has the files that would run code or read without end.
"""

import time
from contextlib import suppress
from datetime import date

import pytest

from app.config.yaml_files import MAX_BYTES, MAX_LEVELS, read_yaml
from app.errors import InputError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        (
            "a: 1\nb: [x, 2.5, true, null, 2001-02-03]\n",
            {"a": 1, "b": ["x", 2.5, True, None, date(2001, 2, 3)]},
        ),
        ("a: &name 1\n", {"a": 1}),
        ("\ufeffa: 好😀\n", {"a": "好😀"}),
        ("a: '<<'\n'<<': {b: 1}\n", {"a": "<<", "<<": {"b": 1}}),
        (f"a: '{'1' * 5000}'\n", {"a": "1" * 5000}),
        ("[a, {a: 1}, {a: 1}]", ["a", {"a": 1}, {"a": 1}]),
        ("# nothing\n", None),
    ],
)
def test_plain_values_are_read(write, text, values):
    assert read_yaml(write("a.yaml", text)) == (text, values)


REFUSED = {
    "alias": ("a: &x 1\nb: *x\n", "line 2: aliases are not read, found '*x'; write the value out"),
    "alias as a key": ("&x a: 1\n*x : 2\n", "line 2: aliases are not read, found '*x'"),
    "tag": ("a: 1\nb: !!int '2'\n", "line 2: tags are not read", "found '!!int'; remove it"),
    "tag of a mapping": ("a: !x {}\n", "line 1: tags are not read", "found '!x'; remove it"),
    "tag of a key": ("? !!str a\n: 1\n", "line 1: tags are not read", "found '!!str'; remove it"),
    "tag without a name": ("a: ! 1\n", "line 1: tags are not read", "found '!'; remove it"),
    "merge key": ("a:\n  <<: {b: 1}\n", "line 2: merge keys are not read, found '<<'; write the settings out"),
    "merge key with a list": ("a: {<<: [{b: 1}]}\n", "line 1: merge keys are not read"),
    "key twice": ("a: 1\nb: 2\na: 3\n", "line 3: 'a' is set twice; keep one of them"),
    "key twice in a list": ("- a: 1\n  a: 1\n", "line 2: 'a' is set twice"),
    "key twice in other words": ("1: a\n'1': b\n", "line 2: '1' is set twice"),
    "tag before a mistake": ("a: !x 1\nb: [\n", "line 1: tags are not read"),
    "long number of base 60": (f"a: 1{':59' * 9000}\n", "line 1: a number has at most 100 characters, found '1:59:"),
    "long fraction of base 60": (f"a: 1{':59' * 300}.5\n", "a number has at most 100 characters"),
    "long number of base 16": (f"b: 1\na: 0x{'f' * 9000}\n", "line 2: a number has at most 100 characters"),
    "long key": (f"? 0x{'f' * 9000}\n: 1\n", "line 1: a number has at most 100 characters"),
    "NUL": ('a: 1\nb: "x\\0y"\n', "line 2: strings have no NUL characters, found 'x\\x00y'; remove \\0 or \\x00"),
    "NUL in a key": ('a: {"\\x00": 1}\n', "line 1: strings have no NUL characters"),
    "time zone": ("a: 2001-01-01 00:00:00 +99:99\n", "not a readable YAML file: offset must be", "put strings in quotes"),
    "list as a key": ("? [a]\n: 1\n", "not a readable YAML file", "unhashable key", "line 1"),
    "equals sign": ("a: =\n", "not a readable YAML file", "line 1"),
    "two documents": ("a: 1\n---\nb: 2\n", "not a readable YAML file: expected a single document", "in the file, line 2"),
}  # fmt: skip


@pytest.mark.parametrize("fault", REFUSED)
def test_what_settings_do_not_need_is_refused(write, fault):
    text, *parts = REFUSED[fault]
    path = write("a.yaml", text)
    with pytest.raises(InputError) as error:
        read_yaml(path)
    assert str(error.value).startswith(str(path))
    assert all(part in str(error.value) for part in parts), error.value


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ("{a: ", "}")])
def test_levels(write, opening, closing):
    nested = opening * MAX_LEVELS + closing * MAX_LEVELS
    read_yaml(write("a.yaml", nested))
    with pytest.raises(InputError, match="a.yaml, line 1: settings have at most 50 levels, found more"):
        read_yaml(write("a.yaml", f"{opening}{nested}{closing}"))


@pytest.mark.parametrize(
    "unit", ["- a\n", "? a\n", "[", "{", "'", '"', "a: ", "&a ", "- ", "|\n", "- {b: 1}\n", "#\n", "\n"]
)
@pytest.mark.slow
def test_a_file_of_the_largest_size_is_read_or_refused_in_seconds(write, unit):
    path = write("a.yaml", (unit * MAX_BYTES)[:MAX_BYTES])
    start = time.monotonic()
    with suppress(InputError):
        read_yaml(path)
    assert time.monotonic() - start < 60
