"""What ranks do with signals once a run is over: python -m pytest tests/runtime/test_signals.py"""

import signal

import pytest

from app.errors import TrainingError
from app.runtime.group import Group
from app.runtime.signals import StopSignals


class TwoRanks(Group):
    """The group of one process, which says that there are two."""

    world_size = 2


@pytest.fixture(autouse=True)
def same_handler_afterwards():
    handler = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, handler)


@pytest.mark.parametrize(("group", "is_ignored"), [(TwoRanks, True), (Group, False)])
def test_a_rank_finishes_its_files_after_an_error_of_training(group, is_ignored):
    """The launcher sends SIGTERM when the first rank has ended; rank 0 may still write the last state."""
    with pytest.raises(TrainingError), StopSignals(group()):
        raise TrainingError("the loss is nan")
    assert (signal.getsignal(signal.SIGTERM) == signal.SIG_IGN) is is_ignored


def test_training_that_ends_well_leaves_the_handler():
    before = signal.getsignal(signal.SIGTERM)
    with StopSignals(TwoRanks()):
        pass
    assert signal.getsignal(signal.SIGTERM) == before
