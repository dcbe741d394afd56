"""The composed example of several labels a row: python -m pytest tests/data/test_composed_example.py"""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "data" / "composed" / "posts.jsonl"


def rows() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_the_script_makes_the_very_file(tmp_path):
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "compose_labels.py", tmp_path / "made.jsonl"], check=True
    )
    assert (tmp_path / "made.jsonl").read_bytes() == FILE.read_bytes()
    assert FILE.stat().st_size < 150_000


def test_the_datasheet_has_its_numbers():
    sizes = collections.Counter(len(row["labels"]) for row in rows())
    labels = collections.Counter(label for row in rows() for label in row["labels"])
    sheet = (ROOT / "data" / "composed" / "README.md").read_text(encoding="utf-8")
    header, _, numbers = re.findall(r"^\|(.*)\|$", sheet, re.MULTILINE)
    names = [cell.strip() for cell in header.split("|")]
    found = dict(zip(names, (int(cell) for cell in numbers.split("|")), strict=True))
    assert found == {"rows": len(rows()), "no label": sizes[0], "one": sizes[1], "two": sizes[2]} | labels
