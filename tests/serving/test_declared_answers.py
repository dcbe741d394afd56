"""What /openapi.json says of the answers. Every answer of a server in these tests is compared with it, by
`check_declared`; here each status that it declares is asked for."""

import json
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

pytest.importorskip("fastapi")
pytest.importorskip("jsonschema")
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.serving.options import MAX_BODY, MAX_FILE, ServeOptions
from app.serving.protocol import MAX_HEAD
from tests.serving.running_server import HTTP, OPTIONS, SCHEMAS, running, send

TEXT = "今天真开心，手机质量不好"
JSON = {"Content-Type": "application/json"}
# A request of each route that is answered with 200
REQUESTS = {
    ("GET", "/"): {},
    ("GET", "/health"): {},
    ("GET", "/info"): {},
    ("GET", "/metrics"): {},
    ("POST", "/predict"): {"json": {"inputs": TEXT, "read": True}},
    ("POST", "/predict_file"): {"params": {"name": "a.txt"}, "content": TEXT.encode()},
    ("POST", "/explain"): {"json": {"inputs": TEXT}},
}
# Requests that are refused for what they are
REFUSED = [
    ("POST", "/predict", {"content": b"{", "headers": JSON}),
    ("POST", "/predict", {"json": {}}),
    ("POST", "/predict", {"content": b" " * (MAX_BODY + 1), "headers": JSON}),
    ("POST", "/explain", {"content": b"{", "headers": JSON}),
    ("POST", "/explain", {"json": {}}),
    ("POST", "/explain", {"content": b" " * (MAX_BODY + 1), "headers": JSON}),
    ("POST", "/predict_file", {"content": TEXT.encode()}),
    ("POST", "/predict_file", {"params": {"name": "a.csv"}, "files": {"file": b"text"}}),
    ("POST", "/predict_file", {"params": {"name": "a.csv"}, "content": b" " * (MAX_FILE + 1)}),
]
Statuses = dict[tuple[str, str], set[int]]


def ask_all(address: str, statuses: Statuses, headers: dict[str, str] | None = None) -> None:
    """Send the request of each route, with more headers, and add the status of its answer to `statuses`."""
    # uvicorn closes a connection after a defect
    all_headers = {"Connection": "close", **(headers or {})}
    for (method, path), request in REQUESTS.items():
        answer = HTTP.request(method, f"{address}{path}", headers=all_headers, **request)
        statuses[method, path].add(answer.status_code)


def ask_with_long_heads(address: str, statuses: Statuses) -> None:
    for method, path in REQUESTS:
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nA: {'a' * 3 * MAX_HEAD}"
        with send(address, head.encode()) as connection:
            lines = connection.recv(10_000).decode().splitlines()
        assert "content-type: application/json" in lines
        assert set(json.loads(lines[-1])) == {"error", "error_type"}
        statuses[method, path].add(int(lines[0].split()[1]))


def ask_with_each_option(model: OpenedModel, statuses: Statuses) -> None:
    """Ask servers that have no room, no time, no free connection, or a key."""
    options = [ServeOptions(capacity=0), ServeOptions(timeout=0), ServeOptions(connections=0)]
    for each_options in options:
        with running(model, each_options) as address:
            ask_all(address, statuses)


def ask_at_the_same_time(address: str, path: str, statuses: Statuses) -> None:
    def ask(_number: int) -> int:
        return HTTP.post(f"{address}{path}", **REQUESTS["POST", path]).status_code

    with ThreadPoolExecutor(6) as pool:
        statuses["POST", path].update(pool.map(ask, range(6)))


def ask_broken_models(checkpoint, statuses: Statuses) -> None:
    """Ask a server whose model gives no numbers, and then one that has no model; a server tries its model
    when it starts, so they break afterwards."""
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    runtime = opened.predictor.runtime
    with running(opened, OPTIONS) as address:
        with torch.no_grad():
            for parameter in runtime.model.parameters():
                parameter.fill_(torch.nan)
        ask_all(address, statuses)
    opened = open_model(checkpoint, ComputeOptions("cpu"))
    with running(opened, OPTIONS) as address:
        opened.predictor.runtime.model = None
        ask_all(address, statuses)


def declared_statuses(address: str) -> Statuses:
    declared = {}
    for path, methods in SCHEMAS[address]["paths"].items():
        for method, route in methods.items():
            declared[method.upper(), path] = {int(status) for status in route["responses"]}
    return declared


@pytest.mark.slow
def test_each_status_that_is_declared_is_sent_and_the_other_way_round(checkpoint, model):
    pytest.importorskip("captum")
    statuses: Statuses = defaultdict(set)
    with running(model, ServeOptions(api_key="key")) as address:
        ask_all(address, statuses)
        ask_all(address, statuses, headers={"Authorization": "Bearer key"})
        with_key = declared_statuses(address)
    with running(model, OPTIONS) as address:
        without_key = declared_statuses(address)
        ask_all(address, statuses)
        ask_all(address, statuses, headers={"Host": "example.com"})
        ask_with_long_heads(address, statuses)
        for method, path, request in REFUSED:
            answer = HTTP.request(method, f"{address}{path}", **request)
            statuses[method, path].add(answer.status_code)
    with running(model, ServeOptions(capacity=1)) as address:
        ask_at_the_same_time(address, "/explain", statuses)
        ask_at_the_same_time(address, "/predict_file", statuses)
    ask_with_each_option(model, statuses)
    ask_broken_models(checkpoint, statuses)
    assert statuses == with_key
    needing_key = {route for route, declared in with_key.items() if 401 in declared}
    assert needing_key == {route for route in REQUESTS if route[1] not in ("/", "/health")}
    assert without_key == {route: declared - {401} for route, declared in with_key.items()}
