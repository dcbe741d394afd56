"""Labels in a hierarchy: python -m pytest tests/tasks/test_paths.py"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from app.api import load
from app.config.command_line import load_config
from app.errors import InputError
from app.report.bootstrap import answer_metrics
from app.runs.verify import compare
from app.tasks import open_task
from app.tasks.tree import Tree
from tests.multi_label_runs import arguments, predict_again, read_predictions
from tests.runs.mode_ranks import train as verify_mode
from tests.tasks.kinds import PATHS as NAMES
from tests.tasks.kinds import write_news
from tests.verbs import predict

SEVERAL = {"data__task": "multi_path", "data__label_hierarchy": "-"}


@pytest.fixture
def run(run_of) -> Path:
    return run_of("single_path")


@pytest.fixture
def run_of_several(run_of) -> Path:
    return run_of("multi_path")


def task_of(name: str, names: list[str] = NAMES):
    task = open_task(name, names)
    task.use_hierarchy("-")
    return task


def above(label: str) -> set[str]:
    """Return a label and all above it."""
    levels = label.split("-")
    return {"-".join(levels[:end]) for end in range(1, len(levels) + 1)}


def test_the_probability_of_a_parent_is_the_sum_of_those_below_it():
    tree = Tree(NAMES, "-")
    probabilities = np.random.default_rng(0).dirichlet(np.ones(len(NAMES)), 50)
    found = dict(zip(map(tree.name, range(len(tree.nodes))), tree.sums(probabilities).T, strict=True))
    of = dict(zip(NAMES, probabilities.T, strict=True))
    assert found["体育-球类"] == pytest.approx(of["体育-球类-篮球"] + of["体育-球类-足球"])
    assert found["体育"] == pytest.approx(of["体育"] + found["体育-球类"])
    assert found["体育"] + found["财经"] == pytest.approx(np.ones(50))
    assert tree.any_of(np.full((1, len(NAMES)), 0.5))[0, tree.ids["财经",]] == pytest.approx(0.75)
    assert tree.any_of(np.eye(len(NAMES)))[1, tree.ids["体育",]] == 1


@pytest.mark.parametrize("name", ["single_path", "multi_path"])
def test_metrics_are_those_of_sets_of_nodes(name):
    generator = np.random.default_rng(0)
    if name == "single_path":
        answers = generator.integers(0, len(NAMES), (2, 300))
        sets = [[above(NAMES[label]) for label in row] for row in answers]
    else:
        answers = generator.random((2, 300, len(NAMES))) < 0.3
        sets = [
            [set().union(*(above(NAMES[at]) for at in np.flatnonzero(row))) for row in of] for of in answers
        ]
    found = answer_metrics(task_of(name), *answers)
    common = sum(len(one & other) for one, other in zip(*sets, strict=True))
    true, predicted = (sum(map(len, of)) for of in sets)
    assert found["hierarchical_precision"] == pytest.approx(common / predicted)
    assert found["hierarchical_recall"] == pytest.approx(common / true)
    assert found["hierarchical_f1"] == pytest.approx(2 * common / (true + predicted))
    for level in (1, 2):
        at = [[{name for name in row if name.count("-") == level - 1} for row in of] for of in sets]
        if name == "multi_path":
            common = sum(len(one & other) for one, other in zip(*at, strict=True))
            assert found[f"level_{level}_f1"] == pytest.approx(
                2 * common / sum(len(row) for of in at for row in of)
            )
        else:
            cut = [[{name for name in row if name.count("-") < level} for row in of] for of in sets]
            right = np.mean([one == other for one, other in zip(*cut, strict=True)])
            assert found[f"level_{level}_accuracy"] == pytest.approx(right)
    assert "level_3_accuracy" not in found
    assert "level_3_f1" not in found


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
    assert (again.separator, again.temperature) == ("-", task.temperature)
    assert again.decide(logits).tolist() == logits.argmax(axis=1).tolist()


def test_a_row_stops_at_the_deepest_level_that_is_sure_enough():
    task = task_of("single_path")
    by_threshold = {
        threshold: task.columns(np.array([0.1, 0.45, 0.4, 0.03, 0.02]), threshold)
        for threshold in (0.4, 0.8, 0.9, 0.96)
    }
    found = {
        key: (of["decision"], of["sure_label"], of["sure_probability"]) for key, of in by_threshold.items()
    }
    assert found == {
        0.4: ("accept", "体育-球类-篮球", 0.45),
        0.8: ("partial", "体育-球类", 0.85),
        0.9: ("partial", "体育", 0.95),
        0.96: ("abstain", "", 0.0),
    }
    assert list(by_threshold[0.9])[:5] == [
        "probability",
        "decision",
        "sure_label",
        "sure_probability",
        "margin",
    ]
    assert by_threshold[0.9]["p_体育-球类-*"] == pytest.approx(0.85)


def test_of_several_paths_each_stops_where_it_is_not_sure():
    task = task_of("multi_path")
    record = task.columns(np.array([0.01, 0.7, 0.6, 0.97, 0.01]), 0.85)
    assert (record["decision"], record["sure_labels"]) == ("partial", ["体育-球类", "财经-基金"])
    assert task.columns(np.array([0.01, 0.01, 0.01, 0.97, 0.01]), 0.85)["decision"] == "accept"


def test_of_a_path_and_one_that_ends_above_it_the_longer_one_is_predicted():
    predicted = task_of("multi_path").decide(np.array([[3.0, 3, -3, -3, 3], [3.0, -3, -3, -3, -3]]))
    assert predicted.tolist() == [[False, True, False, False, True], [True, False, False, False, False]]


def test_a_run_reports_on_every_level(run, run_of_several):
    report = json.loads((run / "report.json").read_text(encoding="utf-8"))
    assert list(report["classes"]) == NAMES
    assert list(report["parents"]) == ["体育", "体育-球类", "财经"]
    assert {"level_1_accuracy", "level_2_accuracy", "hierarchical_f1", "accuracy"} <= set(report["intervals"])
    assert report["level_1_accuracy"] >= report["level_2_accuracy"] >= report["accuracy"]
    assert report["baselines"]["majority class"]["hierarchical_f1"] > 0
    assert "stops at the deepest level" in (run / "README.md").read_text(encoding="utf-8")
    several = json.loads((run_of_several / "report.json").read_text(encoding="utf-8"))
    assert {"level_1_f1", "level_2_f1", "hierarchical_f1", "micro_f1"} <= set(several["intervals"])
    assert several["hierarchical_f1"] >= several["micro_f1"] > 0.5


@pytest.mark.parametrize("name", ["run", "run_of_several"])
def test_predictions_say_how_far_a_path_is_sure(name, request, tmp_path):
    run = request.getfixturevalue(name)
    wanted = read_predictions(run / "predictions.csv")
    found = predict_again(run, wanted, tmp_path / "found.csv", "--threshold", "0.9")
    assert {row["decision"] for row in found} <= {"accept", "partial", "abstain"}
    assert all(row["p_财经-*"] for row in found)
    if name == "run":
        sums = [float(row["p_体育-*"]) + float(row["p_财经-*"]) for row in found]
        assert sums == pytest.approx(np.ones(len(found)), abs=1e-5)


@pytest.mark.parametrize("name", ["run", "run_of_several"])
def test_the_page_folds_labels_by_parent(name, request):
    page = (request.getfixturevalue(name) / "report.html").read_text(encoding="utf-8")
    tree = page[page.index('<div class="tree">') :]
    assert page.count("<details>") == page.count("</details>") == 3
    summaries = re.findall(r"<details><summary>.*?<bdi>(.*?)</bdi>", tree)
    assert summaries == ["体育", "球类", "财经"]
    assert "体育 (the path ends here)" in tree
    assert tree.index("<bdi>球类</bdi>") < tree.index("<bdi>篮球</bdi>") < tree.index("</details>")


def test_a_model_alone_knows_what_is_between_levels(run, run_of_several, tmp_path):
    for source in (run, run_of_several):
        folder = tmp_path / source.parent.name
        shutil.copytree(source, folder, ignore=shutil.ignore_patterns("decision.json"))
        assert load(folder).predict(["股股股股的"]).shape == (1,)
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        (folder / "config.json").write_text(json.dumps(config | {"label_hierarchy": None}), encoding="utf-8")
        with pytest.raises(InputError, match="label_hierarchy in config.json must be what is between"):
            load(folder)


def test_labelled_rows_are_reported_on_as_the_run_reads_them(run, tmp_path):
    words = ["--input", str(run.parent / "rows.jsonl"), "--report", str(tmp_path / "report")]
    assert predict(["--checkpoint", str(run), *words]) == 0
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    assert list(report["parents"]) == ["体育", "体育-球类", "财经"]


@pytest.mark.slow
def test_two_processes_and_data_parallel_train_the_weights_of_one(tmp_path):
    """With several paths a row, as the verb verify compares them."""
    words = arguments(write_news(tmp_path / "rows.jsonl", several=True), tmp_path / "run", **SEVERAL)
    config = load_config(words)
    one = verify_mode(config, "single", "float64", tmp_path, world_size=1, steps=4)
    for mode, world_size in (("ddp", 2), ("dp", 1)):
        other = verify_mode(config, mode, "float64", tmp_path, world_size, steps=4)
        assert compare(mode, "float64", one, other, None).verdict == "PASS"
