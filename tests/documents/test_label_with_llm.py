"""`examples/label_with_llm.py` against a small server of OpenAI's chat completions API, over real HTTP."""

import csv
import json
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.processes import ROOT, finish, wait_until

pytest.importorskip("httpx2", reason="needs requirements/llm.txt")
SCRIPT = "examples/label_with_llm.py"
NUM_ROWS = 20
MANY_ROWS = 5000  # which are not answered before a signal arrives
RIGHT = {number: ("好评", "差评")[number % 2] for number in range(NUM_ROWS)}


class ChatServer(ThreadingHTTPServer):
    """Answers with the label of the text, after what `faults` has for it: (status, headers, body), each used
    once. `held` texts get no answer before `release` is set."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), ChatHandler)
        self.faults: dict[str, list[tuple[int, dict, bytes]]] = {}
        self.held: set[str] = set()
        self.release = threading.Event()
        self.requests: list[dict] = []
        self.keys: list[str | None] = []
        self.asked: Counter[str] = Counter()
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1"


class ChatHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_words: object) -> None:
        """Nothing is printed."""

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["messages"][0]["content"]
        text = prompt.rpartition("文本：\n")[2]
        with server.lock:
            server.requests.append(body | {"path": self.path})
            server.keys.append(self.headers.get("authorization"))
            server.asked[text] += 1
            fault = server.faults.get(text, [])
            answer = fault.pop(0) if fault else None
        if text in server.held:
            server.release.wait(60)
        if answer is None:
            answer = completion(RIGHT[int(text.split()[1]) % NUM_ROWS])
        status, headers, content = answer
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def completion(content: str | None) -> tuple[int, dict, bytes]:
    """Return an answer of the API."""
    choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
    return 200, {"content-type": "application/json"}, json.dumps({"choices": [choice]}).encode()


@pytest.fixture
def server() -> Iterator[ChatServer]:
    chat_server = ChatServer()
    thread = threading.Thread(target=chat_server.serve_forever)
    thread.start()
    yield chat_server
    chat_server.release.set()
    chat_server.shutdown()
    thread.join()
    chat_server.server_close()


@pytest.fixture
def pool(tmp_path) -> Path:
    """A file as suggest writes it: a column of the pool, the text, and the guess of a run."""
    return write_pool(tmp_path / "next.csv", NUM_ROWS)


def write_pool(path: Path, num_rows: int) -> Path:
    lines = ["id,text,label,predicted_label,probability,p_好评,p_差评"]
    lines += [f"{100 + number},文本 {number},好评,好评,0.6,0.6,0.4" for number in range(num_rows)]
    path.write_text("\ufeff" + "\n".join(lines) + "\n", encoding="utf-8")
    return path


def command(pool: Path, server: ChatServer, *options: str) -> list[str]:
    output = str(pool.parent / "llm.csv")
    return [sys.executable, SCRIPT, str(pool), output, "--url", server.url, "--model", "m", *options]


def label(pool: Path, server: ChatServer, *options: str, status: int = 0) -> subprocess.CompletedProcess:
    return finish(command(pool, server, *options), status=status, OPENAI_API_KEY="secret")


def labelled(pool: Path) -> list[dict]:
    with (pool.parent / "llm.csv").open(encoding="utf-8-sig", newline="") as file:
        return list(csv.DictReader(file))


def answers(pool: Path) -> list[dict]:
    lines = (pool.parent / "llm.csv.answers.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines[1:]]


def test_rows_get_votes_and_the_request_is_that_of_the_api(server, pool):
    before = pool.read_bytes()
    done = label(pool, server, "--votes", "3")
    rows = labelled(pool)
    # The guess of the run is not in the new file
    assert [*rows[0]] == ["id", "text", "label"]
    expected = [(f"文本 {number}", "|".join([RIGHT[number]] * 3)) for number in range(NUM_ROWS)]
    assert [(row["text"], row["label"]) for row in rows] == expected
    assert len(answers(pool)) == len(server.requests) == 3 * NUM_ROWS
    request = server.requests[0]
    assert request["path"] == "/v1/chat/completions"
    assert request["model"] == "m"
    assert request["temperature"] == 1
    assert "- 好评\n- 差评\n" in request["messages"][0]["content"]
    assert set(server.keys) == {"Bearer secret"}
    assert "20 of 20 rows; 60 calls now" in done.stdout
    assert pool.read_bytes() == before
    # The same command again asks nothing
    label(pool, server, "--votes", "3")
    assert len(server.requests) == 3 * NUM_ROWS


def test_errors_of_the_server_are_tried_again_and_answers_that_are_no_label_are_no_votes(server, pool):
    server.faults = {
        "文本 0": [(429, {"retry-after": "1"}, b"slow down"), (503, {}, b"")],
        "文本 1": [(200, {}, b"<html>not JSON</html>")],
        "文本 2": [completion("我觉得是好评"), completion(None)],
        "文本 3": [completion("<think>好评?</think>\n“差评”。"), completion("中评")],
        "文本 15": [(400, {}, b"inspection failed"), completion("好评")],
    }
    done = label(pool, server, "--votes", "2")
    votes = [row["label"] for row in labelled(pool)]
    assert votes[:5] == ["好评|好评", "差评|差评", "", "差评", "好评|好评"]
    assert votes[15] == "好评"
    assert server.asked["文本 0"] == 4
    assert server.asked["文本 1"] == 3
    assert "40 answers, of which 4 are no label" in done.stdout
    assert "1 rows have no vote" in done.stdout
    without_label = [record for record in answers(pool) if record["label"] is None]
    assert Counter(record["row"] for record in without_label) == {2: 2, 3: 1, 15: 1}
    assert {record.get("answer") for record in without_label} == {"我觉得是好评", "中评", None}
    assert [record["refused"] for record in without_label if "refused" in record] == [
        "status 400: inspection failed"
    ]


def test_the_budget_ends_the_calls_and_the_same_command_continues(server, pool):
    server.faults = {"文本 0": [(500, {}, b"")]}
    done = label(pool, server, "--budget", "7", status=1)
    assert len(server.requests) == 7
    assert "the budget of 7 calls is used" in done.stderr
    # The failed call counts, and its row comes last
    assert len(answers(pool)) == 6
    label(pool, server)
    assert [row["label"] for row in labelled(pool)] == list(RIGHT.values())
    assert len(server.requests) == NUM_ROWS + 1


def test_a_killed_command_loses_no_answer_and_continues(server, pool):
    """It is killed while one call is under way; the answers of all others are on the disk, also where they
    wait in the file for the row that is asked for."""
    server.held = {"文本 3"}
    process = subprocess.Popen(command(pool, server), cwd=ROOT, start_new_session=True)
    wait_until(lambda: len(server.requests) == NUM_ROWS)
    journal = pool.parent / "llm.csv.answers.jsonl"
    wait_until(lambda: journal.read_bytes().count(b"\n") == NUM_ROWS)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert [row["text"] for row in labelled(pool)] == ["文本 0", "文本 1", "文本 2"]
    with journal.open("ab") as file:
        file.write('{"row": 3, "label": "差'.encode()[:-1])
    server.held = set()
    server.release.set()
    label(pool, server)
    assert [row["label"] for row in labelled(pool)] == list(RIGHT.values())
    # Only the call under way was made again
    assert server.asked == {f"文本 {number}": 1 + (number == 3) for number in range(NUM_ROWS)}
    assert [record["row"] for record in answers(pool)].count(3) == 1


def test_ctrl_c_keeps_the_answers_of_calls_under_way(server, pool):
    write_pool(pool, MANY_ROWS)
    server.held = {f"文本 {number}" for number in range(8)}
    process = subprocess.Popen(
        command(pool, server),
        cwd=ROOT,
        start_new_session=True,
        stderr=subprocess.PIPE,
        text=True,
        # A shell has its background jobs ignore SIGINT
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    wait_until(lambda: len(server.requests) == 8)
    process.send_signal(signal.SIGINT)
    server.release.set()
    _nothing, stderr = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped by Ctrl-C; the same command continues" in stderr
    num_answers = len(answers(pool))
    assert 8 <= num_answers == len(server.requests) < MANY_ROWS


def test_files_of_the_user_and_other_jobs_are_refused(server, pool):
    output = pool.parent / "llm.csv"
    output.write_text("mine\n", encoding="utf-8")
    assert "exists, without" in label(pool, server, status=1).stderr
    assert output.read_text(encoding="utf-8") == "mine\n"
    output.unlink()
    label(pool, server)
    assert "answers of another job (votes differ)" in label(pool, server, "--votes", "2", status=1).stderr
    # Corrections by hand stay; rows that were taken out are an error
    corrected = output.read_text(encoding="utf-8-sig").replace("文本 1,差评", "文本 1,好评")
    output.write_text(corrected, encoding="utf-8")
    label(pool, server)
    assert labelled(pool)[1]["label"] == "好评"
    output.write_text(corrected.replace("100,文本 0,好评\n", ""), encoding="utf-8")
    assert "llm.csv, row 1: the rows of the input are needed" in label(pool, server, status=1).stderr
    assert len(server.requests) == NUM_ROWS


def test_a_wrong_key_stops_at_once_and_a_column_of_labels_of_a_person_stays(server, pool):
    server.faults = {f"文本 {number}": [(401, {}, b"no such key")] for number in range(NUM_ROWS)}
    done = label(pool, server, status=1)
    assert "status 401: no such key" in done.stderr
    assert len(server.requests) <= 8
    server.faults = {}
    rows = pool.parent / "test.csv"
    rows.write_text("label,text\n好评,文本 1\n,文本 2\n", encoding="utf-8")
    output = str(pool.parent / "taught.csv")
    options = ["--url", server.url, "--model", "m", "--labels", "好评,差评"]
    refused = finish([sys.executable, SCRIPT, str(rows), output, *options], status=1)
    assert "has a column label that suggest did not write" in refused.stderr
    finish([sys.executable, SCRIPT, str(rows), output, *options, "--column", "teacher_label"], status=0)
    assert Path(output).read_text(encoding="utf-8-sig") == (
        "label,text,teacher_label\n好评,文本 1,差评\n,文本 2,好评\n"
    )
