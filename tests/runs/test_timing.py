"""Timing the modes: medians over rounds. The command line: tests/commands/test_mode_verbs.py"""

from app.runs.timing import Timing, over_rounds


def test_rounds_of_modes_become_medians():
    """The machine is twice as fast in the second round: speed-ups are within a round."""
    rounds = [
        [
            Timing("single", 1, 32, 1.0, 100.0, None, 700.0, 0.5),
            Timing("ddp", 2, 32, 2.0, 80.0, None, 650.0, 0.6),
        ],
        [
            Timing("single", 1, 32, 0.5, 200.0, None, 690.0, 0.5),
            Timing("ddp", 2, 32, 1.0, 160.0, None, 655.0, 0.6),
        ],
    ]
    single, ddp = over_rounds(rounds)
    assert single == Timing("single", 1, 32, 0.75, 150.0, 1.0, 700.0, 0.5)
    assert ddp == Timing("ddp", 2, 32, 1.5, 120.0, 0.8, 655.0, 0.6)
    broken = Timing("ddp", 2, why="RuntimeError: a rank died")
    assert over_rounds([rounds[0], [rounds[1][0], broken]])[1] == broken
    assert over_rounds([[rounds[0][1]]]) == [rounds[0][1]], "without single there is no speed-up"
