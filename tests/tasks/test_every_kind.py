"""What holds for every kind of answer: python -m pytest tests/tasks/test_every_kind.py"""

import json
import re
from pathlib import Path

import pytest

from app.api import load
from app.config.command_line import load_config
from app.report.metrics import BY_KEY
from app.run import work
from app.runs.comparing import compare_runs
from tests.exported_run import check_decided_alike
from tests.multi_label_runs import arguments, predict_again, read_predictions, train
from tests.stopped_run import check_resumed
from tests.tasks.kinds import KINDS

LABELLED = [name for name in KINDS if name != "masked_language_modelling"]


@pytest.mark.parametrize("name", LABELLED)
def test_predictions_of_a_saved_model_are_those_of_its_run(name, run_of, tmp_path):
    run, column = run_of(name), KINDS[name].column
    wanted = read_predictions(run / "predictions.csv")
    found = predict_again(run, wanted, tmp_path / "found.csv")
    lines = predict_again(run, wanted, tmp_path / "found.jsonl")
    answers = load(run).predict([row["text"] for row in wanted]).tolist()
    told = [line[column] for line in lines]
    if column == "score":
        numbers = [float(row["predicted"]) for row in wanted]
        for found_again in (answers, told, [float(row[column]) for row in found]):
            assert found_again == pytest.approx(numbers, rel=1e-5)
        return
    assert [row[column] for row in found] == [row["predicted"] for row in wanted]
    assert answers == told
    assert told == [json.loads(row[column]) if column == "labels" else row[column] for row in found]
    calibrated = column == "label" and json.loads((run / "report.json").read_text()).get("calibration")
    for key in [key for key in wanted[0] if key.startswith("p_") and not calibrated]:
        expected = [float(row[key]) for row in wanted]
        assert [float(row[key]) for row in found] == pytest.approx(expected, abs=2e-6)


@pytest.mark.parametrize("name", ["ordinal", "single_path", "rare_class"])
def test_an_exported_model_and_an_explanation_decide_alike(name, run_of, tmp_path):
    texts = [row["text"] for row in read_predictions(run_of(name) / "predictions.csv")[:2]]
    found = check_decided_alike(run_of(name), tmp_path / "onnx", texts)
    known = load(run_of(name)).predict_proba(texts)[0]
    assert found.probabilities == pytest.approx(known, abs=1e-4)


def differences_of(one: Path, other: Path) -> dict[str, tuple]:
    """Return what `compare` prints: by key of the metric the difference, and its interval."""
    line = re.compile(r"^  (.+?) +B - A (\S+)   95 % interval (\S+) to (\S+)$", re.MULTILINE)
    keys = {metric.english: key for key, metric in BY_KEY.items()}
    found = line.findall(compare_runs(one, other))
    return {keys[name]: (float(value), (float(low), float(high))) for name, value, low, high in found}


def test_runs_of_numbers_are_compared_row_by_row(run_of, tmp_path):
    run, other = run_of("regression"), tmp_path / "other"
    train(run.parent / "rows.jsonl", other, data__task="regression", train__epochs=1, train__loss="huber")
    differences = differences_of(other, run)
    assert set(differences) == {"mae", "rmse", "pearson", "spearman", "loss"}
    difference, (low, high) = differences["rmse"]
    assert low <= difference <= high < 0


@pytest.mark.parametrize("name", [name for name in LABELLED if KINDS[name].other])
def test_it_is_compared_with_a_run_that_takes_its_labels_otherwise(name, run_of, tmp_path):
    run, other = run_of(name), tmp_path / "other"
    train(run.parent / KINDS[name].file, other, data__task=KINDS[name].other, train__epochs=1)
    differences, back = differences_of(other, run), differences_of(run, other)
    first = json.loads((run / "report.json").read_text(encoding="utf-8"))["intervals"].keys() & differences
    assert {"accuracy", "macro_f1", "loss"} < first
    for key, (difference, _interval) in differences.items():
        assert back[key][0] == pytest.approx(-difference)


@pytest.mark.parametrize("name", [name for name in KINDS if name not in ("rare_class", "multi_path")])
def test_a_stopped_run_resumes_to_the_same_bits(name, tmp_path):
    kind = KINDS[name]
    data = kind.write(tmp_path / kind.file)
    settings = {"data__task": name} | kind.settings
    settings |= {"train__epochs": 2, "train__accumulation_steps": 2, "train__save_every": 3}
    settings |= {"model__dropout": 0.1}
    assert work(load_config(arguments(data, tmp_path / "whole", **settings)), "single") == 0
    check_resumed(arguments(data, tmp_path / "cut", **settings), tmp_path / "cut", tmp_path / "whole")
