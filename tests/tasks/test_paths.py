"""Labels in a hierarchy: python -m pytest tests/tasks/test_paths.py"""

import json
import shutil

import numpy as np
import pytest

from app.api import load
from app.errors import InputError
from app.report.bootstrap import answer_metrics
from app.tasks import open_task
from app.tasks.tree import Tree
from tests.multi_label_runs import predict_again, read_predictions
from tests.tasks.kinds import PATHS as NAMES

BOTH = pytest.mark.parametrize("name", ["single_path", "multi_path"])


def task_of(name: str):
    task = open_task(name, NAMES)
    task.tree = Tree(NAMES, "-")
    return task


def above(label: str) -> set[str]:
    """Return a label and all above it."""
    levels = label.split("-")
    return {"-".join(levels[:end]) for end in range(1, len(levels) + 1)}


@BOTH
def test_metrics_are_those_of_sets_of_nodes(name):
    generator = np.random.default_rng(0)
    if name == "single_path":
        answers = generator.integers(0, len(NAMES), (2, 300))
        sets = [[above(NAMES[label]) for label in row] for row in answers]
    else:
        answers = generator.random((2, 300, len(NAMES))) < 0.3
        rows = [[[NAMES[at] for at in np.flatnonzero(row)] for row in of] for of in answers]
        sets = [[set().union(*map(above, row)) for row in of] for of in rows]
    found = answer_metrics(task_of(name), *answers)
    common = sum(len(one & other) for one, other in zip(*sets, strict=True))
    true, predicted = (sum(map(len, of)) for of in sets)
    assert found["hierarchical_precision"] == pytest.approx(common / predicted)
    assert found["hierarchical_recall"] == pytest.approx(common / true)
    assert found["hierarchical_f1"] == pytest.approx(2 * common / (true + predicted))
    for level in (1, 2) if name == "single_path" else ():
        cut = [[{node for node in row if node.count("-") < level} for row in of] for of in sets]
        right = np.mean([one == other for one, other in zip(*cut, strict=True)])
        assert found[f"level_{level}_accuracy"] == pytest.approx(right)
    assert "level_3_accuracy" not in found


def test_a_fitted_temperature_keeps_the_hierarchy(tmp_path):
    """With 100 dev rows or more there is one."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, len(NAMES), 200)
    logits = (np.eye(len(NAMES))[labels] * 4 + generator.normal(0, 3, (200, len(NAMES)))).astype(np.float32)
    task, again = task_of("single_path"), open_task("single_path", NAMES)
    task.fit(labels, logits, np.arange(200, dtype=np.uint64))
    task.write(tmp_path, 1, {})
    again.read(tmp_path)
    assert task.temperature != 1
    assert (again.tree.separator, again.temperature) == ("-", task.temperature)
    assert again.decide(logits).tolist() == logits.argmax(axis=1).tolist()


@pytest.mark.parametrize(
    ("threshold", "decided"),
    [
        (0.4, ("accept", "体育-球类-篮球", 0.45)),
        (0.8, ("partial", "体育-球类", 0.85)),
        (0.9, ("partial", "体育", 0.95)),
        (0.96, ("abstain", "", 0.0)),
    ],
)
def test_a_row_stops_at_the_deepest_level_that_is_sure_enough(threshold, decided):
    found = task_of("single_path").columns(np.array([0.1, 0.45, 0.4, 0.03, 0.02]), threshold)
    assert (found["decision"], found["sure_label"], found["sure_probability"]) == decided
    assert list(found)[:5] == ["probability", "decision", "sure_label", "sure_probability", "margin"]
    parents = {key: value for key, value in found.items() if key.endswith("*")}
    assert parents == {"p_体育-*": 0.95, "p_体育-球类-*": 0.85, "p_财经-*": 0.05}


def test_of_a_path_and_one_that_ends_above_it_the_longer_one_is_predicted():
    predicted = task_of("multi_path").decide(np.array([[3.0, 3, -3, -3, 3], [3.0, -3, -3, -3, -3]]))
    assert predicted.tolist() == [[False, True, False, False, True], [True, False, False, False, False]]


def test_a_run_reports_on_every_level(run_of):
    run = run_of("single_path")
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert list(report["classes"]) == NAMES
    assert list(report["parents"]) == ["体育", "体育-球类", "财经"]
    assert {"level_1_accuracy", "level_2_accuracy", "hierarchical_f1", "accuracy"} <= set(report["intervals"])
    assert report["level_1_accuracy"] >= report["level_2_accuracy"] >= report["accuracy"]
    assert report["baselines"]["majority class"]["hierarchical_f1"] > 0
    assert "stops at the deepest level" in (run / "README.md").read_text(encoding="utf-8")
    several = json.loads((run_of("multi_path") / "report.json").read_text(encoding="utf-8"))
    assert {"hierarchical_f1", "micro_f1"} <= set(several["intervals"])
    assert several["hierarchical_f1"] >= several["micro_f1"] > 0.5


@BOTH
def test_predictions_say_how_far_a_path_is_sure_and_the_page_has_parents(name, run_of, tmp_path):
    run = run_of(name)
    wanted = read_predictions(run / "predictions.csv")
    found = predict_again(run, wanted, tmp_path / "found.csv", "--threshold", "0.9")
    assert {row["decision"] for row in found} <= {"accept", "partial", "abstain"}
    if name == "single_path":
        sums = [float(row["p_体育-*"]) + float(row["p_财经-*"]) for row in found]
        assert sums == pytest.approx(np.ones(len(found)), abs=1e-5)
    page = (run / "report.html").read_text(encoding="utf-8")
    assert all(f"<bdi>{name}</bdi>" in page for name in ("体育", "体育-球类", "财经"))


@BOTH
def test_a_model_alone_knows_what_is_between_levels(name, run_of, tmp_path):
    folder = tmp_path / name
    shutil.copytree(run_of(name), folder, ignore=shutil.ignore_patterns("decision.json"))
    assert load(folder).predict(["股股股股的"]).shape == (1,)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"label_hierarchy": None}), encoding="utf-8")
    with pytest.raises(InputError, match=r"or in config.json, .*label_hierarchy"):
        load(folder)
