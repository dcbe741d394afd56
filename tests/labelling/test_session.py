"""Sittings of labelling: what is on the disk after each answer, who gets which text, and what is shown."""

import csv
import json

import pytest

from app.errors import InputError
from app.labelling.session import LabelSession, SessionOptions
from tests.labelling.pools import LABELS, CharacterVectors, label_of, write_pool


def open_session(folder, pool, labels=LABELS, **options) -> LabelSession:
    """Return a session with vectors, whose model is fitted in the first answers."""
    options = {"vectors": CharacterVectors(), "cache_dir": str(folder / "cache"), **options}
    session = LabelSession(pool, labels, folder / "labels.csv", SessionOptions(**options))
    session._thread.join()
    return session


def label_texts(session: LabelSession, count: int, person: str = "a") -> list:
    """Give the right label to the next texts, and return these."""
    texts = []
    for _number in range(count):
        text = session.next_text(person)
        session.answer(person, text.number, [label_of(text.text)])
        texts.append(text)
    return texts


def rows_of(path) -> list[dict]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "posts.csv")


def test_each_answer_is_in_the_file_before_the_next_text(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        for count in range(1, 16):
            [text] = label_texts(session, 1)
            rows = rows_of(tmp_path / "labels.csv")
            assert len(rows) == count
            assert rows[-1]["content"] == text.text
            assert rows[-1]["id"] == pool.cells[text.number][0]
            assert rows[-1]["label"] == label_of(text.text)


def test_a_tenth_is_test_from_the_first_answer_on(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 40)
        splits = [row["split"] for row in rows_of(tmp_path / "labels.csv")]
        status = session.status()
    assert splits[0] == "test"
    assert splits.count("test") == 4
    assert status["kept"]["rows"] == 4
    assert len(rows_of(tmp_path / "labels.test.csv")) == 4
    assert len(rows_of(tmp_path / "labels.train.csv")) == len(splits) - 4


def test_the_status_can_be_written_as_json(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        assert json.loads(json.dumps(session.status()))["answers"] == 0
        label_texts(session, 60)
        status = json.loads(json.dumps(session.status()))
    assert status["kept"]["accuracy"]["value"] >= 0.8
    assert status["vectors"] == {"done": 120, "total": 120}
    assert [point[0] for point in status["curve"]][:2] == [5, 10]


def test_another_person_gets_another_text(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 12)
        first = session.next_text("a")
        second = session.next_text("b")
        assert second.number != first.number
        # Loading the page again shows the same text
        assert session.next_text("a") == first
        with pytest.raises(InputError, match="another person has it"):
            session.answer("b", first.number, [LABELS[0]])
