"""What the server answers."""

import csv
import io
import json
import shutil
import socket
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

pytest.importorskip("fastapi")
from app.data.tokens import LongTexts
from app.prediction.open_model import ComputeOptions, OpenedModel, open_model
from app.prediction.predictor import Predictor
from app.prediction.torch_runtime import load_predictor
from app.prediction.trained_model import TrainedModel, trained_with
from app.serving.options import ServeOptions
from app.serving.server import allowed_hosts
from tests.saved_classifier import LABELS, as_rows, random_texts
from tests.serving.running_server import HEAD, HTTP, ask, classify, running, send

CPU = ComputeOptions("cpu")
TEXT = "今天真开心，手机质量不好"
LONG = "今天真开心，手机质量不好。\n" * 600
TEXTS = [text.strip() for text in random_texts(20)]


def expected(predictor: Predictor, texts: list[str], pairs: list[str] | None = None) -> list[list[dict]]:
    """Return what `predict` says about the texts, in the form of a server's answer."""
    answers = []
    for prediction in predictor.predict(as_rows(texts, pairs)):
        scores = zip(prediction.probabilities, predictor.task.label_names, strict=True)
        ranked = sorted(scores, key=lambda pair: -pair[0])
        answers.append([{"score": round(float(score), 6), "label": label} for score, label in ranked])
    return answers


@pytest.mark.parametrize(
    ("inputs", "texts", "pairs"),
    [
        ("今天", ["今天"], None),
        ({"text": " 今天 "}, ["今天"], None),
        ({"text": "今天", "text_pair": "真好"}, ["今天"], ["真好"]),
        ([["今天"], {"text": "真好"}], ["今天", "真好"], None),
        ([["今天", "真好"], {"text": "a", "text_pair": "b"}], ["今天", "a"], ["真好", "b"]),
        (TEXTS, TEXTS, None),
        (LONG, [LONG], None),
        ([list(pair) for pair in zip(TEXTS, TEXTS[::-1], strict=True)], TEXTS, TEXTS[::-1]),
    ],
)
def test_texts_and_pairs_get_the_answers_of_predict_to_the_last_digit(client, model, inputs, texts, pairs):
    wanted = expected(model.predictor, texts, pairs)
    for top_k in (None, 1):
        answer = client.post("/predict", json={"inputs": inputs, "top_k": top_k})
        assert answer.status_code == 200
        labels = [ranked[:top_k] for ranked in wanted]
        assert answer.json() == (labels if isinstance(inputs, list) else labels[0])


REFUSED = {
    "predict": [
        (b"", 422, "the body: Field required"),
        (b"\xff", 400, "the body must be JSON in UTF-8, found 0xff at byte 0"),
        ('{"inputs": "今天"}'.encode("gbk"), 400, "must be JSON in UTF-8, found 0xbd at byte 12; save it in"),
        (
            b"{'inputs': 'a'}",
            400,
            "no JSON: Expecting property name enclosed in double quotes",
        ),
        (b"[" * 5000, 400, "error parsing the body"),
        (b" " * ((1 << 20) + 1), 413, "the body may have 1,048,576 bytes; send fewer or shorter texts"),
        (["今天"], 422, "the body: "),
        ("今天", 422, "the body: it must be an object, as "),
        ({"input": "今天"}, 422, "input: there is no such key, found '今天'; the key of the texts is inputs"),
        ({"text": "今天"}, 422, 'the key of the texts is inputs, as in {"inputs": "今天真开心"}'),
        ({"inputs": "a", "topk": 1}, 422, "the keys are inputs, top_k, read; did you mean 'top_k'?"),
        ({"top_k": 1}, 422, "inputs must be a text"),
        ({"inputs": []}, 422, "inputs must be a text"),
        ({"inputs": [1]}, 422, "found [1]"),
        ({"inputs": {"text": 1}}, 422, 'found {"text": 1}'),
        ({"inputs": {"text": "a", "label": "b"}}, 422, "inputs must be a text"),
        ({"inputs": ["a", ["b", "c"]]}, 422, "text 2: single texts are needed"),
        ({"inputs": "a", "top_k": 0}, 422, "top_k: Input should be greater than or equal to 1, found 0"),
        ({"inputs": "a", "top_k": True}, 422, "top_k: Input should be a valid integer"),
        ({"inputs": ["好", " \u200b"]}, 422, "text 2: the text is empty"),
        ({"inputs": "\ud800"}, 422, "inputs must be a text"),
        ({"inputs": ["a"] * 129}, 422, "a list of up to 128 texts"),
        ({"inputs": ["a", "好" * 100_001]}, 422, "of up to 100,000 characters"),
    ],
    "explain": [
        ({"inputs": [TEXT] * 3}, 422, "inputs"),
        (
            {"inputs": TEXT, "label": "正正面"},
            422,
            "label must be a label of the model, found '正正面'; did you mean '正面'?",
        ),
        ({"inputs": TEXT, "label": 3}, 422, "label: Input should be a valid string"),
        ({"inputs": TEXT, "language": "fr"}, 422, "language: Input should be 'en' or 'zh'"),
        ({"inputs": TEXT, "top_k": 1}, 422, "top_k: there is no such key, found 1; the keys are"),
    ],
}


def refused_requests() -> list[tuple]:
    """Return path, body, status and message of each request that is refused."""
    requests = []
    for path, cases in REFUSED.items():
        for body, status, message in cases:
            requests.append((path, body, status, message))
    return requests


@pytest.mark.parametrize(("path", "body", "status", "message"), refused_requests())
def test_what_is_refused_has_a_status_and_a_reason(client, path, body, status, message):
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(f"/{path}", content=raw, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert set(answer.json()) == {"error", "error_type"}
    assert message in answer.json()["error"]
    assert len(answer.json()["error"]) < 500
    assert answer.json()["error"].isprintable()


@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
@pytest.mark.parametrize("path", ["/predict", "/explain"])
def test_a_body_without_the_type_of_json_is_refused_with_the_header_that_is_missing(
    client, path, content_type
):
    headers = {"Content-Type": content_type} if content_type else {}
    refused = client.post(path, content=b'{"inputs": "a"}', headers=headers)
    assert refused.status_code == 422
    problem = f"the header Content-Type must be application/json, found '{content_type}'"
    assert refused.json()["error"] == f"{problem}; with curl: -H 'Content-Type: application/json'"


def test_requests_of_another_length_method_or_route_are_refused(client):
    as_json = {"Content-Type": "application/json"}
    parts = iter([b" " * 600_000] * 2)
    assert client.post("/predict", content=parts, headers=as_json).status_code == 413
    assert send(str(client.base_url), HEAD % (1 << 40)).recv(1000).startswith(b"HTTP/1.1 413")
    refused = client.get("/predict")
    assert (refused.status_code, refused.json()["error"]) == (405, "/predict takes POST, found GET")
    for path in ("/nothing", "/docs"):
        refused = client.get(path)
        assert refused.status_code == 404
        assert refused.json()["error"].startswith(f"there is no route {path}; docs/serving.md lists them")


def test_head_is_answered_as_get_without_the_body(client):
    for path in ("/", "/health", "/info", "/metrics"):
        answer = client.head(path)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == client.get(path).headers["content-type"]
        assert answer.content == b""
    assert client.head("/predict").status_code == 405
    raw = b"HEAD /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with send(str(client.base_url), raw) as connection:
        received = b""
        while received.count(b"HTTP/1.1 200") < 2:
            received += connection.recv(1000)
    assert received.partition(b"\r\n\r\n")[2].startswith(b"HTTP/1.1 200")


def trained_as(model: OpenedModel, **settings) -> OpenedModel:
    """Return the model as if it had been trained with these settings of data."""
    return replace(model, trained=trained_with(model.folder, settings))


def test_requests_are_of_the_kind_that_the_model_was_trained_on_and_without_spaces_where_that_was(model):
    for column, inputs in (("other", ["a", "b"]), (None, [["a", "b"]])):
        refused = ask(trained_as(model, text_pair_column=column), "predict", {"inputs": inputs})
        assert refused.status_code == 422
        assert "as in the model's training" in refused.json()["error"]
    joined = trained_as(model, remove_spaces=True)
    answers = [ask(joined, "predict", {"inputs": text}).json() for text in ("a b", "a\tb", "ab")]
    assert answers[0] == answers[1] == answers[2] != expected(model.predictor, ["a b"])[0]


def test_health_info_and_metrics(client, model):
    assert client.get("/health").json() == {"status": "ok"}
    facts = {"labels": LABELS, "model": model.folder.name, "runtime": "torch", "threshold": None}
    facts |= {"max_length": 60, "long": "cut", "second_reader": None}
    assert client.get("/info").json().items() >= facts.items()
    client.post("/predict", json={"inputs": 1})
    client.post("/predict", json={"inputs": ["今天", "真好"]})
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"].startswith("text/plain")
    assert 'http_requests_total{handler="/predict",method="POST",status="4xx"}' in metrics.text
    assert "\nclassifier_waiting_texts 0.0" in metrics.text
    texts, batches = (metrics.text.split(f"classifier_batch_texts_{end} ")[1] for end in ("sum", "count"))
    assert float(texts.split()[0]) > float(batches.split()[0])


def test_the_page_loads_nothing_from_a_network_and_other_sites_may_not_read_answers(client):
    assert {"/predict", "/predict_file", "/explain"} <= set(client.get("/openapi.json").json()["paths"])
    page = client.get("/")
    assert page.status_code == 200
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "http" not in page.text.replace("http-equiv", "")
    assert "innerHTML" not in page.text
    origin = {"Origin": "https://example.com", "Access-Control-Request-Method": "POST"}
    assert client.options("/predict", headers=origin).status_code == 405
    answer = client.post("/predict", json={"inputs": "今天"}, headers=origin)
    assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_file_comes_back_with_its_columns_and_predictions(client, model):
    texts = random_texts(300)
    rows = "".join(f"{number},{text}\n" for number, text in enumerate(texts))
    content = f"id,内容\n{rows}300, \n".encode("gb18030")
    answer = client.post("/predict_file", params={"name": "帖子.csv"}, content=content)
    assert answer.status_code == 200
    predictions = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["id"] for row in predictions] == [str(number) for number in range(301)]
    labels = [prediction.answer for prediction in model.predictor.predict(as_rows(texts))]
    assert [row["label"] for row in predictions] == [*labels, ""]
    assert "the text is empty" in predictions[-1]["reason"]
    summary = json.loads(answer.headers["x-summary"])
    assert (summary["rows"], summary["invalid"]) == (301, 1)
    chosen = {"name": "a.csv"}
    content = "甲,乙\n一,二\n".encode()
    assert client.post("/predict_file", params=chosen, files={"file": content}).status_code == 415
    refused = client.post("/predict_file", params=chosen, content=content)
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("a.csv, line 1: cannot tell which column is the text")
    for column in ("乙", "1"):
        answer = client.post("/predict_file", params=chosen | {"text_column": column}, content=content)
        assert answer.text.startswith("甲,乙,label," if column == "乙" else "column_0,text,label,")


def trained_on_column(model: OpenedModel, **columns) -> OpenedModel:
    return trained_as(model, label_column="label", train="reviews.csv", **columns)


@pytest.fixture(scope="module")
def reviews(model):
    """The address of a server of a model that was trained on the column review."""
    with running(trained_on_column(model, text_column="review"), ServeOptions()) as address:
        yield address


GBK = "鼎\n龘\n".encode("gbk")  # no usual characters
OF_TRAINING = (
    "the run was trained on column 'review', and this file has 甲, 乙; name the column with the query"
)
# The name of a file, its content, and what the answer says of it
REFUSED_FILES = {
    "columns": ("a.csv", "甲,乙\n一,二\n".encode(), f"{OF_TRAINING} parameter text_column"),
    "column": ("a.csv&text_column=丙", "甲,乙\n一,二\n".encode(), "no text column '丙'"),
    "plain": ("a.txt&text_column=x", b"a\n", "remove the query parameter text_column"),
    "format": ("a.gz", b"\x1f\x8b123", "or set the ending in the query parameter name"),
    "utf-16": ("a.csv", "review\n今天\n".encode("utf-16-le"), "set the query parameter encoding utf-16-le"),
    "encoding": ("a.csv&encoding=x", b"review\na\n", "the query parameter encoding must be a text encoding"),
    "broken": (
        "a.txt",
        "今天真好\n".encode("gbk") * 9 + b"\xff\n",
        "set the query parameter encoding gb18030",
    ),
    "bytes": ("a.txt", GBK, "set the query parameter encoding (gb18030"),
    "quotes": ("a.csv", b'"a,b\n1,2\n', "double the quotes in quoted fields"),
    "no name": ("", b"a\n", "name: this query parameter is needed"),
    "unknown": (
        "a.txt&encodng=gbk",
        b"a\n",
        "encodng: there is no such query parameter; there are name, text_column",
    ),
}


@pytest.mark.parametrize("case", REFUSED_FILES)
def test_errors_of_a_file_name_query_parameters_and_no_options(reviews, case):
    name, content, message = REFUSED_FILES[case]
    query = f"name={name}" if name else ""
    refused = HTTP.post(f"{reviews}/predict_file?{query}", content=content)
    assert refused.status_code == 422
    assert message in refused.json()["error"]
    assert "--" not in refused.json()["error"]
    assert "data." not in refused.json()["error"]


def test_reasons_of_rows_name_query_parameters_too(reviews):
    content = b'{"review": "a"}\n{"review": 3}\n'
    answer = HTTP.post(f"{reviews}/predict_file?name=a.jsonl", content=content)
    assert "found 3; fix the row or set the query parameter text_column" in answer.text
    assert "--" not in answer.text


def test_a_file_of_pairs_names_both_parameters(model):
    pairs = trained_on_column(model, text_column="query", text_pair_column="title")
    with running(pairs, ServeOptions()) as address:
        refused = HTTP.post(f"{address}/predict_file?name=a.csv", content="甲,乙\n一,二\n".encode())
        assert "the run was trained on columns 'query', 'title'" in refused.json()["error"]
        assert "text_column and the query parameter text_pair_column" in refused.json()["error"]


def test_the_encoding_of_a_file_can_be_said(client):
    """Three short lines are too few to recognise GBK."""
    answer = client.post("/predict_file", params={"name": "a.txt", "encoding": "gbk"}, content=GBK)
    rows = list(csv.DictReader(io.StringIO(answer.text, newline="")))
    assert [row["text"] for row in rows] == ["鼎", "龘"]


HOSTS = dict.fromkeys(["localhost", "LOCALHOST:8000", "127.0.0.1:1", "[::1]:8000"], 200)
HOSTS |= dict.fromkeys(["evil.com", "localhost.evil.com", "evil.com@localhost", "192.168.0.7", ""], 400)


@pytest.mark.parametrize(("host", "status"), HOSTS.items())
def test_a_page_that_points_its_own_name_here_gets_no_answer(client, host, status):
    """A browser sends that name in the header Host."""
    answers = [client.get(path, headers={"Host": host}) for path in ("/", "/health", "/info", "/metrics")]
    answers.append(client.post("/predict", json={"inputs": "今天"}, headers={"Host": host}))
    assert {answer.status_code for answer in answers} == {status}


def test_a_host_that_is_not_allowed_gets_the_option_that_allows_it(client):
    for host, name in (
        ("svc.default:8741", "svc.default"),
        ("[fe80::1]:80", "fe80::1"),
        ("10.0.0.7", "10.0.0.7"),
    ):
        refused = client.get("/health", headers={"Host": host})
        assert refused.json()["error"] == (
            f"the header Host must have a name of this server, found '{host}'; to allow this one, start the "
            f"server with --allowed_hosts {name}"
        )
    for host in ("a b", "a@localhost", "a;rm -rf", "", "x" * 300):
        refused = client.get("/health", headers={"Host": host})
        assert refused.status_code == 400
        assert "--allowed_hosts" not in refused.json()["error"]


def test_an_allowed_host_is_answered(model):
    hosts = allowed_hosts("127.0.0.1", ["svc.default", "fe80::1"])
    with running(model, ServeOptions(allowed_hosts=hosts)) as address:
        for host in ("svc.default:8741", "SVC.default", "[fe80::1]:80"):
            assert HTTP.get(f"{address}/health", headers={"Host": host}).status_code == 200


def test_the_allowed_hosts_of_an_address():
    listening = allowed_hosts("10.0.0.5", ["classifier.example.com"])
    assert {"10.0.0.5", "classifier.example.com", "localhost"} <= set(listening)
    everywhere = allowed_hosts("0.0.0.0", [])
    assert "evil.com" not in everywhere
    assert {str(info[4][0]) for info in socket.getaddrinfo(socket.gethostname(), None)} <= set(everywhere)


def test_a_key_is_needed_where_there_is_one(model):
    with running(model, ServeOptions(api_key="a key")) as address:
        for key, status in [(None, 401), ("Bearer k", 401), ("Basic a key", 401), ("Bearer a key", 200)]:
            headers = {"Authorization": key} if key else {}
            assert HTTP.get(f"{address}/info", headers=headers).status_code == status
            assert classify(address, headers=headers).status_code == status
        assert HTTP.get(f"{address}/health").status_code == 200
        assert HTTP.get(f"{address}/").status_code == 200


def test_a_label_is_explained_with_the_words_and_the_test(client):
    pytest.importorskip("captum")
    [best, *_] = client.post("/predict", json={"inputs": TEXT}).json()
    [explanation] = client.post("/explain", json={"inputs": TEXT}).json()
    assert explanation["heading"].startswith(f"{best['label']} (predicted), probability {best['score']:.3f}")
    assert "".join(piece["text"] for piece in explanation["texts"][0]) == TEXT
    assert "deleting" in explanation["verdict"]
    another_label = min(LABELS, key=lambda name: name == best["label"])
    request = {"inputs": TEXT, "label": another_label, "language": "zh"}
    [in_chinese] = client.post("/explain", json=request).json()
    assert in_chinese["heading"].startswith(f"{another_label}（所解释的标签")


def read(model: OpenedModel, text: str) -> dict:
    answer = ask(model, "predict", {"inputs": text, "read": True}).json()
    assert len(answer["labels"]) == len(LABELS)
    return answer["read"]


def test_a_text_of_8000_characters_says_what_was_read_of_it(checkpoint, model):
    num_characters = len(" ".join(LONG.split()))
    whole = {"characters": len(TEXT), "ranges": [[0, len(TEXT)]]}
    assert read(model, TEXT) == {"tokens": len(TEXT) + 2, "windows": 1, "cut": False, "texts": [whole]}
    [cut] = read(model, LONG)["texts"]
    assert cut["characters"] == num_characters
    [[first, last]] = cut["ranges"]
    assert first == 0
    assert 30 <= last <= 70
    for long, num_ranges in ((LongTexts("head_tail"), 2), (LongTexts("windows", max_windows=3), 1)):
        predictor = load_predictor(checkpoint, 32, long, device="cpu")
        reading = read(OpenedModel(TrainedModel(checkpoint), predictor), LONG)
        ranges = reading["texts"][0]["ranges"]
        assert reading["cut"]
        assert len(ranges) == num_ranges
        assert ranges[0][0] == 0
        assert (ranges[-1][1] == num_characters) == (long.way == "head_tail")
        assert reading["windows"] == (3 if long.way == "windows" else 1)


def test_answers_say_which_labels_a_row_has_the_decision_and_numbers_in_their_unit(model, several, number):
    wanted = [set(prediction.answer) for prediction in several.predictor.predict(as_rows(TEXTS))]
    assert {len(names) for names in wanted} >= {0, 1, 2}
    answers = ask(several, "predict", {"inputs": TEXTS}).json()
    assert [{entry["label"] for entry in answer if entry["chosen"]} for answer in answers] == wanted
    assert all(answer == sorted(answer, key=lambda entry: -entry["score"]) for answer in answers)
    rule = ask(several, "info", None).json()["label_rule"]
    assert rule["thresholds"] == dict(zip(LABELS, [0.51, 0.45, 0.57], strict=True))
    [[best, *_]] = expected(model.predictor, [TEXT])
    for threshold, decision in ((best["score"] - 1e-3, "accept"), (best["score"] + 1e-3, "abstain")):
        sure = replace(model, threshold=threshold)
        assert ask(sure, "predict", {"inputs": TEXT, "read": True}).json()["decision"] == decision
        assert ask(sure, "predict", {"inputs": TEXT}).json()[0] == best
    wanted = [prediction.answer for prediction in number.predictor.predict(as_rows(TEXTS))]
    assert all(0 < abs(value - 50) < 200 for value in wanted)
    answers = ask(number, "predict", {"inputs": TEXTS}).json()
    assert [[entry["label"] for entry in answer] for answer in answers] == [["score"]] * len(TEXTS)
    assert [answer[0]["score"] for answer in answers] == pytest.approx(wanted, rel=1e-5)
    assert ask(number, "info", None).json()["labels"] == ["score"]


def test_a_model_that_gives_no_numbers_is_424_for_its_text_only(checkpoint):
    opened = open_model(checkpoint, CPU)
    with torch.no_grad():
        embeddings = opened.predictor.runtime.model.get_submodule("model.bert.embeddings.word_embeddings")
        embeddings.weight[1] = torch.nan  # [UNK]

    def status(text: str) -> int:
        return classify(address, text).status_code

    with running(opened, ServeOptions(wait=0.2)) as address, ThreadPoolExecutor(3) as pool:
        assert list(pool.map(status, ("今天", "鼎", "真好"))) == [200, 424, 200]


def replace_weights(path: Path) -> None:
    """Replace a file of weights by that of another model, whose labels are the opposite ones."""
    with safe_open(path, "pt") as file:
        weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dictionary
    weights["classifier.weight"] = -weights["classifier.weight"]
    save_file(weights, path, {"format": "pt"})


def test_the_weights_in_memory_are_explained_also_where_the_files_were_replaced(tmp_path, checkpoint):
    pytest.importorskip("captum")
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    with running(open_model(folder, CPU), ServeOptions()) as address:
        replace_weights(folder / "model.safetensors")
        [best, *_] = classify(address, TEXT).json()
        [explanation] = HTTP.post(f"{address}/explain", json={"inputs": TEXT}).json()
    assert explanation["heading"].startswith(f"{best['label']} (predicted), probability {best['score']:.3f}")


def test_a_list_is_one_pair_for_explain(model):
    pytest.importorskip("captum")
    pairs = trained_as(model, text_pair_column="other")
    as_list = ask(pairs, "explain", {"inputs": ["今天真开心", "手机质量不好"]})
    as_object = ask(pairs, "explain", {"inputs": {"text": "今天真开心", "text_pair": "手机质量不好"}})
    assert [len(explanation["texts"]) for explanation in as_list.json()] == [2]
    assert as_list.json() == as_object.json()


def test_two_texts_are_no_single_text_for_explain(model):
    single = trained_as(model, text_pair_column=None)
    refused = ask(single, "explain", {"inputs": ["今天真开心", "手机质量不好"]})
    assert refused.status_code == 422
    assert refused.json()["error"].startswith("inputs, text 1: single texts are needed, as in the model's")
    assert ask(single, "explain", {"inputs": ["今天真开心"]}).status_code == 200
