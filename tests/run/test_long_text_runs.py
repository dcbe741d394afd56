"""Whole runs on long texts: training, its report, resuming and prediction read them alike: python -m pytest
tests/run/test_long_text_runs.py"""

import json
import random
from pathlib import Path
from shlex import split

import numpy as np
import pytest

from app.data.rows import Row
from app.prediction.open_model import ComputeOptions, open_model
from app.run import main
from tests.multi_label_runs import read_predictions
from tests.run.test_run import SMALL
from tests.tiny import LABELS, WORDS

LONG = {"head_tail": ["--data.long=head_tail"], "windows": ["--data.long=windows", "--data.max_windows=5"]}
pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> list[str]:
    """The arguments for a file of 120 rows whose label is only in the end of the text, which is long in every
    third row. One text has 100,000 characters."""
    folder = tmp_path_factory.mktemp("data")
    generator = random.Random(0)
    lines = ["text\tlabel"]
    for number in range(120):
        label = LABELS[number % 3]
        filler = "的一" * (generator.randint(12, 30) if number % 4 == 0 else 2)
        beginning = "的一" * 50_000 if number == 60 else filler
        end = "".join(generator.choices(WORDS[label], k=6))
        lines.append(f"{beginning}{number}{end}\t{label}")
    (folder / "rows.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return ["--data.train", str(folder / "rows.tsv"), "--data.cache_dir", str(folder / "cache")]


@pytest.mark.parametrize("way", LONG)
def test_prediction_reads_texts_as_the_training_did(data, way):
    # A later value of the same setting counts: max_length is 24 in SMALL.
    short = split("--data.max_length 20 --train.epochs 1 --output.dir run")
    assert main("single", "", [*data, *SMALL, *short, *LONG[way]]) == 0
    folder = Path("run")
    rows = read_predictions(folder / "predictions.csv")
    texts = [Row(at, row["text"], None, None) for at, row in enumerate(rows)]
    predictor = open_model(folder, ComputeOptions("cpu", calibrate=False)).predictor
    found = [prediction.probabilities for prediction in predictor.predict(texts, chunk_rows=5)]
    wanted = [[float(row[f"p_{name}"]) for name in predictor.label_names] for row in rows]
    np.testing.assert_allclose(found, wanted, atol=2e-5)
    assert sum(len(row["text"]) > 25 for row in rows) >= 2
    report = json.loads((folder / "report.json").read_text("utf-8"))["long_texts"]
    parts = {name: part["rows"] for name, part in report.items() if isinstance(part, dict)}
    assert {"whole", "not_whole" if way == "head_tail" else "several_windows"} <= set(parts)
    assert sum(parts.values()) == len(rows)
    assert "Accuracy by what was read" in (folder / "report.txt").read_text("utf-8")
    assert "by what was read of the text" in (folder / "report.html").read_text("utf-8")
    logged = (folder / "train.log").read_text("utf-8")
    assert ("read as head and tail of 20" in logged) == (way == "head_tail")
    assert ("rows in several windows of 20; 1 rows" in logged) == (way == "windows")
