"""What holds for every kind of answer; many labels; masked words: python -m pytest
tests/tasks/test_every_kind.py"""

import csv
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from app.api import load
from app.batching.loader import Batch
from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.report.logits_file import write_predictions
from app.report.metrics import BY_KEY
from app.run import work
from app.runs.folds import compare_runs
from app.tasks import open_task
from tests.exported_run import check_decided_alike
from tests.multi_label_runs import arguments, predict_again, read_predictions, task_of, train
from tests.saved_classifier import save_checkpoint
from tests.tasks.kinds import KINDS
from tests.tiny import open_tiny, write_tiny
from tests.verbs import predict

MASKED = "masked_language_modelling"
LABELLED = [name for name in KINDS if name != MASKED]
NAMES = [f"类{number}" for number in range(60)]


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
def test_a_stopped_run_resumes_to_the_same_bits(name, tmp_path, at_step):
    kind = KINDS[name]
    data = kind.write(tmp_path / kind.file)
    settings = {"data__task": name} | kind.settings
    settings |= {"train__epochs": 2, "train__accumulation_steps": 2, "train__save_every": 3}
    settings |= {"model__dropout": 0.1, "output__resume": "auto"}
    for folder, status, step in (("whole", 0, None), ("cut", 143, 4), ("cut", 0, None)):
        at_step(step)
        assert work(load_config(arguments(data, tmp_path / folder, **settings)), "single") == status
    for file in ("model.safetensors", "report.json"):
        assert (tmp_path / "cut" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes()


@pytest.mark.parametrize("output", ["o.csv", "o.jsonl"])
def test_predictions_have_the_ten_most_probable_labels(tmp_path, output):
    labels = {"id2label": dict(enumerate(NAMES)), "label2id": {name: at for at, name in enumerate(NAMES)}}
    checkpoint = save_checkpoint(tmp_path / "model", num_labels=60, **labels)
    (tmp_path / "rows.csv").write_text("text\n今天真开心\n差\n", encoding="utf-8")
    files = ["--input", str(tmp_path / "rows.csv"), "--output", str(tmp_path / output)]
    assert predict(["--checkpoint", str(checkpoint), "--device", "cpu", *files]) == 0
    lines = (tmp_path / output).read_text(encoding="utf-8").splitlines()
    if output == "o.jsonl":
        rows = list(map(json.loads, lines))
    else:
        rows = [row | {"most_probable": json.loads(row["most_probable"])} for row in csv.DictReader(lines)]
    probabilities = load(checkpoint, device="cpu").predict_proba(["今天真开心", "差"])
    for row, known in zip(rows, probabilities, strict=True):
        assert [*row][-3:] == ["label", "probability", "most_probable"]
        first = row["most_probable"]
        assert [one["label"] for one in first] == [NAMES[at] for at in np.argsort(-known)[:10]]
        assert [one["probability"] for one in first] == pytest.approx(sorted(known)[:-11:-1], abs=1e-6)
        assert first[0]["label"] == row["label"]


@pytest.mark.parametrize("name", ["single_label", "multi_label"])
def test_the_rows_of_a_report_have_them_too(tmp_path, name):
    split = open_tiny(tmp_path)[0].splits["test"]
    if name == "multi_label":
        split = type(split)(split.name, split.table, split.rows, np.eye(60)[split.labels])
    task, logits = open_task(name, NAMES), np.random.default_rng(0).normal(size=(len(split), 60))
    write_predictions(tmp_path / "predictions.csv", split, logits, task)
    rows = list(csv.DictReader((tmp_path / "predictions.csv").read_text(encoding="utf-8").splitlines()))
    assert list(rows[0])[5:] == ["most_probable"]
    for row, known in zip(rows, task.probabilities(logits), strict=True):
        first = json.loads(row["most_probable"])
        assert [one["label"] for one in first] == [NAMES[at] for at in np.argsort(-known)[:10]]


@pytest.fixture
def trained(run_of) -> Path:
    return run_of(MASKED)


def test_perplexity_falls_and_is_reported_before_and_after(trained):
    report = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    assert report["perplexity"] < report["before_training"]["perplexity"] / 50
    assert report["loss"] == pytest.approx(np.log(report["perplexity"]))
    text = (trained / "report.txt").read_text(encoding="utf-8")
    assert "before" in text
    said = f"{report['targets']:,} masked tokens of {report['rows']:,} rows, the same before and after"
    assert said in text
    first = json.loads((trained / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[0])
    assert first["step"] == 0
    assert first["perplexity"] == report["before_training"]["perplexity"]
    assert not (trained / "predictions.csv").exists()


def test_training_goes_on_from_the_checkpoint_at_the_same_perplexity(trained, tmp_path):
    before = json.loads((trained / "report.json").read_text(encoding="utf-8"))
    settings = {"data__dev_size": 0.1, "data__test_size": 0.1, "model__name": trained, "data__task": MASKED}
    settings |= {"train__max_steps": 1, "train__seed": 9}
    words = arguments(trained.parent / "texts.txt", tmp_path / "again", sizes={}, **settings)
    assert work(load_config(["--config", "configs/pretrain.yaml", *words]), "single") == 0
    after = json.loads((tmp_path / "again" / "report.json").read_text(encoding="utf-8"))
    assert after["before_training"]["perplexity"] == pytest.approx(before["perplexity"], rel=1e-5)


def test_a_labelled_file_is_read_without_its_labels(tmp_path):
    path = write_tiny(tmp_path / "rows.tsv")
    dataset = open_dataset(DataConfig(task=MASKED, train=str(path), cache_dir=str(tmp_path / "cache")))
    assert dataset.label_names == []
    assert dataset.splits["train"].table.text(0)


def test_results_of_rows_add_up_to_the_metrics(trained):
    task = task_of(trained.parent / "texts.txt", MASKED)
    outputs = torch.tensor([[5.0, 0.0], [0.0, 5.0], [0.0, 5.0]])
    batch = Batch({}, torch.tensor([0, 1, 0]), torch.tensor([4, 9, 2]), torch.tensor([0, 0, 2]))
    results = task.row_results(outputs, batch)
    assert results[:, 1:].tolist() == [[2, 2], [0, 0], [1, 0]]
    assert float(results[:, 0].sum()) == pytest.approx(float(task.loss(outputs, batch.labels)), rel=1e-6)
    metrics = task.measure(results.numpy())
    assert metrics["targets"] == 3
    assert metrics["accuracy"] == pytest.approx(2 / 3)
    assert metrics["perplexity"] == pytest.approx(np.exp(metrics["loss"]))
