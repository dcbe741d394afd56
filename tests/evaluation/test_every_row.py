"""Every row is evaluated once: python -m pytest tests/evaluation/test_every_row.py"""

import numpy as np
import pytest

from app.training.evaluate import check_rows


@pytest.mark.parametrize("order", [[0, 1, 2, 3], [3, 1, 0, 2]])
def test_all_rows_once_in_any_order_are_accepted(order):
    check_rows(np.array(order), 4, "test")


@pytest.mark.parametrize(
    ("positions", "problem"),
    [
        ([0, 1, 2], "1 are missing and 0 repeated"),
        ([0, 1, 2, 3, 3], "0 are missing and 1 repeated"),
        ([0, 1, 1, 3], "1 are missing and 1 repeated"),
        ([], "4 are missing and 0 repeated"),
        ([0, 1, 2, 3, 4], "of 4 rows"),
    ],
)
def test_missing_or_repeated_rows_are_refused(positions, problem):
    with pytest.raises(RuntimeError, match="every row of dev must be evaluated exactly once") as error:
        check_rows(np.array(positions, dtype=np.int64), 4, "dev")
    assert problem in str(error.value)
