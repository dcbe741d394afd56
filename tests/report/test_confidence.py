"""How sure and how right decisions are, baselines, and the file of logits."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.calibration import calibration_curve

from app.errors import InputError
from app.ngrams.fit import fit_characters
from app.report.baselines import Sample, baselines, sample
from app.report.confidence import calibration_error, choose_threshold, confidence_bins, risk_curve
from app.report.logits_file import ARRAYS, check_same_rows, logits_of, read_run, write_logits
from app.tasks import open_task
from tests.report.rows_case import random_rows
from tests.tiny import LABELS, open_tiny

LOGISTIC = "TF-IDF + logistic regression"


def calibrated_rows(num_rows: int, seed: int = 0, highest: float = 1) -> tuple[np.ndarray, ...]:
    """Return how sure and how right rows are, right as often as they say, and hashes of their texts."""
    generator = np.random.default_rng(seed)
    confidence = generator.uniform(0.5, highest, num_rows)
    correct = generator.random(num_rows) < confidence
    return confidence, correct, generator.integers(0, 1 << 63, num_rows)


def test_calibration_bins_are_those_of_sklearn_and_equal_confidences_share_one():
    sure, correct, _ = calibrated_rows(1004)
    accuracy, confidence = calibration_curve(correct, sure, n_bins=15, strategy="quantile")
    bins = confidence_bins(sure, correct)
    assert bins.accuracy == pytest.approx(accuracy)
    assert bins.mean_confidence == pytest.approx(confidence)
    assert bins.rows.sum() == 1004
    assert bins.rows.max() - bins.rows.min() <= 1
    expected = (np.abs(accuracy - confidence) * bins.rows).sum() / 1004
    assert calibration_error(SimpleNamespace(confidence=sure, correct=correct)) == pytest.approx(expected)
    one_bin = confidence_bins(np.full(100, 0.7), np.arange(100) < 60)
    figures = [one_bin.rows.item(), one_bin.mean_confidence.item(), one_bin.accuracy.item()]
    assert figures == pytest.approx([100, 0.7, 0.6])


def test_curve_ends_with_all_rows_and_all_errors_and_equal_confidences_are_decided_together():
    sure, correct, _ = calibrated_rows(500)
    curve = risk_curve(sure, correct)
    assert (np.diff(curve.confidence) < 0).all()
    assert (np.diff(curve.coverage) > 0).all()
    assert curve.coverage[-1] == 1
    assert curve.risk[-1] == pytest.approx(1 - correct.mean())
    assert curve.risk[200] == pytest.approx(1 - correct[sure >= curve.confidence[200]].mean())
    assert len(risk_curve(sure.round(1), correct).confidence) == 6


def test_the_half_that_chooses_is_not_the_half_that_measures_and_its_bound_holds_19_times_in_20():
    confidence, correct, hashes = calibrated_rows(400)
    chosen = choose_threshold(confidence, correct, hashes, 0.9)
    measures = hashes % 2 == 1
    decided = measures & (confidence >= chosen.confidence)
    assert f"on the {measures.sum()} rows of the other half it decides {decided.sum()} (" in chosen.message
    precision = correct[decided].mean()
    expected = f"precision {precision:.4f}, at least {chosen.precision_bound:.4f} with 95 % confidence"
    assert expected in chosen.message
    thresholds = []
    bounds = []
    for seed in range(60):
        confidence, correct, hashes = calibrated_rows(1000, seed)
        chosen = choose_threshold(confidence, correct, hashes, 0.9)
        thresholds.append(chosen.confidence)
        bounds.append(chosen.precision_bound)
    # The mean of the confidences above the threshold
    true_precision = (np.array(thresholds) + 1) / 2
    assert (bounds <= true_precision).sum() >= 52
    assert true_precision.mean() == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    ("num_rows", "highest", "precision", "message"),
    [
        (400, 0.8, 0.9999, r"precision=0.9999 cannot be reached .* the best is 0\.\d{4}; ask for less"),
        (22, 1, 0.5, "too few rows"),
        (1, 1, 0.5, "found 1"),
    ],
)
def test_precision_that_cannot_be_reached_is_an_error_with_the_best(num_rows, highest, precision, message):
    confidence, correct, hashes = calibrated_rows(num_rows, highest=highest)
    with pytest.raises(InputError, match=message):
        choose_threshold(confidence, correct, hashes, precision)


def baselines_of(name: str, num_labels: int, train: Sample, dev: Sample | None, report: Sample) -> dict:
    names = [f"类别{label}" for label in range(num_labels)]
    characters = fit_characters(train.texts, train.labels, num_labels)
    return baselines(open_task(name, names), train, dev, report, characters)


def test_baselines_learn_what_can_be_learned(tmp_path):
    dataset, _, _ = open_tiny(tmp_path)
    train, test = (sample(dataset.splits[name]) for name in ("train", "test"))
    metrics = baselines_of("single_label", 3, train, None, test)
    assert list(metrics) == ["majority class", LOGISTIC]
    assert metrics["majority class"]["accuracy"] == pytest.approx(1 / 3)
    assert metrics["majority class"]["macro_f1"] == pytest.approx(0.5 / 3)
    assert metrics[LOGISTIC]["accuracy"] > 0.9
    same = Sample(["好"] * 5, np.zeros(5, int))
    assert baselines_of("single_label", 2, same, None, same)["majority class"]["accuracy"] == 1


def test_baselines_of_several_and_of_many_labels(monkeypatch):
    """Thresholds are chosen on dev, and each of several labels has its logistic regression."""
    labels, _ = random_rows("multi_label", 300, 4)
    # A character for each label of a row
    texts = ["的" + "".join(np.array(list("甲乙丙丁"))[row > 0]) for row in labels]
    train = Sample(texts[:200], labels[:200])
    dev = Sample(texts[200:250], labels[200:250])
    test = Sample(texts[250:], labels[250:])
    metrics = baselines_of("multi_label", 4, train, dev, test)
    assert (metrics[LOGISTIC]["micro_f1"], metrics[LOGISTIC]["intervals"]["micro_f1"]) == (1, [1, 1])
    assert metrics["most frequent set"]["micro_f1"] == 0, "the most frequent set is the empty one"
    assert metrics["most frequent set"]["subset_accuracy"] == (test.labels.sum(axis=1) == 0).mean()
    assert baselines_of("multi_label", 4, train, None, test)[LOGISTIC]["micro_f1"] > 0.9
    many_texts = [chr(0x4E00 + number % 60) * 3 for number in range(600)]
    classes = np.arange(600) % 60
    rows = Sample(many_texts[:60], classes[:60])
    assert baselines_of("single_label", 60, rows, None, rows)["TF-IDF + naive Bayes"]["accuracy"] > 0.9
    rows = Sample(many_texts, np.eye(60, dtype=np.uint8)[classes])
    assert baselines_of("multi_label", 60, rows, rows, rows)[LOGISTIC]["micro_f1"] == 1
    monkeypatch.setattr("app.ngrams.fit.MAX_LABELS_X_VALUES", 60 * 600)
    metrics = baselines_of("multi_label", 60, rows, rows, rows)
    assert metrics[LOGISTIC]["micro_f1"] < 1, "every second row has half of the labels"


def test_logits_come_back_as_they_were_and_other_rows_are_refused(tmp_path):
    path = tmp_path / "logits.safetensors"
    splits = open_tiny(tmp_path)[0].splits
    logits = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    written = {name: logits_of(splits[name], logits[: len(splits[name])]) for name in ("test", "dev")}
    write_logits(path, written, open_task("single_label", LABELS), 7)
    (tmp_path / "other").touch()
    assert path.stat().st_mode == (tmp_path / "other").stat().st_mode
    task, read_splits = read_run(tmp_path)
    assert (task.label_names, task.name, set(read_splits)) == (LABELS, "single_label", {"test", "dev"})
    for name, split in read_splits.items():
        assert (split.hashes == splits[name].table.hashes[splits[name].rows]).all()
        check_same_rows(split, written[name])
        for key in ARRAYS:
            array = getattr(split, key)
            expected = getattr(written[name], key)
            assert array.dtype == expected.dtype, key
            assert (array == expected).all(), key
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    test_split = read_splits["test"]
    fewer_rows = replace(test_split, **{name: getattr(test_split, name)[1:] for name in ARRAYS})
    other_texts = replace(test_split, hashes=test_split.hashes[::-1])
    other_labels = replace(test_split, labels=(test_split.labels + 1) % 3)
    for changed in (fewer_rows, other_texts, other_labels):
        with pytest.raises(InputError, match=f"texts or labels in {len(test_split)} and {len(changed)} rows"):
            check_same_rows(test_split, changed)


@pytest.mark.parametrize("content", [None, b"", b"no logits", b"\x02\0\0\0\0\0\0\0{}"])
def test_other_files_are_an_error_that_names_them(tmp_path, content):
    path = tmp_path / "logits.safetensors"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match="logits.safetensors"):
        read_run(tmp_path)
