"""Predictions for Excel: python -m pytest tests/prediction/test_excel_output.py"""

import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from app.data.read import ReadOptions
from app.data.rows import Row, read_rows
from app.errors import InputError
from app.prediction import excel_output
from app.prediction.input_columns import NumberedTexts
from app.prediction.output import open_output
from app.prediction.prediction_writer import PredictionWriter
from app.prediction.predictor import Prediction
from app.tasks import open_task

openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install -r requirements/excel.txt")
TEXTS = ["今天真开心", "=1+1", "\x1b[2J\x00", "_x0041_ _x_", "第一行\r\n第二行", "@SUM(A1)", "😀"]


def write(path, texts, pair=None):
    predictions = [
        Prediction(Row(n, text, pair, None), "正面", np.array([0.25, 0.75]))
        for n, text in enumerate(texts, 1)
    ]
    with open_output(str(path)) as file:
        task = open_task("single_label", ["=负面", "正面"])
        PredictionWriter(task, NumberedTexts(pair is not None)).write("xlsx", file, predictions)


def test_texts_are_text_cells_and_the_same_when_read_again(tmp_path):
    write(tmp_path / "a.xlsx", TEXTS, pair="=A1")
    options = ReadOptions(text_pair_column="text_pair")
    assert [(row.text, row.pair, row.label) for row in read_rows(tmp_path / "a.xlsx", options)] == [
        (text, "=A1", "正面") for text in TEXTS
    ]
    header, first, *_ = openpyxl.load_workbook(tmp_path / "a.xlsx").active.iter_rows()
    assert [cell.value for cell in header] == [
        "line",
        "text",
        "text_pair",
        "label",
        "probability",
        "p_=负面",
        "p_正面",
    ]
    assert [cell.data_type for cell in header] == ["s"] * 7
    assert [cell.value for cell in first] == [1, "今天真开心", "=A1", "正面", 0.75, 0.25, 0.75]
    assert [path.name for path in tmp_path.iterdir()] == ["a.xlsx"]


def test_what_does_not_fit_into_a_sheet(tmp_path, monkeypatch, caplog):
    write(tmp_path / "a.xlsx", ["好" * 40_000])
    assert "1 texts are longer than the 32767 characters" in caplog.text
    monkeypatch.setattr(excel_output, "MAX_ROWS", 3)
    write(tmp_path / "b.xlsx", ["好"] * 2)
    with pytest.raises(InputError, match="a sheet has 3 rows|Excel sheet has 3 rows"):
        write(tmp_path / "c.xlsx", ["好"] * 3)
    with pytest.raises(InputError, match="16,384 columns, found 20,000"):
        excel_output.check_excel(20_000)


def test_a_full_disk_is_an_error_and_nothing_is_said_of_the_archive(tmp_path):
    """A limit on the size of files gives the error of a full disk when the sheet is put into the file."""
    code = (
        "from pathlib import Path\nfrom tests.prediction.test_excel_output import write\n"
        f"write(Path({str(tmp_path / 'a.xlsx')!r}), map(str, range(3000)))"
    )

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, 30_000))

    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, preexec_fn=limit, check=False
    )
    assert done.returncode == 1
    assert "a.xlsx: cannot be written: " in done.stderr.splitlines()[-1]
    assert "ZipFile" not in done.stderr
    assert not (tmp_path / "a.xlsx").exists()
