"""Exported models give what the original gives, or are refused: python -m pytest tests/export"""

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path

import numpy as np
import pytest
import torch
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from transformers import AutoModelForSequenceClassification

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")

from app.errors import InputError
from app.prediction import onnx_runtime
from app.prediction.onnx_runtime import cuts_off_sums
from app.prediction.open_model import (
    GRAPH,
    RECORD,
    TOKENIZER,
    WEIGHTS,
    ComputeOptions,
    load_exported,
    open_model,
    read_record,
    write_record,
)
from app.prediction.torch_runtime import load_predictor
from app.run import main
from tests import saved_classifier
from tests.multi_label_runs import NAMES, read_predictions, train, write_posts
from tests.saved_classifier import LABELS, as_rows, random_texts, save_checkpoint
from tests.tiny import write_tiny
from tests.verbs import export, predict


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


def test_labels_and_probabilities_are_those_of_torch_and_the_record_says_so(exported):
    checkpoint, folder = exported
    texts = random_texts(40)
    for pairs in (None, texts[::-1]):
        rows = as_rows(texts, pairs)
        wanted = list(load_predictor(checkpoint, device="cpu").predict(rows))
        found = list(load_exported(folder)[0].predict(rows, chunk_rows=16))
        assert [prediction.row for prediction in found] == rows
        assert [prediction.answer for prediction in found] == [prediction.answer for prediction in wanted]
        np.testing.assert_allclose(
            [p.probabilities for p in found], [p.probabilities for p in wanted], atol=1e-5
        )
    record = read_record(exported[1])
    assert (record.labels, record.max_length, record.precision) == (LABELS, 60, "fp32")
    # Not a run's
    assert record.data == {}
    assert record.proof["rows"] == 80
    assert record.proof["flipped"] == 0
    assert 0 < record.proof["largest_logit_difference"] < 1e-3
    assert record.made["from"] == "model"


def test_replaced_and_truncated_weights_do_not_change_a_loaded_model(exported, tmp_path):
    folder = shutil.copytree(exported[1], tmp_path / "copy")
    predictor, _ = load_exported(folder)
    rows = as_rows(random_texts(40))
    wanted = [prediction.probabilities.tolist() for prediction in predictor.predict(rows)]
    with (folder / WEIGHTS).open("r+b") as file:
        file.write(b"\x3f" * 1000)
        file.truncate(2000)
    assert [prediction.probabilities.tolist() for prediction in predictor.predict(rows)] == wanted


# Those of their types are beyond the small vocabulary
NO_IDS = dict.fromkeys(("bos_token_id", "eos_token_id", "cls_token_id", "sep_token_id"))


@pytest.mark.parametrize(
    ("architecture", "config"),
    [
        ("distilbert", {}),
        ("electra", {"embedding_size": 32}),
        ("roberta", {"max_position_embeddings": 64, "type_vocab_size": 1}),
        ("ernie", {"use_task_id": True}),
        ("modernbert", {"local_attention": 8, "layer_types": ["full_attention", "sliding_attention"]}),
        ("modernbert", {"classifier_pooling": "mean", "layer_types": ["full_attention"] * 2}),
        ("qwen3", {"num_key_value_heads": 1, "head_dim": 16}),
    ],
)
def test_other_models(tmp_path, monkeypatch, architecture, config):
    sizes = {"max_position_embeddings": 64} | saved_classifier.SIZES["bert"]
    sizes = saved_classifier.SIZES.get(architecture, sizes) | config
    sizes |= NO_IDS if architecture in ("modernbert", "qwen3") else {}
    monkeypatch.setitem(saved_classifier.SIZES, architecture, sizes)
    checkpoint = save_checkpoint(tmp_path / "model", architecture)
    assert export([str(checkpoint), "--rows", texts_file(tmp_path)]) == 0
    assert read_record(tmp_path / "model-onnx").proof["flipped"] == 0


ROOT = Path(__file__).resolve().parents[2]
ABSENT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}: the image has not got it", name=name)
sys.meta_path.insert(0, Absent())
"""


def image_packages() -> set[str]:
    """Return the names of the packages that the Dockerfile installs by default, with what they need, as far
    as they are installed here."""
    dockerfile = (ROOT / "examples" / "Dockerfile").read_text(encoding="utf-8")
    wanted = re.search(r'^ARG PACKAGES="(.*)"$', dockerfile, re.MULTILINE)[1].split()
    command = dockerfile.split("RUN pip install")[1].split("\n")[0]
    for name in re.findall(r"-r (requirements/\S+\.txt)", command):
        lines = (ROOT / name).read_text(encoding="utf-8").splitlines()
        wanted += [line for line in lines if line and not line.startswith("#")]
    found, waiting = set(), [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        name, extras = canonicalize_name(requirement.name), requirement.extras or {""}
        if name in found:
            continue
        try:
            needed = [Requirement(text) for text in requires(name) or []]
        except PackageNotFoundError:
            # Pip installs it only elsewhere
            continue
        found.add(name)
        for one in needed:
            if not one.marker or any(one.marker.evaluate({"extra": extra}) for extra in extras):
                waiting.append(one)
    return found


def run_in_image(code: str, *arguments: str, home: Path) -> subprocess.CompletedProcess:
    """Run Python code with the image's packages only, and an empty folder for `HOME`; raises where it
    fails."""
    packages, modules = image_packages(), packages_distributions().items()
    absent = {name for name, owners in modules if not packages & set(map(canonicalize_name, owners))}
    # Some libraries behave otherwise where they see that they are tested.
    dropped = {"CI", "GITHUB_ACTIONS", "ORT_DISABLE_TELEMETRY", "MLFLOW_DISABLE_TELEMETRY"}
    kept = {name: value for name, value in os.environ.items() if name not in dropped}
    return subprocess.run(
        [sys.executable, "-c", ABSENT.format(absent=absent) + code, *arguments],
        cwd=ROOT,
        env=kept | {"HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")},
        capture_output=True,
        encoding="utf-8",
        check=True,
    )


def test_predict_and_serve_need_only_the_packages_of_the_image(exported, tmp_path, capsys):
    checkpoint, folder = exported
    source, home = texts_file(tmp_path), tmp_path / "home"
    home.mkdir()
    code = "from app.commands import run_verb\nsys.exit(run_verb('predict'))"
    ended = run_in_image(code, "--checkpoint", str(folder), "--input", source, home=home)
    assert predict(["--checkpoint", str(checkpoint), "--input", source, "--device", "cpu"]) == 0
    lines, wanted = ended.stdout.splitlines(), capsys.readouterr().out.splitlines()
    assert lines[0] == wanted[0]
    assert [line.split(",")[:3] for line in lines] == [line.split(",")[:3] for line in wanted]
    pytest.importorskip("fastapi")
    code = "from app.commands import run_verb\nfrom app.serving import application\n"
    code += "application.uvicorn.Server.run = lambda self, sockets: print('serving')\n"
    code += "print(run_verb('serve'))"
    ended = run_in_image(code, str(folder), "--port", "0", home=home)
    assert ended.stdout.split() == ["serving", "0"]
    assert not list(home.iterdir()), "ONNX Runtime keeps an id of the machine there, for its telemetry"


def test_int8_that_changes_too_much_is_not_written(exported, tmp_path, capsys):
    """With the labels in balance many rows are close calls; the tolerance is a share of rows."""
    checkpoint = shutil.copytree(exported[0], tmp_path / "balanced")
    output, source = tmp_path / "small", texts_file(tmp_path, 200)
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
    record = load_exported(output)[1]
    assert (record.precision, record.made["weight_bits"]) == ("int8", 7 if cuts_off_sums() else 8)
    assert (output / WEIGHTS).stat().st_size < (exported[1] / WEIGHTS).stat().st_size
    assert export([*options, "--tolerance", "1"]) == 2
    assert "a new folder is needed" in capsys.readouterr().err
    assert export(options[:3]) == 2
    assert "found no settings of one; name a file of texts with --rows" in capsys.readouterr().err


@pytest.mark.slow
def test_a_run_is_compared_on_its_own_dev_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_tiny(tmp_path / "rows.tsv", 20, pairs=True)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    config = {
        "data": {"train": "rows.tsv", "text_pair_column": "other", "max_length": 12, "remove_spaces": True},
        "model": {"config": sizes | {"initializer_range": 0.3}},
        "train": {"max_steps": 2, "precision": "fp32", "device": "cpu", "threads": 1},
        "output": {"trackers": []},
    }
    (tmp_path / "tiny.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert main("single", "", ["--config", "tiny.yaml"]) == 0
    run = tmp_path / "checkpoints/tiny-001"
    assert export([str(run)]) == 0
    printed = capsys.readouterr().out
    assert "macro F1 before, after" in printed
    assert "+0.0000 to +0.0000 (95 % interval" in printed
    opened = open_model(tmp_path / "checkpoints/tiny-001-onnx", ComputeOptions())
    assert (opened.has_pairs, opened.remove_spaces, opened.predictor.max_length) == (True, True, 12)
    assert (
        read_record(opened.folder).proof["macro_f1_before"]
        == read_record(opened.folder).proof["macro_f1_after"]
    )
    # A setting of an earlier version
    recorded = run / "config.yaml"
    recorded.write_text(f"{recorded.read_text()}gone: {{key: 1}}\n")
    assert export([str(run), "--precision", "int8", "--tolerance", "1", "--output", "small"]) in (0, 1)
    assert "macro F1 before, after" in capsys.readouterr().out
    (tmp_path / "rows.tsv").unlink()
    assert export([str(run), "--output", "other"]) == 2
    assert "name a file of texts with --rows" in capsys.readouterr().err
    assert not list(tmp_path.glob("other*"))


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
def test_a_damaged_folder(exported, tmp_path, name, content, message):
    """Without content it has as many bytes as before, and other ones."""
    folder = shutil.copytree(exported[1], tmp_path / "model")
    path = folder / name
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content or b"x" * path.stat().st_size)
    with pytest.raises(InputError, match=message):
        open_model(folder, ComputeOptions())


def test_weights_of_8_bits_are_refused_where_sums_are_cut_off(exported, tmp_path, monkeypatch):
    record = read_record(exported[1])
    folder = shutil.copytree(exported[1], tmp_path / "copy")
    monkeypatch.setattr(onnx_runtime, "cuts_off_sums", lambda: True)
    for bits in (7, 8):
        write_record(folder, replace(record, made=record.made | {"weight_bits": bits}))
        if bits == 7:
            assert load_exported(folder)
    with pytest.raises(InputError, match="weights have 8 bits, for CPUs with VNNI.* export again on this"):
        load_exported(folder)


@pytest.fixture(scope="module")
def several(tmp_path_factory) -> tuple[Path, Path]:
    """A run of several labels a row, and its export in fp32."""
    folder = tmp_path_factory.mktemp("labels")
    posts = write_posts(folder / "posts.jsonl")
    train(posts, folder / "run", train__epochs=2, data__test_size=0.2, data__dev_size=0.2)
    assert export([str(folder / "run")]) == 0
    return folder / "run", folder / "run-onnx"


def test_an_export_of_several_labels_predicts_with_the_thresholds_of_the_run(several, tmp_path):
    run, folder = several
    record = read_record(folder)
    assert record.problem_type == "multi_label_classification"
    assert (folder / "decision.json").read_bytes() == (run / "decision.json").read_bytes()
    assert (record.proof["rows"], record.proof["flipped"]) == (30, 0)
    assert record.proof["micro_f1_before"] == record.proof["micro_f1_after"] > 0
    assert record.proof["micro_f1_change"] == [0, 0]
    rows = read_predictions(run / "predictions.csv")
    source, output = tmp_path / "rows.csv", tmp_path / "found.csv"
    source.write_text("text\n" + "".join(f"{row['text']}\n" for row in rows), encoding="utf-8")
    assert predict(["--checkpoint", str(folder), "--input", str(source), "--output", str(output)]) == 0
    found = read_predictions(output)
    assert [row["labels"] for row in found] == [row["predicted"] for row in rows]
    for name in NAMES:
        expected = [float(row[f"p_{name}"]) for row in rows]
        assert [float(row[f"p_{name}"]) for row in found] == pytest.approx(expected, abs=2e-5)


def test_an_export_without_its_thresholds_is_refused(several, tmp_path):
    folder = shutil.copytree(several[1], tmp_path / "model")
    path = folder / "decision.json"
    values = json.loads(path.read_text(encoding="utf-8"))
    del values["thresholds"][NAMES[0]]
    path.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match="what was fitted for the decision is needed"):
        open_model(folder, ComputeOptions())
    path.unlink()
    with pytest.raises(InputError, match=r"decision\.json: the file must be there and have .* found none"):
        open_model(folder, ComputeOptions())
