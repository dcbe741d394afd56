"""A run as the teacher of another one: its probabilities are what the other one is trained on."""

import csv
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.api import load
from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.run import work
from app.runtime.disk import read_json
from tests.multi_label_runs import arguments, read_predictions, train, write_posts
from tests.verbs import predict


@pytest.fixture(scope="module")
def posts(tmp_path_factory) -> dict[str, Path]:
    """Files with one label a row, and with several, by the task."""
    folder = tmp_path_factory.mktemp("teachers")
    return {
        "single_label": write_posts(folder / "one.jsonl", counts=(1,)),
        "multi_label": write_posts(folder / "several.jsonl"),
    }


@pytest.fixture(scope="module", params=["single_label", "multi_label"])
def taught(request, posts, tmp_path_factory) -> Path:
    """A folder with a run, `soft.csv`, which it has written about the texts of its data, and `student`, which
    was trained on that."""
    folder = tmp_path_factory.mktemp(request.param)
    task = {"data__task": request.param}
    train(posts[request.param], folder / "teacher", train__epochs=6, **task)
    texts = folder / "texts.csv"
    lines = [row["text"] for row in read_predictions(posts[request.param])]
    texts.write_text("text\n" + "\n".join(lines) + "\n", encoding="utf-8")
    words = [str(folder / "teacher"), "--input", str(texts), "--output", str(folder / "soft.csv")]
    assert predict(words) == 0
    # In another order than that of the teacher
    labels = {"data__labels": "[负面, 正面, 中性]"}
    train(folder / "soft.csv", folder / "student", train__epochs=6, **task, **labels)
    return folder


def test_a_student_learns_the_probabilities_of_its_teacher(taught):
    texts = [row["text"] for row in read_predictions(taught / "soft.csv")]
    student = load(taught / "student")
    teacher = load(taught / "teacher")
    assert student.label_names == ["负面", "正面", "中性"]
    assert teacher.label_names == ["中性", "正面", "负面"]
    of_student = student.predict_proba(texts)[:, ::-1]
    of_teacher = teacher.predict_proba(texts)
    assert np.abs(of_student - of_teacher).mean() < 0.15
    # It does not learn the hard labels, which are further away
    assert np.abs(of_teacher - of_teacher.round()).mean() > 0.02


def test_the_log_says_what_a_run_is_trained_on(taught):
    log = (taught / "student" / "train.log").read_text(encoding="utf-8")
    assert "150 rows with probabilities as the target ('p_中性', 'p_正面', 'p_负面')" in log


def test_focal_loss_is_refused(taught, capsys):
    task = yaml.safe_load((taught / "student" / "config.yaml").read_text(encoding="utf-8"))["data"]["task"]
    words = arguments(taught / "soft.csv", taught / "focal", data__task=task, train__loss="focal")
    assert work(load_config(words), "single") == 2
    problem = "train.loss focal needs rows with .*found rows with probabilities or votes"
    assert re.search(problem, capsys.readouterr().err)


def probabilities_of(path: Path) -> np.ndarray:
    """Return the probabilities in a file of `predict`, (num_rows, num_labels)."""
    names = ("p_中性", "p_正面", "p_负面")
    return np.array([[float(row[name]) for name in names] for row in read_predictions(path)])


def test_several_runs_answer_by_the_mean_of_their_probabilities(taught, capsys):
    """Whatever the order of their labels; with several labels a row their thresholds are averaged too."""
    words = ["--input", str(taught / "texts.csv"), "--overwrite", "--output"]
    runs = ["--checkpoint", str(taught / "teacher"), "--checkpoint", str(taught / "student")]
    assert predict([*runs, *words, str(taught / "both.csv")]) == 0
    assert "the mean of the probabilities of" in capsys.readouterr().err
    assert predict([str(taught / "student"), *words, str(taught / "other.csv")]) == 0
    mean = (probabilities_of(taught / "soft.csv") + probabilities_of(taught / "other.csv")) / 2
    both = probabilities_of(taught / "both.csv")
    assert np.allclose(both, mean, atol=2e-6)
    names = np.array(["中性", "正面", "负面"])
    rows = read_predictions(taught / "both.csv")
    if "label" in rows[0]:
        assert [row["label"] for row in rows] == names[both.argmax(axis=1)].tolist()
        return
    first = read_json(taught / "teacher" / "decision.json")["thresholds"]
    second = read_json(taught / "student" / "decision.json")["thresholds"]
    thresholds = np.array([(first[name] + second[name]) / 2 for name in names])
    is_clear = (np.abs(both - thresholds) > 1e-5).all(axis=1)
    assert is_clear.sum() > 100
    for row, probabilities in zip(np.array(rows)[is_clear], both[is_clear], strict=True):
        assert json.loads(row["labels"]) == names[probabilities >= thresholds].tolist()


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--checkpoint", "{teacher}"], "twice; leave one out"),
        (["--checkpoint", "{others}"], "runs that answer together must have the same"),
        (["--checkpoint", "{student}", "--threshold", "precision=0.9"], "is chosen for one run"),
        (["--checkpoint", "{student}", "--report", "out"], "several --checkpoint write predictions only"),
    ],
)
def test_runs_that_cannot_answer_together_are_refused(taught, checkpoint, tmp_path, capsys, options, problem):
    with_other_labels = shutil.copytree(checkpoint, tmp_path / "others")
    config = (checkpoint / "config.json").read_text(encoding="utf-8")
    config = json.loads(config) | {"id2label": {"0": "甲", "1": "乙", "2": "丙"}, "label2id": {}}
    (with_other_labels / "config.json").write_text(json.dumps(config), encoding="utf-8")
    folders = {"teacher": taught / "teacher", "student": taught / "student", "others": with_other_labels}
    words = [word.format(**folders) for word in options]
    words += ["--checkpoint", str(taught / "teacher"), "--input", str(taught / "texts.csv")]
    assert predict(words) == 2
    assert problem in capsys.readouterr().err


def test_a_file_that_a_person_has_corrected_is_trained_on_its_labels(taught):
    """Only where its label can be told from the answer of the model."""
    rows = read_predictions(taught / "soft.csv")
    if "label" not in rows[0]:
        pytest.skip("with several labels a row it cannot be told")
    other_label = {"中性": "正面", "正面": "负面", "负面": "中性"}
    rows[0]["label"] = other_label[rows[0]["label"]]
    path = taught / "corrected.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    data = DataConfig(train=str(path), dev_size=0, test_size=0, cache_dir=str(taught / "cache"))
    split = open_dataset(data).splits["train"]
    assert sorted(split.targets[0].tolist()) == [0, 0, 1]
    assert split.targets[1:].max(axis=1).min() < 1
    assert next(iter(split.table.share_facts.values())).rows == len(rows) - 1
