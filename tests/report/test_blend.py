"""How much a second reader counts: the fit, and whether it is used at all."""

from dataclasses import replace

import numpy as np
import pytest

from app.report.blend import ReadRows, choose_blend, fit_blend
from app.tasks import open_task
from app.tasks.task import Task
from app.tasks.thresholds import RARE_F1

SHARES = np.array([0.7, 0.2, 0.1])
NAMES = ["一", "二", "三"]
KINDS = {
    "single_label": ("accuracy", "macro_f1", "loss"),
    "multi_label": ("micro_f1", "macro_f1", "loss"),
    "ordinal": ("kappa", "macro_mae", "loss"),
    "regression": ("rmse", "spearman", "loss"),
}


def task_of_kind(name: str, num_labels: int = 3) -> Task:
    if name == "regression":
        task = open_task(name, ["score"])
        task.mean = 10.0
        task.scale = 2.0
        return task
    return open_task(name, NAMES[:num_labels])


def logits_of_truth(task: Task, labels: np.ndarray) -> np.ndarray:
    """Return logits that know the labels of rows, (num_rows, num_labels)."""
    if task.predicts_number:
        return task.targets(labels)[:, None].astype(float)
    if labels.ndim == 2:
        return 2.0 * labels - 1
    if task.name == "ordinal":
        return np.stack([labels - 1.0, np.ones(len(labels)), np.zeros(len(labels))], axis=1)
    return np.eye(len(task.label_names))[labels]


def rows_of_two_readers(task: Task, num_rows: int, strength: float, seed: int = 0) -> ReadRows:
    """Return rows with the logits of an encoder that knows the labels, and of n-grams that know them with a
    `strength`."""
    generator = np.random.default_rng(seed)
    labels = generator.choice(3, num_rows, p=SHARES)
    if task.predicts_number:
        labels = generator.normal(10, 2, num_rows)
    elif task.form.has_several:
        labels = (generator.random((num_rows, 3)) < SHARES).astype(np.int64)
    elif len(task.label_names) == 2:
        labels = np.minimum(labels, 1)
    truth = logits_of_truth(task, labels)
    noises = generator.normal(size=(2, *truth.shape))
    if task.predicts_number:
        noises = noises / 2
    elif task.name == "ordinal":
        noises[:, :, 1:] = 0
    return ReadRows(
        labels=labels,
        encoder=2 * truth + noises[0],
        ngrams=strength * truth + noises[1],
        hashes=generator.integers(0, 1 << 63, num_rows),
    )


def test_the_weights_are_those_of_bayes():
    """Both are normal with the same spread, so their best weights are 2 and 1, and the shift is the logarithm
    of the shares, which the balance takes away again in part."""
    task = task_of_kind("single_label")
    rows = rows_of_two_readers(task, 60_000, strength=1.0)
    blend = fit_blend(task, rows, SHARES, balance=1.0)
    assert blend.sharpness == pytest.approx(2, rel=0.05)
    assert blend.scale.tolist() == [1, 1, 1]
    assert blend.weight == pytest.approx(0.5, rel=0.1)
    assert np.abs(blend.shift - blend.shift.mean()).max() < 0.05
    assert not fit_blend(task, rows).shift.any()
    halfway = fit_blend(task, rows, SHARES, balance=0.5)
    expected = 0.5 * np.log(SHARES)
    assert np.allclose(2 * halfway.shift, expected - expected.mean(), atol=0.1)


def test_numbers_are_weighed_by_their_errors():
    """Least squares has the same weights: those of the regression of the truth on both."""
    task = task_of_kind("regression")
    rows = rows_of_two_readers(task, 20_000, strength=1.0)
    blend = fit_blend(task, rows)
    both = np.concatenate([rows.encoder, rows.ngrams], axis=1)
    expected, *_rest = np.linalg.lstsq(both, task.targets(rows.labels), rcond=None)
    assert [*blend.scale, blend.weight] == pytest.approx(expected.tolist(), abs=0.01)


CASES = [(name, metric) for name, metrics in KINDS.items() for metric in metrics]


@pytest.mark.parametrize(("name", "metric"), CASES)
def test_a_second_reader_is_used_where_it_helps_on_new_rows(name, metric):
    task = task_of_kind(name)
    blend = choose_blend(task, rows_of_two_readers(task, 600, strength=1.5), metric)
    assert blend.weight > 0.2
    assert choose_blend(task, rows_of_two_readers(task, 99, strength=1.5), metric) is None
    # Noise beside the encoder helps nobody, on most draws
    noise = [rows_of_two_readers(task, 300, strength=0.0, seed=seed) for seed in range(5)]
    is_used = [choose_blend(task, rows, metric) is not None for rows in noise]
    assert sum(is_used) <= 3


def test_the_rarer_class_has_a_threshold_of_other_rows():
    task = task_of_kind("single_label", num_labels=2)
    task.best_metric = RARE_F1
    task.rare_class = 1
    rows = rows_of_two_readers(task, 600, strength=1.5)
    assert choose_blend(task, rows, RARE_F1).weight > 0.3
    assert task.rare_log_odds is None


def test_a_scale_alone_is_no_gain_of_the_second_reader():
    """Numbers that are all too large are better with a scale, and nothing is left to gain for noise."""
    task = task_of_kind("regression")
    rows = rows_of_two_readers(task, 2_000, strength=0.0)
    rows = replace(rows, ngrams=np.zeros_like(rows.ngrams))
    assert choose_blend(task, rows, "rmse") is None


def test_equal_texts_are_in_one_part():
    """Copies with labels of chance look better where some of them were fitted on."""
    task = task_of_kind("single_label")
    rows = rows_of_two_readers(task, 400, strength=1.0)
    twice = rows.take(np.tile(np.arange(len(rows)), 2))
    first = choose_blend(task, rows, "accuracy", SHARES)
    copies = choose_blend(task, twice, "accuracy", SHARES)
    assert copies.weight == pytest.approx(first.weight, rel=1e-3)
