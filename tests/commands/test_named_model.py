"""How verbs name a model, what they take for a text, and which files they replace."""

import csv
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.commands import run_verb
from tests.multi_label_runs import read_predictions
from tests.processes import full_disk
from tests.saved_classifier import LABELS, random_texts, save_checkpoint
from tests.verbs import explain, export, predict

pytestmark = pytest.mark.usefixtures("empty_folder")
TEXT = "今天真开心，手机质量不好"
NOTHING = "the file exists; choose another name, or replace it with --overwrite"
CPU = ["--device", "cpu"]


@pytest.fixture
def model(checkpoint) -> str:
    """The name of a model in the working folder."""
    shutil.copytree(checkpoint, "checkpoints/one")
    return "checkpoints/one"


@pytest.fixture
def newest(model) -> str:
    """The name of a finished run in the working folder."""
    Path(model, "config.yaml").write_text("data: {task: single_label}\n")
    Path(model, "report.json").write_text("{}")
    return model


def printed_by(capsys, status: int) -> str:
    assert status == 0
    return capsys.readouterr().out


def export_as(name: str, *words: str) -> int:
    Path("lines.txt").write_text("\n".join(random_texts(20)), encoding="utf-8")
    return export([*words, "--rows", "lines.txt", "--output", name])


def test_predict_and_explain_take_the_model_as_first_word_or_as_option_or_the_newest(newest, capsys):
    for verb in (predict, explain):
        if verb is explain:
            pytest.importorskip("captum")
        expected = printed_by(capsys, verb([newest, TEXT, *CPU]))
        forms = [
            ["--checkpoint", newest, TEXT],
            [TEXT, f"--checkpoint={newest}/"],
            [newest, "--checkpoint", newest, TEXT],
            ["--device", "cpu", newest, "--", TEXT],
        ]
        for words in forms:
            assert printed_by(capsys, verb([*words, *(CPU if "--" not in words else [])])) == expected
        assert verb([TEXT, *CPU]) == 0
        captured = capsys.readouterr()
        assert captured.out == expected
        assert captured.err == f"model {newest}\n"
        shutil.copytree(newest, "other", dirs_exist_ok=True)
        assert verb([newest, "--checkpoint", "other", TEXT]) == 2
        assert f"two models are named, {newest} and --checkpoint other" in capsys.readouterr().err


def test_export_takes_the_model_as_word_or_as_option_or_the_newest(newest, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    assert export_as("first", newest) == 0
    assert export_as("second", "--checkpoint", newest) == 0
    capsys.readouterr()
    assert export_as("third") == 0
    assert f"model {newest}\n" in capsys.readouterr().err
    digests = [json.loads(Path(name, "export.json").read_text())["sha256"] for name in ("first", "third")]
    assert digests[0]["tokenizer.json"] == digests[1]["tokenizer.json"]
    assert predict(["first", TEXT]) == predict(["--checkpoint", "second", TEXT]) == 0


@pytest.mark.parametrize("word", ["posts.csv", "posts", "./posts.csv", "checkpoints", "checkpoints/on", "."])
def test_the_name_of_a_file_or_folder_is_no_text_but_after_dashes(model, word, capsys):
    Path("posts").mkdir()
    Path("posts.csv").write_text("text\n今天\n", encoding="utf-8")
    for words in ([model, word], ["--checkpoint", model, word], [model, TEXT, word]):
        assert predict([*words, *CPU]) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert "A text that looks like a name goes after --" in captured.err
    assert predict([model, *CPU, "--", word]) == 0
    captured = capsys.readouterr()
    assert list(csv.DictReader(io.StringIO(captured.out)))[0]["text"] == word
    assert ("is taken as a text" in captured.err) == (word != "checkpoints/on")


def test_a_folder_of_models_names_one_of_them_and_a_wrong_name_the_nearest(model, capsys):
    assert predict(["checkpoints", TEXT]) == 2
    assert f"without a model (there is one in {model})" in capsys.readouterr().err
    assert predict(["checkpoints/onn", TEXT]) == 2
    assert f"did you mean '{model}'?" in capsys.readouterr().err
    assert predict(["checkpoints/onn", "--input", "lines.txt"]) == 2
    assert "checkpoints/onn: a checkpoint must be a folder" in capsys.readouterr().err
    assert predict([TEXT, model]) == 2
    assert "is the folder of a model; name one model, in front of the texts" in capsys.readouterr().err


@pytest.fixture
def standard_input(monkeypatch) -> Iterator[Callable[[bytes], None]]:
    """Return a function that gives the process a pipe with some bytes as standard input."""
    opened = []

    def give(content: bytes) -> None:
        reader, writer = os.pipe()
        os.write(writer, content)
        os.close(writer)
        opened.append(os.fdopen(reader, encoding="utf-8"))
        monkeypatch.setattr(sys, "stdin", opened[-1])

    yield give
    for stream in opened:
        stream.close()


def test_texts_of_a_pipe_are_classified_where_nothing_else_is_named(model, standard_input, capsys):
    standard_input("今天真好\n气死我了\n".encode())
    assert predict([model, *CPU]) == 0
    captured = capsys.readouterr()
    assert [row["text"] for row in csv.DictReader(io.StringIO(captured.out))] == ["今天真好", "气死我了"]
    assert captured.err.startswith("reading texts from standard input\n")
    standard_input("content,id\n今天真好,7\n".encode())
    assert predict([model, *CPU, "--format", "csv", "--output", "labels.csv"]) == 0
    assert read_predictions(Path("labels.csv"))[0]["id"] == "7"
    # A text counts before a pipe, which many programs leave open
    standard_input("气死我了\n".encode())
    assert predict([model, "今天", *CPU]) == 0
    assert "气死我了" not in capsys.readouterr().out


def test_standard_input_that_is_empty_closed_or_a_terminal_is_an_error(model, monkeypatch, capsys):
    with open(os.devnull, encoding="utf-8") as empty:
        monkeypatch.setattr(sys, "stdin", empty)
        assert predict([model]) == 2
    assert "no TEXT and no --input FILE is named, and standard input is empty" in capsys.readouterr().err
    monkeypatch.setattr(sys, "stdin", None)
    assert predict([model]) == 2
    assert "texts are needed, or --input FILE" in capsys.readouterr().err
    assert predict([model, "--input", "-"]) == 2
    assert "standard input is closed" in capsys.readouterr().err
    controller, terminal = os.openpty()
    with os.fdopen(terminal, encoding="utf-8") as seen:
        monkeypatch.setattr(sys, "stdin", seen)
        assert predict([model]) == 2
    os.close(controller)
    assert "texts are needed, or --input FILE" in capsys.readouterr().err


def test_a_pair_of_texts_is_classified_as_a_row_of_a_file_is(model, capsys, monkeypatch):
    pairs = shutil.copytree(model, "pairs")
    columns = "{text_column: sentence1, text_pair_column: sentence2}"
    Path(pairs, "config.yaml").write_text(f"data: {columns}\n")
    Path("pairs.csv").write_text(f"sentence1,sentence2\n{TEXT},快递太差\n", encoding="utf-8")
    assert predict([pairs, "--input", "pairs.csv", *CPU]) == 0
    [expected] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert predict([pairs, TEXT, "--text_pair", "快递太差", *CPU]) == 0
    [row] = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert list(row)[:4] == ["line", "text", "text_pair", "label"]
    assert (row["text"], row["text_pair"]) == (TEXT, "快递太差")
    assert [row[f"p_{label}"] for label in LABELS] == [expected[f"p_{label}"] for label in LABELS]
    assert predict([pairs, TEXT, "--text_pair", "快递太差", "--output", "one.jsonl", *CPU]) == 0
    assert read_predictions(Path("one.jsonl"))[0]["text_pair"] == "快递太差"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert predict([pairs, TEXT, "--text_pair", "快递太差", *CPU]) == 0
    assert f"{TEXT} ⟷ 快递太差" in capsys.readouterr().out
    assert predict([pairs, TEXT]) == 2
    assert "a pair is a TEXT and --text_pair, or a row of a file" in capsys.readouterr().err
    assert predict([pairs, TEXT, "--text_pair", " "]) == 2
    assert "the second text is empty" in capsys.readouterr().err
    single = shutil.copytree(model, "single")
    Path(single, "config.yaml").write_text("data: {text_column: text}\n")
    assert predict([single, TEXT, "--text_pair", "快递太差"]) == 2
    assert "trained on single texts, found pairs" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["labels.csv", "labels.jsonl", "linked.csv"])
def test_predict_replaces_a_file_only_with_overwrite_and_only_by_a_complete_one(model, output, capsys):
    Path("real").mkdir()
    Path("linked.csv").symlink_to("real/labels.csv")
    Path(output).write_text("mine")
    words = [model, "今天", *CPU, "--output", output]
    assert predict(words) == 2
    assert f"error: --output {output}: {NOTHING}\n" == capsys.readouterr().err
    assert Path(output).read_text() == "mine"
    Path("lines.txt").write_text("今天真好\n" * 2000, encoding="utf-8")
    with full_disk(4096):
        assert predict([model, "--input", "lines.txt", *CPU, "--output", output, "--overwrite"]) == 1
    assert Path(output).read_text() == "mine"
    assert predict([*words, "--overwrite"]) == 0
    assert [row["text"] for row in read_predictions(Path(output))] == ["今天"]
    assert Path("linked.csv").is_symlink()
    # Also where there is nothing to replace
    assert predict([*words[:-1], "new.csv", "--overwrite"]) == 0


def test_overwrite_replaces_the_report_in_a_folder_and_nothing_else(model, capsys):
    Path("new.csv").write_text(f"内容,标签\n{TEXT},{LABELS[0]}\n手机,{LABELS[1]}\n", encoding="utf-8")
    words = [model, "--input", "new.csv", "--text_column", "内容", "--label_column", "标签", *CPU]
    assert predict([*words, "--report", "out"]) == 0
    Path("out/notes.txt").write_text("mine")
    before = json.loads(Path("out/report.json").read_text(encoding="utf-8"))
    Path("new.csv").write_text(f"内容,标签\n{TEXT},{LABELS[2]}\n", encoding="utf-8")
    assert predict([*words, "--report", "out"]) == 2
    assert "or replace the report in it with --overwrite" in capsys.readouterr().err
    with full_disk(1000):
        assert predict([*words, "--report", "out", "--overwrite"]) == 1
    assert json.loads(Path("out/report.json").read_text(encoding="utf-8")) == before
    assert predict([*words, "--report", "out", "--overwrite"]) == 0
    assert len(read_predictions(Path("out/predictions.csv"))) == 1
    assert json.loads(Path("out/report.json").read_text(encoding="utf-8")) != before
    assert Path("out/notes.txt").read_text() == "mine"
    # The rows that are read are not replaced by what is made of them
    again = [model, "--input", "out/predictions.csv", "--report", "out", "--overwrite", *CPU]
    assert predict(again) == 2
    assert "this file is read, so it is not replaced" in capsys.readouterr().err
    run = shutil.copytree(model, "run")
    assert predict([*words, "--report", run, "--overwrite"]) == 2
    assert "the report of a run is not replaced" in capsys.readouterr().err


def test_overwrite_replaces_an_export_and_no_other_folder(model, tmp_path, capsys):
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    assert export_as("onnx", model) == 0
    assert export_as("onnx", model) == 2
    assert (
        "this one exists; choose another name, or replace an earlier export with" in capsys.readouterr().err
    )
    first = Path("onnx/export.json").read_bytes()
    # An export that is refused leaves the earlier one
    refused = ["--precision", "int8", "--tolerance", "0"]
    if export_as("onnx", model, "--overwrite", *refused) == 1:
        assert Path("onnx/export.json").read_bytes() == first
    other = save_checkpoint(tmp_path / "other", id2label={0: "a", 1: "b", 2: "c"}, label2id={})
    capsys.readouterr()
    assert export_as("onnx", str(other), "--overwrite") == 0
    assert json.loads(Path("onnx/export.json").read_text())["labels"] == ["a", "b", "c"]
    assert predict(["onnx", TEXT]) == 0
    assert sorted(os.listdir()) == ["checkpoints", "lines.txt", "onnx", "other"]
    Path("onnx/notes.txt").write_text("mine")
    assert export_as("onnx", model, "--overwrite") == 2
    assert "with nothing else in it, found notes.txt" in capsys.readouterr().err
    assert Path("onnx/notes.txt").read_text() == "mine"
    assert export_as("checkpoints", model, "--overwrite") == 2
    assert Path(model).is_dir()


def test_overwrite_replaces_a_page_of_explain(model, capsys):
    pytest.importorskip("captum")
    Path("why.html").write_text("mine")
    words = ["explain", [model, TEXT, "--html", "why.html", *CPU]]
    assert run_verb(*words) == 2
    assert f"--html why.html: {NOTHING}" in capsys.readouterr().err
    assert Path("why.html").read_text() == "mine"
    words[1].append("--overwrite")
    assert run_verb(*words) == 0
    assert "<html" in Path("why.html").read_text(encoding="utf-8")
    assert sorted(os.listdir()) == ["checkpoints", "why.html"]
