"""What the server of `label` answers, and what it refuses."""

import csv
import json
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
from tests.labelling.pools import LABELS, label_of, write_pool
from tests.labelling.running_labels import PERSON, labels_client

OTHER = "ba9876543210"


def rows_of(path: Path) -> list[dict]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def next_text(client, person: str = PERSON) -> dict:
    return client.post("/next", json={"person": person}).json()["text"]


def give_answer(client, text: dict, labels: list[str], person: str = PERSON) -> dict:
    """Send an answer, and return what the server says."""
    body = {"person": person, "number": text["number"], "labels": labels}
    answer = client.post("/answer", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture
def pool(tmp_path):
    return write_pool(tmp_path / "posts.csv")


@pytest.fixture
def client(tmp_path, pool):
    with labels_client(tmp_path, pool) as client:
        yield client


def test_each_answer_is_in_the_file_when_the_next_text_comes(tmp_path, client):
    text = next_text(client)
    guesses = []
    for number in range(1, 13):
        reply = give_answer(client, text, [label_of(text["text"])])
        last_row = rows_of(tmp_path / "labels.csv")[-1]
        assert len(rows_of(tmp_path / "labels.csv")) == number
        assert (last_row["content"], last_row["label"]) == (text["text"], label_of(text["text"]))
        assert reply["text"]["number"] != text["number"]
        assert next_text(client) == reply["text"]
        guesses.append(reply["guess"])
        text = reply["text"]
    # The first text has no guess, because no model has learnt yet
    assert guesses[0] == {}
    assert set(guesses[-1]) == set(LABELS)
    assert sum(guesses[-1].values()) == pytest.approx(1, abs=1e-5)


def test_two_people_get_different_texts_and_each_goes_back_to_the_own_answer(client):
    first = next_text(client)
    second = next_text(client, OTHER)
    assert first["number"] != second["number"]
    give_answer(client, first, [LABELS[0]])
    back = client.post("/back", json={"person": PERSON}).json()["text"]
    assert back == {**first, "labels": [LABELS[0]]}
    refused = client.post("/back", json={"person": OTHER})
    assert refused.status_code == 422
    assert "there is no answer of yours to go back to" in refused.json()["error"]
    give_answer(client, back, [LABELS[1]])
    counts = {label["name"]: label["count"] for label in client.get("/status").json()["labels"]}
    assert counts == {LABELS[0]: 0, LABELS[1]: 1}


def test_a_skipped_text_does_not_come_again_and_a_new_label_can_be_given(tmp_path, client):
    text = next_text(client)
    body = {"person": PERSON, "number": text["number"]}
    other_text = client.post("/skip", json=body).json()["text"]
    assert other_text["number"] != text["number"]
    status = client.post("/labels", json={"person": PERSON, "name": "中评"}).json()
    assert [label["name"] for label in status["labels"]] == [*LABELS, "中评"]
    assert status["skipped"] == 1
    give_answer(client, other_text, ["中评"])
    assert rows_of(tmp_path / "labels.csv")[-1]["label"] == "中评"


def test_several_labels_a_text_are_a_list(tmp_path, pool):
    with labels_client(tmp_path, pool, has_several=True) as client:
        assert client.get("/info").json()["has_several"]
        text = next_text(client)
        text = give_answer(client, text, LABELS[::-1])["text"]
        give_answer(client, text, [])
    assert [json.loads(row["label"]) for row in rows_of(tmp_path / "labels.csv")] == [LABELS, []]


def test_the_guess_before_the_answer_is_only_there_where_people_may_ask(tmp_path, pool, client):
    text = next_text(client)
    refused = client.post("/guess", json={"person": PERSON, "number": text["number"]})
    assert refused.status_code == 422
    assert "start the server with --show_guess asked" in refused.json()["error"]
    folder = tmp_path / "other"
    folder.mkdir()
    with labels_client(folder, pool, asks_guess=True) as asking:
        text = next_text(asking)
        for _number in range(12):
            text = give_answer(asking, text, [label_of(text["text"])])["text"]
        guess = asking.post("/guess", json={"person": PERSON, "number": text["number"]}).json()["guess"]
        assert set(guess) == set(LABELS)


REFUSED = [
    ("next", {}, 422, "body.person: Field required"),
    ("next", {"person": "a b"}, 422, "body.person: String should match pattern"),
    ("next", {"person": PERSON, "number": 1}, 422, "body.number: Extra inputs are not permitted"),
    ("answer", {"person": PERSON, "number": 0, "labels": ["没有"]}, 422, "labels must be among 好评, 差评"),
    ("answer", {"person": PERSON, "number": 0, "labels": []}, 422, "one label a text is needed, found 0"),
    ("answer", {"person": PERSON, "number": 9999, "labels": ["好评"]}, 422, "must be below 120, found 9999"),
    ("answer", {"person": PERSON, "number": -1, "labels": ["好评"]}, 422, "body.number: "),
    ("labels", {"person": PERSON, "name": "好评"}, 422, "the names of labels must differ"),
    ("labels", {"person": PERSON, "name": "好\n评"}, 422, "one line without white space around it"),
    ("answers", {"person": PERSON}, 404, "there is no route /answers; "),
]


@pytest.mark.parametrize(("path", "body", "status", "message"), REFUSED)
def test_what_is_refused_has_a_status_and_a_reason(tmp_path, client, path, body, status, message):
    before = (tmp_path / "labels.csv").read_bytes()
    answer = client.post(f"/{path}", json=body)
    assert answer.status_code == status
    assert message in answer.json()["error"]
    assert (tmp_path / "labels.csv").read_bytes() == before


def test_a_form_of_another_site_cannot_answer(client):
    """A browser sends such a form without asking; JSON it sends only where the server allows that."""
    text = next_text(client)
    body = json.dumps({"person": PERSON, "number": text["number"], "labels": [LABELS[0]]})
    refused = client.post("/answer", content=body, headers={"Content-Type": "text/plain"})
    assert refused.status_code == 422
    assert client.get("/status").json()["answers"] == 0
    foreign = client.get("/status", headers={"Host": "example.com"})
    assert foreign.status_code == 400


def test_a_key_is_needed_for_all_but_the_page(tmp_path, pool):
    with labels_client(tmp_path, pool, api_key="secret") as client:
        page = client.get("/")
        assert page.status_code == 200
        assert "default-src 'none'" in page.headers["Content-Security-Policy"]
        assert client.get("/health").json() == {"status": "ok"}
        assert client.get("/status").status_code == 401
        assert client.post("/next", json={"person": PERSON}).status_code == 401
        headers = {"Authorization": "Bearer secret"}
        assert client.post("/next", json={"person": PERSON}, headers=headers).json()["text"] is not None


def test_a_file_that_another_program_changes_is_not_written_to(tmp_path, client):
    text = next_text(client)
    text = give_answer(client, text, [LABELS[0]])["text"]
    with (tmp_path / "labels.csv").open("ab") as file:
        file.write(b"\r\n")
    changed = (tmp_path / "labels.csv").read_bytes()
    body = {"person": PERSON, "number": text["number"], "labels": [LABELS[0]]}
    refused = client.post("/answer", json=body)
    assert refused.status_code == 422
    assert "this file must not be changed while it is written to" in refused.json()["error"]
    assert (tmp_path / "labels.csv").read_bytes() == changed
