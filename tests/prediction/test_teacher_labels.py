"""Reports on rows with the labels of a person and of a teacher."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from app.words import in_language
from tests.multi_label_runs import read_predictions
from tests.saved_classifier import LABELS, random_texts, save_checkpoint, several_labels
from tests.verbs import predict

NUM_ROWS = 400
NUM_LABELLED = 150


def write_rows(path: Path, rows: list[dict]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return path


def changed(labels: list[str], share: float, seed: int) -> list[str]:
    """Return labels of which a share is another one."""
    generator = np.random.default_rng(seed)
    new_labels = []
    for label in labels:
        if generator.random() < share:
            label = LABELS[(LABELS.index(label) + 1) % len(LABELS)]
        new_labels.append(label)
    return new_labels


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    return save_checkpoint(tmp_path_factory.mktemp("teacher") / "model")


@pytest.fixture(scope="module")
def rows(checkpoint) -> list[dict]:
    """Rows of which the model is right about 85 %, and a teacher about 90 %; a person labelled the first."""
    texts = random_texts(NUM_ROWS)
    folder = checkpoint.parent
    write_rows(folder / "texts.csv", [{"text": text} for text in texts])
    words = ["--input", str(folder / "texts.csv"), "--output", str(folder / "answers.csv")]
    assert predict(["--checkpoint", str(checkpoint), "--device", "cpu", *words]) == 0
    answers = [row["label"] for row in read_predictions(folder / "answers.csv")]
    labels = changed(answers, 0.15, seed=1)
    teacher = changed(labels, 0.1, seed=2)
    table = []
    for number, text in enumerate(texts):
        label = labels[number] if number < NUM_LABELLED else ""
        table.append({"text": text, "label": label, "teacher_label": teacher[number]})
    return table


@pytest.fixture
def report(checkpoint, tmp_path):
    """Return a function that writes rows and reports on them, and returns report.json."""

    def write_report(rows: list[dict], *options: str, status: int = 0) -> dict:
        file = write_rows(tmp_path / "rows.csv", rows)
        words = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", str(file), *options]
        assert predict([*words, "--report", str(tmp_path / "out"), "--overwrite"]) == status
        if status:
            return {}
        return json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))

    return write_report


def test_a_report_has_the_teacher_and_rows_without_a_label_are_no_part_of_the_other_figures(
    report, rows, tmp_path
):
    figures = report(rows)
    predictions = read_predictions(tmp_path / "out" / "predictions.csv")
    assert [row["label"] for row in predictions] == [row["label"] for row in rows]
    assert [row["teacher_label"] for row in predictions] == [row["teacher_label"] for row in rows]
    labelled = predictions[:NUM_LABELLED]
    others = predictions[NUM_LABELLED:]
    teacher = figures["teacher"]
    assert figures["rows"] == teacher["rows"] == NUM_LABELLED
    assert teacher["other_rows"] == NUM_ROWS - NUM_LABELLED
    model_right = np.mean([row["label"] == row["predicted"] for row in labelled])
    assert figures["accuracy"] == teacher["model"]["share"] == pytest.approx(model_right)
    teacher_right = np.mean([row["label"] == row["teacher_label"] for row in labelled])
    assert teacher["teacher"]["share"] == pytest.approx(teacher_right)
    other_agreement = np.mean([row["predicted"] == row["teacher_label"] for row in others])
    assert teacher["other_agreement"] == pytest.approx(other_agreement)
    assert "threshold" not in teacher
    # Without the rows of the teacher alone, all other figures are the same
    alone = report(rows[:NUM_LABELLED])
    assert "powered" not in alone["teacher"]
    assert figures.keys() == alone.keys()
    assert figures["confusion_matrix"] == alone["confusion_matrix"]
    assert figures["long_texts"] == alone["long_texts"]
    assert figures["loss"] == pytest.approx(alone["loss"])


@pytest.mark.parametrize(
    ("language", "words", "threshold_words"),
    [
        ("en", ["the teacher is right  ", "prediction-powered inference", "on 150 rows that"], "remain for"),
        ("zh", ["教师正确  ", "prediction-powered inference", "150 行也有人工标签"], "要留给教师或人工"),
    ],
)
def test_text_and_page_say_it_in_both_languages(report, rows, tmp_path, language, words, threshold_words):
    with in_language(language):
        figures = report(rows, "--threshold", "precision=0.6")
    text = (tmp_path / "out" / "report.txt").read_text(encoding="utf-8")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    share = f"{figures['teacher']['powered']['share']:.4f}"
    for word in (*words, threshold_words, share, "--threshold 0."):
        assert word in text
        assert word.strip() in page
    assert "&amp;#" not in page


def test_a_wanted_precision_is_that_of_the_rows_that_a_person_labelled(report, rows, tmp_path, capsys):
    """The run's dev rows are not asked: this checkpoint has none. The threshold that is named decides so."""
    threshold = report(rows, "--threshold", "precision=0.7")["teacher"]["threshold"]
    assert "chosen on the rows of the report that have a label" in capsys.readouterr().err
    assert threshold["precision_bound"] >= 0.7
    assert "decision" not in read_predictions(tmp_path / "out" / "predictions.csv")[0]
    figures = report(rows, "--threshold", str(threshold["confidence"]))
    assert figures["teacher"]["threshold"] == threshold
    predictions = read_predictions(tmp_path / "out" / "predictions.csv")
    decided = [row for row in predictions if float(row["probability"]) >= threshold["confidence"] - 1e-6]
    assert threshold["remaining"] == pytest.approx(1 - len(decided) / NUM_ROWS)
    right = [row["label"] == row["predicted"] for row in decided if row["label"]]
    assert (threshold["rows"], threshold["right"]) == (len(right), sum(right))
    assert "threshold" not in report(rows, "--threshold", "precision=0.999")["teacher"]
    assert "No threshold surely has a precision of 0.999" in capsys.readouterr().out


def test_another_column_votes_and_empty_cells(report, rows):
    """Of votes the most frequent counts, of equally many the first; an empty cell is no label."""
    expected = report(rows)["teacher"]
    voted = []
    for number, row in enumerate(rows):
        label = row["teacher_label"]
        other = LABELS[(LABELS.index(label) + 1) % len(LABELS)]
        votes = [f"{label}|{label}|{other}", f"{label}|{other}", f'["{other}", "{label}", "{label}"]'][
            number % 3
        ]
        voted.append({"text": row["text"], "gpt": votes, "label": row["label"]})
    figures = report(voted, "--teacher", "gpt")["teacher"]
    assert figures == expected | {"column": "gpt"}
    for row in voted[:10]:
        row["gpt"] = ""
    figures = report(voted, "--teacher", "gpt")["teacher"]
    assert figures["rows"] == NUM_LABELLED - 10


def test_an_empty_column_that_nobody_asked_for_is_left_alone(report, rows, capsys):
    labelled = [row | {"teacher_label": ""} for row in rows[:NUM_LABELLED]]
    figures = report(labelled)
    assert "teacher" not in figures
    assert figures["accuracy"] > 0.7
    assert "the column teacher_label is not compared: no row has a value in it" in capsys.readouterr().err
    for asked in (("--teacher", "teacher_label"), ("--threshold", "precision=0.7")):
        report(labelled, *asked, status=2)
        assert "some rows need a label and one in the column teacher_label" in capsys.readouterr().err


def test_what_is_no_label_of_person_or_teacher_is_an_error(report, rows, tmp_path, capsys):
    def error(changes: dict, *options: str) -> str:
        changed_rows = [*rows[:-1], rows[-1] | changes]
        report(changed_rows, *options, status=2)
        return capsys.readouterr().err

    line = "rows.csv, line "
    assert "column teacher_label: the model has no label '好'" in error({"teacher_label": "好"})
    several = error({"teacher_label": json.dumps([LABELS[:2], LABELS[:1]], ensure_ascii=False)})
    assert "column teacher_label: a row must have one label, found" in several
    missing = error({"teacher_label": ""})
    assert line in missing
    assert "a label, or one in the column teacher_label, is needed, found none" in missing
    assert "there is no teacher; did you mean 'teacher_label'?" in error({}, "--teacher", "teacher")
    assert "the teacher needs a column beside text and label" in error({}, "--teacher", "label")
    report([row | {"label": ""} for row in rows], status=2)
    assert "some rows need a label and one in the column teacher_label" in capsys.readouterr().err
    assert not (tmp_path / "out" / "report.json").exists()
    # Without a teacher, an empty label is an error as before
    without = [{"text": row["text"], "label": row["label"]} for row in rows]
    report(without, status=2)
    assert "the label is empty" in capsys.readouterr().err


def test_models_of_several_labels_have_no_teacher(rows, tmp_path, capsys):
    model = save_checkpoint(tmp_path / "model", **several_labels(0.5, 0.5, 0.5))
    file = write_rows(tmp_path / "rows.csv", rows[:10])
    words = ["--checkpoint", str(model), "--input", str(file), "--report", str(tmp_path / "out")]
    assert predict([*words, "--teacher", "teacher_label"]) == 2
    assert "labels of a teacher are for models of one label a row" in capsys.readouterr().err
    assert predict(words) == 0
    assert "the column teacher_label is not compared" in capsys.readouterr().err
