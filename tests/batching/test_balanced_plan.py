"""Classes drawn equally often: python -m pytest tests/batching/test_balanced_plan.py"""

import numpy as np
import pytest

from app.batching.plan import BatchPlan, balanced_order

CLASSES = np.repeat([0, 1, 2], [70, 25, 5])


def test_each_class_has_an_equal_share_of_an_epoch():
    order = balanced_order(CLASSES, [0, 0])
    assert len(order) == 100
    assert sorted(np.bincount(CLASSES[order]).tolist()) == [33, 33, 34]
    times = np.bincount(order, minlength=100)
    # No row of the large class comes twice
    assert times[:70].max() == 1
    assert set(times[70:95].tolist()) <= {1, 2}
    assert set(times[95:].tolist()) <= {6, 7}


def test_a_class_without_rows_takes_no_share():
    order = balanced_order(np.array([0, 0, 0, 7, 7, 4]), [1, 2])
    assert np.bincount(np.array([0, 0, 0, 7, 7, 4])[order]).tolist() == [2, 0, 0, 0, 2, 0, 0, 2]


def test_epochs_differ_and_are_a_function_of_the_seed():
    plan, again = (BatchPlan(100, 16, 3, CLASSES) for _ in range(2))
    assert plan.steps_per_epoch == 7
    first, second = (np.concatenate([plan.batch(7 * epoch + step) for step in range(7)]) for epoch in (0, 1))
    assert len(first) == len(second) == 100
    assert sorted(first[CLASSES[first] == 0].tolist()) != sorted(second[CLASSES[second] == 0].tolist())
    # Any step alone, as after resuming
    for step in (9, 2, 13, 0):
        np.testing.assert_array_equal(again.batch(step), plan.batch(step))
    other = BatchPlan(100, 16, 4, CLASSES)
    assert other.batch(0).tolist() != plan.batch(0).tolist()


def test_two_plans_of_one_size_do_not_share_an_order():
    plan, other = (BatchPlan(100, 100, 0, classes) for classes in (CLASSES, CLASSES[::-1].copy()))
    assert plan.batch(0).tolist() != other.batch(0).tolist()
    np.testing.assert_array_equal(plan.batch(0), BatchPlan(100, 100, 0, CLASSES).batch(0))


@pytest.mark.parametrize("classes", [None, CLASSES])
def test_the_plan_of_a_training(classes):
    plan = BatchPlan(100, 16, 0, classes)
    assert bool(plan.drawn) == (classes is not None)
