"""`python -m app suggest`: python -m pytest tests/commands/test_suggest.py"""

import csv
from pathlib import Path

import pytest

from app.commands.one_model import STRATEGIES
from tests.tiny import tiny_lines, train_tiny
from tests.verbs import suggest as main


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of two epochs on 60 rows."""
    return train_tiny(tmp_path_factory.mktemp("suggest"), epochs=2)


@pytest.fixture
def pool(tmp_path) -> Path:
    """30 new texts with their ids, of which one is there twice, and five that the run was trained with."""
    texts = [line.split("\t")[0] for line in tiny_lines(10, seed=1)[1:]]
    texts += [texts[0], *(line.split("\t")[0] for line in tiny_lines(20)[1:6])]
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    path = tmp_path / "pool.csv"
    path.write_text(f"id,text\n{rows}", encoding="utf-8")
    return path


def read(path: Path) -> list[dict]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def suggest(run: Path, pool: Path, target: str, *options: str) -> int:
    return main([str(pool), str(pool.parent / target), "--checkpoint", str(run), "--device", "cpu", *options])


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_new_rows_are_written_with_their_columns_and_the_guess(run, pool, capsys, strategy):
    assert suggest(run, pool, "next.csv", "--num", "7", "--strategy", strategy) == 0
    rows = read(pool.parent / "next.csv")
    assert [*rows[0]][:4] == ["id", "text", "label", "probability"]
    assert len({row["text"] for row in rows}) == 7
    assert {int(row["id"]) for row in rows} <= set(range(30))
    said = capsys.readouterr().err
    assert "30 new rows; left out: 1 repeated, 5 known to the run, 0 invalid" in said
    assert "7 rows in " in said
    # The same command again: nothing is overwritten
    assert suggest(run, pool, "next.csv") == 2


def test_the_least_certain_rows_are_chosen_or_the_surest_of_each_label(run, pool):
    """More rows than the pool has are all of them."""

    def chosen(name: str, *options: str) -> list[tuple[str, float]]:
        assert suggest(run, pool, name, "--num", *options) == 0
        return [(row["label"], float(row["probability"])) for row in read(pool.parent / name)]

    every, five = chosen("all.csv", "99"), chosen("five.csv", "5", "--strategy", "least_confidence")
    assert [value for _, value in five] == sorted(value for _, value in every)[:5]
    sure, labels = chosen("sure.csv", "6", "--strategy", "highest_confidence"), {label for label, _ in every}
    assert len(sure) == 6
    assert {*sure[: len(labels)]} == {max(row for row in every if row[0] == label) for label in labels}


@pytest.mark.parametrize(
    ("content", "target", "options", "message"),
    [
        ("text\n", "next.csv", (), "pool.csv"),
        (
            "text\n{known}\n",
            "next.csv",
            (),
            "the pool has no new row (0 new rows; left out: 0 repeated, 1 known",
        ),
        ("text\n好好好\n", "next.csv", ("--num", "0"), "--num must be at least 1, found 0"),
        ("text\n好好好\n", "next.txt", (), "the name must end in .csv, .xlsx, .jsonl, .ndjson"),
    ],
)
def test_bad_input_is_an_error(run, tmp_path, capsys, content, target, options, message):
    known = tiny_lines(20)[1].split("\t")[0]
    (tmp_path / "pool.csv").write_text(content.format(known=known), encoding="utf-8")
    assert suggest(run, tmp_path / "pool.csv", target, *options) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / target).exists()
