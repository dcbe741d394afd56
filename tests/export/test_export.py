"""Exported models give what the original gives, or are refused."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession

from app.errors import InputError
from app.export import quantisation
from app.export.faster_graph import FIRST_TOKENS
from app.export.quantisation import quantise
from app.prediction import onnx_runtime
from app.prediction.export_record import GRAPH, RECORD, TOKENIZER, WEIGHTS, ExportRecord, read_record
from app.prediction.onnx_runtime import cuts_off_sums
from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.torch_runtime import load_predictor
from app.runtime.disk import read_json, write_json
from tests.multi_label_runs import NAMES, predict_again, read_predictions, train, write_posts
from tests.processes import ROOT, full_disk
from tests.saved_classifier import LABELS, as_rows, random_texts, save_checkpoint
from tests.verbs import export, predict

CPU = ComputeOptions("cpu")


def texts_file(folder: Path, count: int = 80) -> str:
    path = folder / "texts.txt"
    path.write_text("\n".join(random_texts(count)), encoding="utf-8")
    return str(path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory) -> tuple[Path, Path]:
    """A checkpoint, and its export in fp32."""
    folder = tmp_path_factory.mktemp("bert")
    checkpoint = save_checkpoint(folder / "model")
    assert export([str(checkpoint), "--rows", texts_file(folder)]) == 0
    return checkpoint, folder / "model-onnx"


@pytest.fixture
def copy(exported, tmp_path) -> Path:
    """An export that a test may change."""
    return shutil.copytree(exported[1], tmp_path / "copy")


def check_only_first_tokens_leave_the_last_attention(folder: Path) -> None:
    nodes = onnx.load(folder / GRAPH, load_external_data=False).graph.node
    last = [node for node in nodes if node.op_type == "Attention"][-1]
    chosen = [node.input[0] for node in nodes if node.name.startswith(FIRST_TOKENS)]
    # What attention gives, and what is added to it
    assert len(chosen) == 2
    assert last.output[0] in chosen
    assert "SkipLayerNormalization" not in {node.op_type for node in nodes}


def test_labels_and_probabilities_are_those_of_torch_and_the_record_says_so(exported):
    checkpoint, folder = exported
    texts = random_texts(40)
    for pairs in (None, texts[::-1]):
        rows = as_rows(texts, pairs)
        wanted = list(load_predictor(checkpoint, device="cpu").predict(rows))
        predictions = list(open_model(folder, CPU).predictor.predict(rows, chunk_rows=16))
        assert [prediction.row for prediction in predictions] == rows
        answers = [prediction.answer for prediction in predictions]
        assert answers == [prediction.answer for prediction in wanted]
        probabilities = [prediction.probabilities for prediction in predictions]
        wanted_probabilities = [prediction.probabilities for prediction in wanted]
        np.testing.assert_allclose(probabilities, wanted_probabilities, atol=1e-5)
    record = read_record(folder)
    assert (record.labels, record.max_length, record.precision) == (LABELS, 60, "fp32")
    # Not a run's
    assert record.data == {}
    assert (record.proof["rows"], record.proof["flipped"], record.made["from"]) == (80, 0, "model")
    assert 0 < record.proof["largest_logit_difference"] < 1e-3
    check_only_first_tokens_leave_the_last_attention(folder)


@pytest.mark.parametrize("name", ["model.safetensors", WEIGHTS], ids=["torch", "onnx"])
def test_replaced_and_truncated_weights_do_not_change_a_loaded_model(exported, tmp_path, name):
    folder = shutil.copytree(exported[name == WEIGHTS], tmp_path / "copy")
    predictor = open_model(folder, CPU).predictor
    rows = as_rows(random_texts(40))

    def found() -> list[list[float]]:
        return [prediction.probabilities.tolist() for prediction in predictor.predict(rows)]

    wanted = found()
    # In place, as cp and a full disk do it
    with (folder / name).open("r+b") as file:
        file.seek(-1000, os.SEEK_END)
        file.write(b"\x3f" * 1000)
    assert found() == wanted
    os.truncate(folder / name, 1000)
    assert found() == wanted


# Those of their types are beyond the small vocabulary
NO_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("distilbert", {}),
        ("electra", {"embedding_size": 32}),
        ("roberta", {"type_vocab_size": 1}),
        ("ernie", {"use_task_id": True}),
        ("modernbert", {"local_attention": 8, "layer_types": ["full_attention", "sliding_attention"]}),
        ("modernbert", {"classifier_pooling": "mean", "layer_types": ["full_attention"] * 2}),
        ("qwen3", {"num_key_value_heads": 1, "head_dim": 16}),
    ],
)
def test_other_models(tmp_path, architecture, config):
    ids = NO_IDS if architecture in ("modernbert", "qwen3") else {}
    checkpoint = save_checkpoint(tmp_path / "model", architecture, **config, **ids)
    assert export([str(checkpoint), "--rows", file := texts_file(tmp_path)]) == 0
    proof = read_record(tmp_path / "model-onnx").proof
    assert (proof["flipped"], proof["rows_of"]) == (0, file)
    if architecture in ("electra", "roberta"):
        check_only_first_tokens_leave_the_last_attention(tmp_path / "model-onnx")


def test_a_full_disk_is_one_error_and_leaves_no_folder(exported, tmp_path, capsys):
    output = tmp_path / "out"
    rows = texts_file(tmp_path)
    with full_disk():
        assert export([str(exported[0]), "--rows", rows, "--output", str(output)]) == 1
    assert f"--output {output}: cannot be written: File too large; free space" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["texts.txt"]


# What requirements.txt has and the image of examples/Dockerfile has not
ABSENT = "torch transformers accelerate sklearn jinja2 pandas pyarrow psutil"
RUN_VERB = "from app.commands import run_verb\n"


def test_predict_and_serve_need_only_the_packages_of_the_image(exported, tmp_path, capsys):
    checkpoint, folder = exported
    dockerfile = (ROOT / "examples" / "Dockerfile").read_text(encoding="utf-8")
    assert 'ARG PACKAGES="numpy scipy safetensors tokenizers tqdm joblib babel"' in dockerfile
    assert "${PACKAGES} -r requirements/serve.txt -r requirements/onnx.txt" in dockerfile
    source = texts_file(tmp_path)
    home = tmp_path / "home"
    home.mkdir()
    # Some libraries behave otherwise where they see that they are tested.
    dropped = {"CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY", "OMP_NUM_THREADS"}
    environment = {name: value for name, value in os.environ.items() if name not in dropped}
    environment |= {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}

    def printed(code: str, *words: str) -> str:
        code = f"import sys\nsys.modules.update(dict.fromkeys({ABSENT.split()}))\n{RUN_VERB}{code}"
        command = [sys.executable, "-c", code, *words]
        options = {"cwd": ROOT, "env": environment, "check": True}
        return subprocess.run(command, **options, capture_output=True, encoding="utf-8").stdout

    words = ["--checkpoint", str(folder), "--input", source]
    of_paths = "from app.tasks.tree import Tree; Tree(['甲/乙', '甲/丙'], '/').members; "
    lines = printed(f"{of_paths}sys.exit(run_verb('predict'))", *words).splitlines()
    assert predict(["--checkpoint", str(checkpoint), "--input", source, "--device", "cpu"]) == 0
    wanted = capsys.readouterr().out.splitlines()
    assert lines[0] == wanted[0]
    assert [line.split(",")[:3] for line in lines] == [line.split(",")[:3] for line in wanted]
    # The Chinese of messages is read with Babel
    chinese = printed("from app.words import _, use_language; use_language('zh'); print(_('accuracy'))")
    assert chinese == "准确率\n"
    pytest.importorskip("fastapi")
    code = "import uvicorn\nuvicorn.Server.run = lambda *_, **__: print('serving')\nprint(run_verb('serve'))"
    assert printed(code, str(folder), "--port", "0").split() == ["serving", "0"]
    assert not list(home.iterdir()), "ONNX Runtime keeps an id of the machine there, for its telemetry"


def test_int8_that_changes_too_much_is_not_written(exported, tmp_path, capsys):
    """With the labels in balance many rows are close calls; the tolerance is a share of rows."""
    checkpoint = shutil.copytree(exported[0], tmp_path / "balanced")
    output = tmp_path / "small"
    source = texts_file(tmp_path, 200)
    predictor = load_predictor(checkpoint, device="cpu")
    logits = predictor.logits(predictor.tokenize(as_rows(random_texts(200))))
    model = AutoModelForSequenceClassification.from_pretrained(checkpoint)
    model.classifier.bias.data -= torch.tensor(logits.mean(0))
    model.save_pretrained(checkpoint)
    options = [str(checkpoint), "--precision", "int8", "--output", str(output), "--rows", source]
    assert export([*options, "--tolerance", "0"]) == 1
    printed = capsys.readouterr().err
    assert "changed, allowed is a share of 0; nothing is written" in printed
    assert f"In fp32 it is exact, and larger and slower: python -m app export {checkpoint}\n" in printed
    assert not list(tmp_path.glob("small*"))
    assert export([*options, "--tolerance", "1"]) == 0
    record = read_record(output)
    assert (record.precision, record.made["weight_bits"]) == ("int8", 7 if cuts_off_sums() else 8)
    assert (output / WEIGHTS).stat().st_size < (exported[1] / WEIGHTS).stat().st_size


def run_graph(path: Path, rows: np.ndarray) -> np.ndarray:
    return InferenceSession(str(path), providers=["CPUExecutionProvider"]).run(None, {"x": rows})[0]


def test_outliers_are_computed_apart(tmp_path, monkeypatch):
    """Of a feed-forward layer whose input has one channel, and which has two neurons, far larger than
    the others, and that matter little."""
    generator = np.random.default_rng(0)
    path = tmp_path / "graph.onnx"
    width = 16
    neurons = 64
    arrays = {
        "first": generator.normal(size=(width, neurons)) / 4,
        "bias": generator.normal(size=neurons),
        "second": generator.normal(size=(neurons, width)) / 8,
    }
    arrays["first"][3] /= 100
    arrays["bias"][[5, 40]] = 500
    arrays["second"][[5, 40]] /= 1000
    nodes = [
        helper.make_node("MatMul", ["x", "first"], ["a"]),
        helper.make_node("BiasGelu", ["a", "bias"], ["b"], domain="com.microsoft"),
        helper.make_node("MatMul", ["b", "second"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", width]) for name in "xy"]
    stored = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], stored)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), str(path))
    rows = generator.normal(size=(64, width)).astype(np.float32)
    rows[:, 3] *= 100
    exact = run_graph(path, rows)
    errors = {}
    for count in (0, 4):
        small = shutil.copy(path, tmp_path / "small.onnx")
        quantise(small, [{"x": rows[:32]}], count)
        errors[count] = np.square(run_graph(small, rows) - exact).mean() / exact.var()
    assert errors[4] < 0.001 < 0.1 < errors[0]
    assert sorted(file.name for file in tmp_path.iterdir()) == ["graph.onnx", "small.onnx"]
    # Weights have 7 bits where sums are cut off
    monkeypatch.setattr(quantisation, "cuts_off_sums", lambda: True)
    quantise(path, [{"x": rows}], 4)
    stored = map(numpy_helper.to_array, onnx.load(str(path)).graph.initializer)
    assert max(np.abs(array.astype(int)).max() for array in stored if array.dtype == np.int8) in (63, 64)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (GRAPH, b"", "could not be loaded"),
        (GRAPH, b"x", "bytes, found 1; copy it or export again"),
        (GRAPH, None, "model.onnx: the file must be there and have .* bytes, found none"),
        (WEIGHTS, b"x", "model.onnx.data: the file must .* bytes, found 1"),
        (WEIGHTS, None, "model.onnx.data: the file must be there and .* found none"),
        (TOKENIZER, b"{", "the tokenizer cannot be read"),
        (RECORD, b"{", "cannot be read"),
        (RECORD, b"{}", "cannot be read .*labels"),
    ],
)
def test_a_damaged_folder(copy, name, content, message):
    """With an empty content it has as many bytes as before, and other ones."""
    path = copy / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content or b"x" * path.stat().st_size)
    with pytest.raises(InputError, match=message):
        open_model(copy, CPU)


def change(record: dict, name: str) -> object:
    """Return a value of another type for a field of a record."""
    return 5 if isinstance(record[name], (str, list, dict)) else {"a": "b"}


@pytest.mark.parametrize("name", [field.name for field in fields(ExportRecord)])
def test_a_record_with_a_wrong_type_is_named(copy, name):
    values = read_json(copy / RECORD)
    write_json(copy / RECORD, values | {name: change(values, name)})
    with pytest.raises(InputError, match=rf"export\.json: '{name}' must be .*; export again"):
        open_model(copy, CPU)


@pytest.mark.parametrize("content", [b"", b"5", b"[]", b"[" * 200_000, b"\xff"])
def test_a_record_that_is_no_object_is_named(copy, content):
    (copy / RECORD).write_bytes(content)
    with pytest.raises(InputError, match=r"cannot be read .*export\.json.*; export again"):
        open_model(copy, CPU)


@pytest.mark.parametrize("name", [GRAPH, WEIGHTS, TOKENIZER, "config.json"])
def test_a_bit_that_is_flipped_in_an_export_is_seen(copy, name):
    path = copy / name
    content = bytearray(path.read_bytes())
    content[-len(content) // 3] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match=name):
        open_model(copy, CPU)


def test_another_order_of_labels_is_seen_and_may_be_meant(copy, caplog):
    values = read_json(copy / RECORD)
    values["labels"] = values["labels"][::-1]
    write_json(copy / RECORD, values)
    with pytest.raises(InputError, match=r"export\.json: .*must be as the export wrote it .*write null"):
        open_model(copy, CPU)
    write_json(copy / RECORD, values | {"sha256": None})
    assert open_model(copy, CPU).predictor.task.label_names == LABELS[::-1]
    assert "the SHA-256 of its files is not recorded, so they are not checked" in caplog.text


def test_weights_of_8_bits_are_refused_where_sums_are_cut_off(copy, monkeypatch):
    record = read_record(copy)
    monkeypatch.setattr(onnx_runtime, "cuts_off_sums", lambda: True)
    write_json(copy / RECORD, asdict(replace(record, made=record.made | {"weight_bits": 7})))
    assert open_model(copy, CPU)
    write_json(copy / RECORD, asdict(replace(record, made=record.made | {"weight_bits": 8})))
    with pytest.raises(InputError, match="weights have 8 bits, for CPUs with VNNI.* export again on this"):
        open_model(copy, CPU)


def test_a_run_is_compared_on_its_own_dev_rows_and_its_thresholds_are_kept(tmp_path, capsys):
    run = tmp_path / "run"
    folder = tmp_path / "run-onnx"
    posts = write_posts(tmp_path / "posts.jsonl")
    train(posts, run, train__epochs=2, data__test_size=0.2, data__dev_size=0.2)
    rows = read_predictions(run / "predictions.csv")
    # A setting of an earlier version
    settings = run / "config.yaml"
    settings.write_text(f"{settings.read_text(encoding='utf-8')}gone: {{key: 1}}\n", encoding="utf-8")
    assert export([str(run)]) == 0
    printed = capsys.readouterr().out
    assert "micro F1 before, after" in printed
    assert "+0.0000 to +0.0000 (95 % interval" in printed
    record = read_record(folder)
    path = folder / "decision.json"
    assert record.problem_type == "multi_label_classification"
    assert path.read_bytes() == (run / "decision.json").read_bytes()
    assert (record.proof["rows"], record.proof["flipped"]) == (30, 0)
    assert record.proof["micro_f1_before"] == record.proof["micro_f1_after"] > 0
    assert record.proof["micro_f1_change"] == [0, 0]
    predicted_rows = predict_again(folder, rows, tmp_path / "found.csv")
    assert [row["labels"] for row in predicted_rows] == [row["predicted"] for row in rows]
    for name in NAMES:
        expected = [float(row[f"p_{name}"]) for row in rows]
        assert [float(row[f"p_{name}"]) for row in predicted_rows] == pytest.approx(expected, abs=2e-5)

    values = json.loads(path.read_text(encoding="utf-8"))
    del values["thresholds"][NAMES[0]]
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match="what was fitted for the decision is needed"):
        open_model(folder, CPU)
    path.unlink()
    with pytest.raises(InputError, match=r"decision\.json: the file must be there and have .* found none"):
        open_model(folder, CPU)
    posts.unlink()
    assert export([str(run), "--output", str(tmp_path / "other")]) == 2
    assert "name a file of texts with --rows" in capsys.readouterr().err
    assert not list(tmp_path.glob("other*"))
