"""Classes with another share in a split than in train."""

import numpy as np
import pytest

from app.data.share_changes import share_changes


def statistics(rows: int, **classes: int) -> dict:
    return {"rows": rows, "classes": classes}


def test_the_largest_change_comes_first_and_small_ones_are_chance():
    train = statistics(1000, a=500, b=300, c=200)
    changes = share_changes(train, statistics(400, a=120, b=124, c=156))
    assert [(change.label, change.train_share, change.share) for change in changes] == [
        ("a", 0.5, 0.3),
        ("c", 0.2, 0.39),
    ]
    assert share_changes(train, statistics(400, a=190, b=125, c=85)) == []


@pytest.mark.parametrize("split", [statistics(9, a=9, b=0), statistics(300), statistics(300, a=290, b=10)])
def test_few_rows_numbers_and_equal_shares_say_nothing(split):
    assert share_changes(statistics(3000, a=2900, b=100), split) == []


@pytest.mark.parametrize("num_classes", [2, 6, 119])
def test_samples_of_the_same_rows_are_not_told_apart(num_classes):
    generator = np.random.default_rng(num_classes)
    shares = generator.dirichlet(np.ones(num_classes))
    num_alarms = 0
    for _ in range(300):
        samples = []
        for num_rows in (1500, 300):
            counts = generator.multinomial(num_rows, shares).tolist()
            samples.append({"rows": num_rows, "classes": {str(at): count for at, count in enumerate(counts)}})
        num_alarms += bool(share_changes(*samples))
    assert num_alarms <= 2
