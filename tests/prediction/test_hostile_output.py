"""Texts of strangers in what is written: python -m pytest tests/prediction/test_hostile_output.py"""

import csv
import io

import numpy as np

from app.data.rows import Row
from app.prediction.output import AddedColumns, write_csv, write_lines
from app.prediction.predictor import Prediction
from app.prediction.sources import open_texts
from app.tasks import open_task

FORMULAS = [
    "=1+1",
    "+cmd|' /C calc'!A0",
    "-2+3",
    "@SUM(A1)",
    '=HYPERLINK("http://a","b")',
    '"=1"',
    "\t=1",
    "a\r=1",
]


def written(format: str, texts: list[str], labels: list[str]) -> str:
    file = io.StringIO(newline="")
    predictions = [
        Prediction(Row(number, text, None, None), "=正面", np.array([0.9, 0.1]))
        for number, text in enumerate(texts, 1)
    ]
    write = {"csv": write_csv, "lines": write_lines}[format]
    write(file, open_texts([], False), AddedColumns(open_task("single_label", labels)), predictions)
    return file.getvalue()


def test_formulas_are_written_as_they_were_read():
    """A quote put before them would make other texts of them; docs/data.md says so."""
    content = written("csv", FORMULAS, ["=正面", "负面"])
    assert [row["text"] for row in csv.DictReader(io.StringIO(content, newline=""))] == FORMULAS


def test_what_people_see_holds_no_control_characters():
    """Escape sequences in a text would steer the terminal."""
    shown = written("lines", ["\x1b[2J\x00好\x9b31m\u202e"], ["=正面", "\x07" + "长" * 99])
    assert "\\x1b[2J\\x00好\\x9b31m\\u202e" in shown
    assert "\\x07长" in shown
    assert "长" * 20 not in shown
    assert all(character == "\n" or character.isprintable() for character in shown)
