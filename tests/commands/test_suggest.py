"""Which rows `python -m app suggest` names, and why."""

import codecs
from pathlib import Path

import numpy as np
import pytest

from app.prediction import STRATEGIES
from app.prediction.suggested_rows import choose_rows, usual_strategy
from app.tasks import open_task
from tests.multi_label_runs import read_predictions, train, write_posts
from tests.report.test_metrics import task_of
from tests.tiny import tiny_lines, write_tiny
from tests.verbs import suggest as main

KNOWN = [line.split("\t")[0] for line in tiny_lines(20)[1:6]]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two epochs on 60 rows."""
    folder = tmp_path_factory.mktemp("suggest")
    train(write_tiny(folder / "rows.tsv"), folder / "run", data__task="single_label", train__epochs=2)
    return folder / "run"


@pytest.fixture
def suggest(run, tmp_path):
    """Return a function that has rows of a pool chosen, and returns them: of 30 new texts with their ids, of
    which one is there twice, and five that the run was trained with."""
    texts = [line.split("\t")[0] for line in tiny_lines(10, seed=1)[1:]]
    rows = "".join(f"{number},{text}\n" for number, text in enumerate([*texts, texts[0], *KNOWN]))
    pool = tmp_path / "pool.csv"
    pool.write_text(f"id,text\n{rows}", encoding="utf-8")

    def choose(name: str, *options: str, status: int = 0) -> list[dict]:
        words = [str(pool), str(tmp_path / name), "--checkpoint", str(run), "--device", "cpu", *options]
        assert main(words) == status
        return read_predictions(tmp_path / name)

    return choose


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_new_rows_are_written_with_their_columns_and_the_guess(suggest, tmp_path, capsys, strategy):
    rows = suggest("next.csv", "--num", "7", "--strategy", strategy)
    assert [*rows[0]][:5] == ["id", "text", "label", "predicted_label", "probability"]
    assert [row["predicted_label"] for row in rows] == [row["label"] for row in rows]
    assert (tmp_path / "next.csv").read_bytes().startswith(codecs.BOM_UTF8)
    assert len({row["text"] for row in rows}) == 7
    assert {int(row["id"]) for row in rows} <= set(range(30))
    stderr = capsys.readouterr().err
    assert "30 new rows; left out: 1 repeated, 5 known to the run, 0 invalid" in stderr
    assert "7 rows in " in stderr
    # The same command again: nothing is overwritten
    assert suggest("next.csv", status=2) == rows
    assert "replace it with --overwrite" in capsys.readouterr().err
    assert len(suggest("next.csv", "--num", "3", "--overwrite")) == 3


def test_the_run_is_the_first_word_or_an_option_or_the_newest(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("pool.csv").write_text("text\n今天真开心\n差\n一般\n", encoding="utf-8")
    Path("checkpoints").symlink_to(run.parent)
    forms = [[str(run), "pool.csv", "a.csv"], ["pool.csv", "--checkpoint", str(run), "b.csv"]]
    forms += [["pool.csv", "c.csv"], ["--num", "50", "checkpoints/run", "pool.csv", "d.csv"]]
    written = set()
    for words in forms:
        capsys.readouterr()
        assert main([*words, "--device", "cpu"]) == 0
        assert ("model checkpoints/run\n" in capsys.readouterr().err) == (words[1] == "c.csv")
        [name] = [word for word in words if word in ("a.csv", "b.csv", "c.csv", "d.csv")]
        written.add(Path(name).read_bytes())
    assert len(written) == 1
    assert main(["nothing", "pool.csv", "e.csv"]) == 2
    assert "nothing: a checkpoint must be a folder" in capsys.readouterr().err
    assert main(["checkpoints/run", "pool.csv"]) == 2
    assert "a file POOL and a file OUT are needed, found 1" in capsys.readouterr().err


def test_the_least_certain_rows_are_chosen_or_the_surest_of_each_label(suggest):
    """More rows than the pool has are all of them."""

    def chosen(name: str, *options: str) -> list[tuple[str, float]]:
        return [(row["label"], float(row["probability"])) for row in suggest(name, "--num", *options)]

    every = chosen("all.csv", "99")
    five = chosen("five.csv", "5", "--strategy", "least_confidence")
    assert [value for _, value in five] == sorted(value for _, value in every)[:5]
    sure = chosen("sure.csv", "6", "--strategy", "highest_confidence")
    labels = {label for label, _ in every}
    assert len(sure) == 6
    assert {*sure[: len(labels)]} == {max(row for row in every if row[0] == label) for label in labels}


@pytest.mark.parametrize(
    ("pool", "message"),
    [
        ("text\n", "pool.csv"),
        (f"text\n{KNOWN[0]}\n", "the pool has no new row (0 new rows; left out: 0 repeated, 1 known"),
    ],
)
def test_a_pool_without_new_rows_is_an_error(run, tmp_path, capsys, pool, message):
    (tmp_path / "pool.csv").write_text(pool, encoding="utf-8")
    assert main([str(tmp_path / "pool.csv"), str(tmp_path / "next.csv"), "--checkpoint", str(run)]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "next.csv").exists()


# The two first rows are sure: two labels and none. Of the others the first has a label of which it is least
# sure.
OF_SEVERAL = np.array([[0.99, 0.99, 0.01], [0.001, 0.001, 0.001], [0.55, 0.02, 0.01], [0.3, 0.45, 0.01]])


def chosen_by(strategy: str, task, probabilities: np.ndarray) -> list[int]:
    """Return the ids of all rows, the most useful first."""
    confidence = task.confidence(probabilities)
    answers = task.decide_by_probabilities(probabilities)
    return choose_rows(strategy, len(probabilities), probabilities, confidence, answers).tolist()


@pytest.mark.parametrize("name", ["multi_label", "multi_path"])
def test_of_several_labels_the_rows_with_an_uncertain_label_come_first(name):
    task = open_task("multi_label", list("abc")) if name == "multi_label" else task_of(name)
    missing = np.zeros((4, len(task.label_names) - 3))
    order = chosen_by(usual_strategy(task), task, np.c_[OF_SEVERAL, missing])
    assert order == [2, 3, 0, 1]


def test_the_surest_rows_of_several_labels_are_of_each_label_and_of_none():
    task = open_task("multi_label", list("abc"))
    probabilities = np.array([[0.01, 0.01, 0.01], [0.02, 0.01, 0.01], [0.9, 0.7, 0.1], [0.1, 0.6, 0.1]])
    assert chosen_by("highest_confidence", task, probabilities) == [0, 2, 3, 1]


def test_of_rows_that_are_as_uncertain_those_that_may_have_a_rare_label_come_first():
    """Of labelling: the counts say how many answers each label has."""
    probabilities = np.array([[0.5, 0.5, 0.0], [0.5, 0.0, 0.5], [0.0, 0.5, 0.5], [0.96, 0.04, 0.0]])
    order = choose_rows(
        "least_confidence",
        4,
        probabilities,
        confidence=probabilities.max(axis=1),
        answers=probabilities.argmax(axis=1),
        label_counts=np.array([100, 50, 3]),
    )
    assert order.tolist() == [2, 1, 0, 3]


def test_the_surest_rows_of_ordered_labels_are_of_each_answer():
    """The answer is the median, which need not be the most probable label."""
    task = open_task("ordinal", list("abc"))
    probabilities = np.array([[0.4, 0.3, 0.3], [0.95, 0.03, 0.02], [0.9, 0.05, 0.05]])
    assert chosen_by("highest_confidence", task, probabilities) == [1, 0, 2]


def test_a_model_of_several_labels_says_how_it_chose_and_refuses_ties(tmp_path, capsys):
    train(write_posts(tmp_path / "posts.jsonl"), tmp_path / "run", train__max_steps=2)
    pool = tmp_path / "pool.csv"
    target = tmp_path / "next.csv"
    pool.write_text("text\n今天真开心\n差\n一般\n", encoding="utf-8")
    words = [str(pool), str(target), "--checkpoint", str(tmp_path / "run"), "--device", "cpu"]
    assert main([*words, "--strategy", "breaking_ties"]) == 2
    assert "breaking_ties is for models of one label a row" in capsys.readouterr().err
    assert main([*words, "--num", "2"]) == 0
    assert f"2 rows in {target}, chosen by least_confidence" in capsys.readouterr().err
    assert list(read_predictions(target)[0])[:2] == ["text", "labels"]
