"""Thousands of hostile files against every reader: python -m pytest tests/data/test_fuzz.py -m "slow or not
slow"

A failing case is read again, alone, with: python -m tests.data.fuzz NUMBER
"""

import random
from pathlib import Path

import pytest

from app.config.command_line import load_config
from app.data.cache import call_apart
from app.errors import InputError
from tests.data.fuzz import quoted_places, run_cases

ROOT = Path(__file__).resolve().parents[2]


def check_all(numbers: range) -> None:
    """In another process, which a case may end; one that hangs is ended by the time limit of the test."""
    wrong = call_apart(run_cases, numbers)
    assert not wrong, f"{len(wrong)} cases, the first:\n" + "\n\n".join(wrong[:3])


def test_hundreds_of_hostile_files():
    check_all(range(1, 402))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_ten_thousand_hostile_files():
    check_all(range(10_000))


def test_the_count_of_quoted_records_is_right():
    """The regular expression that the readers are compared with."""
    assert quoted_places('a,b\n\n"c\n""\n",d\r\n\r\n,\ne"f,"g"', ",") == [1, 3, 7, 8]


YAML_NOISE = ["&a ", "*a", "!!python/object/apply:os.system [ls]", "!x ", "[", "]", "{", "}", ": ", "- ", "\t", "? ", "|\n", ">-\n",
              "---\n", "...\n", "%YAML 1.1\n", "2001-99-99", "0x", "1e999", "'", '"', "\\ud800", "\0", "\x85", "\u2028", "\ufeff",
              "#", "<<: ", "~", "=", "[" * 60, "9" * 5000, "null", "\n", "  ", "@", "`", "class_path: subprocess.Popen\n"]  # fmt: skip


def damaged_yaml(seed: int) -> bytes:
    draw = random.Random(seed)
    text = draw.choice(sorted((ROOT / "configs").glob("*.yaml"))).read_text(encoding="utf-8")
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(text) + 1)
        text = text[:place] + draw.choice(YAML_NOISE) + text[place + draw.choice([0, 0, 1, 9]) :]
    content = bytearray(text.encode("utf-8", "surrogatepass"))
    if draw.random() < 0.2:
        content[draw.randrange(len(content))] = draw.randrange(256)
    return bytes(content)


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 400), marks=pytest.mark.slow)], ids=str)
def test_damaged_configurations(tmp_path, seeds):
    path = tmp_path / "damaged.yaml"
    refused = 0
    for seed in seeds:
        path.write_bytes(damaged_yaml(seed))
        try:
            load_config(["--config", str(path)])
        except InputError as error:
            refused += 1
            str(error).encode()
    assert refused > len(seeds) / 2
