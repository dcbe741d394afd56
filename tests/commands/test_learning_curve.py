"""`python -m app learning-curve` with real runs: python -m pytest tests/commands/test_learning_curve.py -m
"slow or not slow" """

import json

import pytest

from app.runs.curve import render_shares
from tests.commands.test_cross_validate import TINY
from tests.spoken import spoken_in
from tests.tiny import write_tiny
from tests.verbs import learning_curve as main


def figures(change: float, low: float, high: float) -> dict:
    points = [
        {
            "share": share,
            "train_rows": int(800 * share),
            "macro_f1": value,
            "interval": [value - 0.1, value + 0.1],
        }
        for share, value in zip((0.12, 0.25, 0.5, 1), (0.5, 0.6, 0.7, 0.7 + change), strict=True)
    ]
    ends = {"last_change": change, "last_change_interval": [low, high]}
    return {"metric": "macro_f1", "split": "test", "rows": 302, "points": points} | ends


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((0.05, 0.01, 0.09), "more rows help. Twice as many would give about 0.80"),
        ((0.0, -0.01, 0.009), "more rows of this kind hardly help"),
        ((0.02, -0.03, 0.07), "302 rows it is tested on are too few"),
    ],
)
def test_what_a_curve_says(values, said):
    assert said in render_shares(figures(*values))
    assert "302" in spoken_in("zh", render_shares, figures(*values))


def test_rows_without_labels_are_refused(capsys):
    assert main(["--data.task", "masked_language_modelling", "--data.train", "a.txt"]) == 2
    assert "learning-curve needs labels" in capsys.readouterr().err


@pytest.mark.slow
def test_a_curve_from_the_first_command_and_again(tmp_path, capsys):
    data = ["--data.train", str(write_tiny(tmp_path / "rows.tsv", rows_per_label=80))]
    data += ["--data.cache_dir", str(tmp_path / "cache"), "--output.dir", str(tmp_path / "out")]
    assert main([*TINY, *data]) == 0
    first = capsys.readouterr()
    written = json.loads((tmp_path / "out/learning_curve.json").read_text(encoding="utf-8"))
    assert [point["train_rows"] for point in written["points"]] == [24, 48, 96, 192]
    assert written["rows"] == 24
    assert (tmp_path / "out/learning_curve.txt").is_file()
    assert main([*TINY, *data]) == 0
    again = capsys.readouterr()
    assert again.out == first.out
    assert again.err.count("finished before") == 4
