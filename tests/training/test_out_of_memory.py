"""Steps that are repeated where memory runs out: python -m pytest tests/training/test_out_of_memory.py"""

from dataclasses import replace

import pytest
import torch

from app.errors import TrainingError
from app.modes.single import Single
from app.runtime.group import Group
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
    # Batches of 10 rows, of at most 3
    config = replace(SETTINGS, accumulation_steps=4)
    small.assert_same_bits(Training(rows, config, dropout=0.3).run(until=3))


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


class TwoRanks(Group):
    world_size = 2


class OneOfTwo(Small):
    """Rank 0 of two, of which the other is not here."""

    group_class = TwoRanks


def test_a_rank_that_cannot_tell_the_others_says_what_to_set(rows):
    with pytest.raises(TrainingError, match="--train.accumulation_steps N, with a larger number"):
        Training(rows, SETTINGS, OneOfTwo).run()
