"""An evaluation whose logits are not finite: python -m pytest tests/training/test_evaluate.py"""

import re

import numpy as np
import pytest

from app.errors import TrainingError
from app.training.evaluate import check_finite
from tests.ranks import Disturbance, Run, settings
from tests.tiny import open_tiny


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_rows_whose_logits_are_not_finite_are_named(tmp_path, value):
    split = open_tiny(tmp_path, 60)[0].splits["dev"]
    logits = np.zeros((len(split.rows), 3), np.float32)
    check_finite(logits, split, 7)
    logits[[1, 3], [2, 0]] = value
    with pytest.raises(TrainingError) as caught:
        check_finite(logits, split, 7)
    named = ", ".join(f"{row} (line {split.table.line(row)})" for row in sorted(split.rows[[1, 3]]))
    assert str(caught.value).startswith(
        f"step 7: evaluation on dev needs finite logits, found 2 of {len(logits)} rows without: {named} of "
        f"{tmp_path}"
    )
    logits[:] = value
    with pytest.raises(TrainingError, match=r"\) and \d+ more of "):
        check_finite(logits, split, 7)


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_model_that_is_not_a_number_is_not_the_best(data, tmp_path, world_size):
    """The weights are spoilt in the step before the first evaluation; its own loss is finite."""
    argv = settings(data, tmp_path / "run", train__epochs=2, train__eval_every=2)
    disturbances = [Disturbance(1, "spoil_weights", rank) for rank in range(world_size)]
    run = Run("ddp" if world_size > 1 else "single", world_size, argv, disturbances, tmp_path / "log")
    assert run.join() == [1] * world_size, run.said()
    errors = re.findall(
        r"error(?: \(rank 1\))?: step 2: evaluation on dev needs finite logits, found .*", run.said()
    )
    assert len(errors) == world_size, run.said()
    assert "best" not in run.said().replace("saved as the best", "")
    assert not (tmp_path / "run" / "report.json").exists()
