"""Exported multi-label models decide as their run does: python -m pytest tests/export"""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from app.errors import InputError
from app.prediction.model_folder import read_record
from app.prediction.open_model import ComputeOptions, open_model
from tests.multi_label_runs import NAMES, read_predictions, train, write_posts
from tests.verbs import export, predict


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A run, and its export in fp32."""
    folder = tmp_path_factory.mktemp("labels")
    posts = write_posts(folder / "posts.jsonl")
    train(posts, folder / "run", train__epochs=2, data__test_size=0.2, data__dev_size=0.2)
    assert export([str(folder / "run")]) == 0
    return folder / "run", folder / "run-onnx"


def test_the_record_has_the_thresholds_and_the_proof(exported):
    run, folder = exported
    record = read_record(folder)
    assert record.problem_type == "multi_label_classification"
    assert (folder / "decision.json").read_bytes() == (run / "decision.json").read_bytes()
    assert "decision.json" in record.files
    assert record.proof["rows"] == 30
    assert record.proof["flipped"] == 0
    assert record.proof["micro_f1_before"] == record.proof["micro_f1_after"] > 0
    assert record.proof["micro_f1_change"] == [0, 0]
    assert "macro_f1_before" not in record.proof


def test_predict_gives_the_labels_of_the_run(exported, tmp_path):
    run, folder = exported
    rows = read_predictions(run / "predictions.csv")
    source = tmp_path / "rows.csv"
    source.write_text("text\n" + "".join(f"{row['text']}\n" for row in rows), encoding="utf-8")
    output = tmp_path / "found.csv"
    assert predict(["--checkpoint", str(folder), "--input", str(source), "--output", str(output)]) == 0
    found = read_predictions(output)
    assert [row["labels"] for row in found] == [row["predicted"] for row in rows]
    for name in NAMES:
        expected = [float(row[f"p_{name}"]) for row in rows]
        assert [float(row[f"p_{name}"]) for row in found] == pytest.approx(expected, abs=2e-5)


def test_an_export_without_its_thresholds_is_refused(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "model")
    path = folder / "decision.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["thresholds"][NAMES[0]]
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match="what was fitted for the decision is needed"):
        open_model(folder, ComputeOptions())
    path.unlink()
    with pytest.raises(InputError, match=r"decision\.json: the file must be there and .* found none"):
        open_model(folder, ComputeOptions())
