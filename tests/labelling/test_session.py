"""Sittings of labelling: what is on the disk after each answer, who gets which text, and what is shown."""

import csv
import json

import pytest

from app.errors import InputError
from app.labelling.pool import open_pool
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


def test_a_text_that_is_given_up_may_be_shown_to_others(tmp_path, pool, monkeypatch):
    monkeypatch.setattr("app.labelling.session.LOCK_SECONDS", -1)
    with open_session(tmp_path, pool) as session:
        first = session.next_text("a")
        session.answer("b", first.number, [label_of(first.text)])
        assert rows_of(tmp_path / "labels.csv")[0]["person"] == "b"


def test_a_sitting_goes_on_where_it_ended(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 30)
        session.skip("a", session.next_text("a").number)
        first_status = session.status()
    with open_session(tmp_path, pool) as session:
        assert session.status()["answers"] == first_status["answers"]
        assert session.status()["skipped"] == 1
        assert session.status()["curve"][-1][0] == first_status["curve"][-1][0]
        label_texts(session, 10)
    rows = rows_of(tmp_path / "labels.csv")
    assert len({row["content"] for row in rows}) == len(rows) == 38


def test_every_twentieth_text_is_one_that_the_person_knows(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        texts = label_texts(session, 60)
        agreement = session.status()["agreement"]
        answers = session.status()["answers"]
    seen = set()
    repeated = []
    for place, text in enumerate(texts, 1):
        if text.number in seen:
            repeated.append(place)
        seen.add(text.number)
    assert repeated == [20, 40, 60]
    assert answers == 57
    assert agreement["rows"] == 3
    assert agreement["value"] == 1.0
    rows = rows_of(tmp_path / "labels.csv")
    # A text that was shown again is no second row of the training
    assert len(rows) == 57
    assert sum(row["second_label"] != "" for row in rows) == 3
    parts = rows_of(tmp_path / "labels.train.csv") + rows_of(tmp_path / "labels.test.csv")
    assert sorted(row["id"] for row in parts) == sorted(row["id"] for row in rows)


def test_a_second_answer_does_not_change_the_first(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        first_texts = label_texts(session, 19)
        again = session.next_text("a")
        assert again.number in {text.number for text in first_texts}
        assert again.labels == ()
        wrong = next(name for name in LABELS if name != label_of(again.text))
        session.answer("a", again.number, [wrong])
        status = session.status()
    assert status["agreement"]["value"] == 0.0
    [row] = [row for row in rows_of(tmp_path / "labels.csv") if row["second_label"]]
    assert row["label"] == label_of(again.text)
    assert row["second_label"] == wrong


def test_an_earlier_answer_is_replaced(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        texts = label_texts(session, 5)
        waiting = session.next_text("a")
        assert session.back("a").number == texts[-1].number
        earlier = session.back("a")
        assert earlier.number == texts[-2].number
        assert earlier.labels == (label_of(earlier.text),)
        wrong = next(name for name in LABELS if name not in earlier.labels)
        session.answer("a", earlier.number, [wrong])
        assert session.next_text("a") == waiting
        assert session.status()["answers"] == 5
        counts = {label["name"]: label["count"] for label in session.status()["labels"]}
    rows = rows_of(tmp_path / "labels.csv")
    assert [row["label"] for row in rows] == [
        *(label_of(text.text) for text in texts[:3]),
        wrong,
        label_of(texts[4].text),
    ]
    assert counts[wrong] == sum(row["label"] == wrong for row in rows)
    parts = rows_of(tmp_path / "labels.train.csv") + rows_of(tmp_path / "labels.test.csv")
    assert sorted(map(str, parts)) == sorted(map(str, rows))


def test_there_is_nothing_to_go_back_to_before_an_answer(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        session.next_text("a")
        assert session.back("a") is None


def test_a_text_that_is_skipped_does_not_come_again(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 3)
        skipped = session.next_text("a")
        session.skip("a", skipped.number)
        later = label_texts(session, 15)
        assert session.status()["skipped"] == 1
        assert skipped.number not in {text.number for text in later}
        with pytest.raises(InputError, match="ask for the next one"):
            session.answer("a", skipped.number, [LABELS[0]])
    [row] = rows_of(tmp_path / "labels.skipped.csv")
    assert row["content"] == skipped.text
    assert skipped.text not in {row["content"] for row in rows_of(tmp_path / "labels.csv")}


def test_a_label_that_is_added_is_there_after_a_restart(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 20)
        session.add_label("中评")
        text = session.next_text("a")
        session.answer("a", text.number, ["中评"])
        assert set(session.guess("a", text.number)) == {*LABELS, "中评"}
    with open_session(tmp_path, pool) as session:
        assert session.label_names == [*LABELS, "中评"]
        label_texts(session, 10)
        assert session.status()["labels"][2]["count"] == 1


@pytest.mark.parametrize("name", ["", " 好评", "好\n评", "好评"])
def test_a_name_that_no_label_can_have_is_refused(name, tmp_path, pool):
    with open_session(tmp_path, pool) as session, pytest.raises(InputError, match="label"):
        session.add_label(name)


def test_there_is_no_guess_before_there_is_a_model(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        assert session.guess("a", session.next_text("a").number) == {}
        label_texts(session, 20)
        guess = session.guess("a", session.next_text("a").number)
    assert set(guess) == set(LABELS)
    assert sum(guess.values()) == pytest.approx(1, abs=1e-5)


def test_all_texts_are_labelled_in_the_end(tmp_path):
    pool = write_pool(tmp_path / "posts.csv", 25)
    with open_session(tmp_path, pool) as session:
        while (text := session.next_text("a")) is not None:
            session.answer("a", text.number, [label_of(text.text)])
        status = session.status()
    assert status["answers"] == 25
    assert status["left"] == 0
    splits = [row["split"] for row in rows_of(tmp_path / "labels.csv")]
    assert splits.count("test") == 3


def test_answers_that_cannot_be_are_refused(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        number = session.next_text("a").number
        for labels in ([], LABELS, ["没有"]):
            with pytest.raises(InputError, match="label"):
                session.answer("a", number, labels)
        with pytest.raises(InputError, match="below 120"):
            session.answer("a", 120, [LABELS[0]])
        assert session.status()["answers"] == 0


def test_one_label_is_too_few(tmp_path, pool):
    with pytest.raises(InputError, match="two or more labels are needed, found 好评"):
        open_session(tmp_path, pool, ["好评"])


def test_a_text_may_have_several_labels(tmp_path, pool):
    names = ["口味", "速度", "其他"]
    with open_session(tmp_path, pool, names, has_several=True) as session:
        for _number in range(40):
            text = session.next_text("a")
            labels = []
            if any(character in text.text for character in "吃味"):
                labels.append("口味")
            if "送" in text.text:
                labels.append("速度")
            session.answer("a", text.number, labels)
        status = session.status()
        guess = session.guess("a", session.next_text("a").number)
    cells = [json.loads(row["label"]) for row in rows_of(tmp_path / "labels.csv")]
    assert ["口味"] in cells
    assert [] in cells
    assert set(guess) == set(names)
    assert 0 <= status["kept"]["accuracy"]["value"] <= 1
    with open_session(tmp_path, pool, names, has_several=True) as session:
        assert session.status()["labels"] == status["labels"]


def test_a_text_of_the_file_that_left_the_pool_still_teaches(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 30)
    lines = (tmp_path / "posts.csv").read_text(encoding="utf-8").splitlines()
    (tmp_path / "later.csv").write_text("\n".join([lines[0], *lines[60:]]) + "\n", encoding="utf-8")
    with open_session(tmp_path, open_pool(tmp_path / "later.csv")) as session:
        assert session.status()["answers"] == 29
        label_texts(session, 5)
        assert session.status()["kept"]["rows"] >= 3
    assert len(rows_of(tmp_path / "labels.csv")) == 34


def test_one_program_writes_to_a_file(tmp_path, pool):
    with open_session(tmp_path, pool) as session:
        label_texts(session, 1)
        with pytest.raises(InputError, match="found another one"):
            open_session(tmp_path, pool)
    with open_session(tmp_path, pool) as session:
        assert session.status()["answers"] == 1
