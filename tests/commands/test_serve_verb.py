"""python -m app serve: its options, its signals and its end: python -m pytest
tests/commands/test_serve_verb.py"""

import re
import signal
import socket
import threading
import time

import pytest

pytest.importorskip("fastapi")
import httpx2

from app.commands.one_model import KEY
from tests.saved_classifier import save_checkpoint
from tests.serving.running_server import server_process
from tests.verbs import serve as main


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "70000"], "--port must be from 0 to 65,535, found 70000"),
        (["--prot", "80"], "--prot"),
        (["--allowed_hosts", "http://a"], "names of hosts without a port are needed"),
        (["--batch_tokens", "0"], "--batch_tokens must be at least 1"),
        (["--threshold", "recall=0.9"], "precision=P is needed"),
        (["no/model"], "no/model: a checkpoint must be a folder"),
        (["--host", "256.0.0.1"], "--host 256.0.0.1 --port 0: cannot listen there"),
    ],
)
def test_errors_of_the_command_line(capsys, options, message):
    assert main([*(["--port", "0"] if "--port" not in options else []), *options]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


def test_a_port_that_is_taken(capsys):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert main(["--port", str(taken.getsockname()[1])]) == 2
    assert (
        "cannot listen there: Address already in use; choose another port or host" in capsys.readouterr().err
    )


@pytest.mark.parametrize("key", ["", " ", "钥匙", "a\n"])
def test_a_key_that_no_header_can_have(capsys, monkeypatch, key):
    monkeypatch.setenv(KEY, key)
    assert main(["--port", "0"]) == 2
    assert f"{KEY} must be printable ASCII" in capsys.readouterr().err


@pytest.mark.slow
def test_sigterm_finishes_what_has_arrived(tmp_path):
    texts = ["今天真好" * 10] * 64
    with server_process(save_checkpoint(tmp_path), key="secret") as (process, address):
        client = httpx2.Client(base_url=address, headers={"Authorization": "Bearer secret"}, timeout=120)
        while client.get("/health", headers={"Authorization": ""}).status_code != 200:
            time.sleep(0.1)
        statuses = []
        threads = [
            threading.Thread(
                target=lambda: statuses.append(client.post("/predict", json={"inputs": texts}).status_code)
            )
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        arrived = 0
        # The first may be answered before the last arrives
        while arrived < 8 * len(texts):
            # Before the metrics are asked for: none is counted twice
            answered = len(statuses)
            waiting = re.search(
                r"^classifier_waiting_texts (\S+)$", client.get("/metrics").text, re.MULTILINE
            )
            arrived = float(waiting[1]) + answered * len(texts)
        process.send_signal(signal.SIGTERM)
        for thread in threads:
            thread.join()
        assert statuses == [200] * 8
        assert process.wait(60) == 0


@pytest.mark.slow
def test_ctrl_c(tmp_path):
    with server_process(save_checkpoint(tmp_path), key="secret") as (process, address):
        assert httpx2.get(f"{address}/info").status_code == 401
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        # The address
        assert len(process.log_lines()) == 1
