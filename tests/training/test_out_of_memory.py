"""Steps that are repeated where memory runs out: python -m pytest tests/training/test_out_of_memory.py"""

from dataclasses import replace

import numpy as np
import pytest
import torch

from app.errors import TrainingError
from app.runtime.group import Group
from app.strategies.single import Single
from tests.tiny import open_tiny
from tests.training.tiny_training import SETTINGS, Training


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return open_tiny(tmp_path_factory.mktemp("rows"), rows_per_label=20)


class Small(Single):
    """A device whose memory is enough for the gradients of a few rows."""

    max_rows = 3

    def forward(self, inputs):
        rows = len(inputs["first_tokens"])
        if self.module.training and rows > self.max_rows:
            raise torch.OutOfMemoryError(f"out of memory for {rows} rows")
        return super().forward(inputs)


def test_micro_batches_get_smaller_until_they_fit_and_stay_so(rows, caplog):
    caplog.set_level("INFO")
    small = Training(rows, SETTINGS, Small).run()
    messages = [message for message in caplog.messages if "memory ran out" in message]
    assert ["with micro-batches of 10 rows" in messages[0], "of 5 rows" in messages[1]] == [True, True]
    assert len(messages) == 2
    assert small.state.micro_batch_size == 3
    small.assert_same_job(Training(rows, SETTINGS).run())


def test_a_failed_try_leaves_no_trace(rows):
    """The step that is repeated has the bits of one that had small micro-batches from the start."""
    small = Training(rows, SETTINGS, Small, dropout=0.3).run(until=3)
    small.assert_same_bits(Training(rows, replace(SETTINGS, micro_batch_size=3), dropout=0.3).run(until=3))


class NoMemory(Small):
    max_rows = 0


def test_one_row_that_does_not_fit_is_an_error_with_a_remedy(rows):
    with pytest.raises(TrainingError, match="step 1 with micro-batches of one row; lower data.max_length"):
        Training(rows, SETTINGS, NoMemory).run()


class SmallForAdamW(Single):
    """Memory runs out when the weights are changed."""

    def update(self, norm):
        raise torch.OutOfMemoryError("out of memory in the update")


def test_an_update_is_not_repeated(rows):
    """Some weights may have changed already."""
    training = Training(rows, SETTINGS, SmallForAdamW)
    with pytest.raises(torch.OutOfMemoryError, match="in the update"):
        training.run()
    assert training.state.micro_batch_size is None


def test_other_errors_are_raised_as_they_are(rows):
    class Broken(Single):
        def forward(self, inputs):
            raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        Training(rows, SETTINGS, Broken).run()


def with_other_rank(fails_at: int) -> type[Single]:
    """A mode of two ranks, of which only rank 0 is here; the other one fails in a try, counted from 0."""

    class TwoRanks(Group):
        world_size = 2
        tries = 0

        def start_sum(self, values):
            failed = int(values.item()) + (self.tries == fails_at)
            type(self).tries += 1
            return lambda: torch.tensor([failed])

    class Mode(Small):
        max_rows = 4
        group_class = TwoRanks
        can_retry = True

    return Mode


def test_all_ranks_repeat_a_step_that_failed_on_one(rows):
    """Rank 0 has 5 rows of 10, which do not fit; then the other rank has no memory either."""
    config = replace(SETTINGS, micro_batch_size="auto", max_steps=2)
    training = Training(rows, config, with_other_rank(fails_at=1)).run()
    assert training.state.micro_batch_size == 2
    # A pass of no rows at the end exchanges the gradients
    assert [len(step.positions) for step in training.steps] == [5, 5]
    assert all(np.isfinite(training.losses))


def test_a_rank_that_cannot_tell_the_others_says_what_to_set(rows):
    with pytest.raises(TrainingError, match="--train.micro_batch_size auto"):
        Training(rows, SETTINGS, with_other_rank(fails_at=-1)).run()
