"""python -m app predict: its options, formats, errors and interruptions: python -m pytest tests/commands"""

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet
from transformers import AutoConfig, BertModel, BertTokenizer

from app.prediction.torch_runtime import load_predictor
from tests.saved_classifier import LABELS, VOCABULARY, as_rows, random_texts, save_checkpoint
from tests.verbs import predict as main

ROOT = Path(__file__).resolve().parents[2]
SHARES = [f"p_{label}" for label in LABELS]
STOPPED = "stopped early; the rows so far are in {part}"


@pytest.fixture
def predict(checkpoint, tmp_path, monkeypatch) -> Callable[..., int]:
    """Return the verb, for the checkpoint, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(["--checkpoint", str(checkpoint), *map(str, words)])


def read_output(path: str | Path) -> list[dict]:
    with Path(path).open(encoding="utf-8", newline="") as file:
        is_csv = Path(path).suffix == ".csv"
        return list(csv.DictReader(file)) if is_csv else [json.loads(line) for line in file]


def probabilities_of(records: list[dict]) -> np.ndarray:
    return np.array([[float(record[name]) for name in SHARES] for record in records])


def write_input(format: str, texts: list[str]) -> str:
    path = Path(f"input.{'txt' if format == 'text' else format}")
    if format == "parquet":
        parquet.write_table(pyarrow.table({"id": list(range(len(texts))), "text": texts}), path)
        return str(path)
    content = "".join(f"{text}\n" for text in texts)
    if format == "json":
        content = json.dumps(texts)
    elif format == "jsonl":
        content = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    elif format != "text":
        content = "text\n" + "".join(f'"{text}"\n' if format == "csv" else f"{text}\n" for text in texts)
    path.write_text(content, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("format", ["text", "csv", "tsv", "json", "jsonl", "parquet"])
@pytest.mark.parametrize("output", ["output.csv", "output.jsonl"])
def test_files_of_every_format(predict, checkpoint, format, output):
    texts = random_texts(12)
    assert predict("--input", write_input(format, texts), "--output", output) == 0
    records = read_output(output)
    own = {"text": ["line", "text"], "json": ["line", "text"], "parquet": ["id", "text"]}
    assert list(records[0]) == [*own.get(format, ["text"]), "label", "probability", *SHARES]
    assert [record["text"] for record in records] == texts
    if format in ("text", "json"):
        assert [int(record["line"]) for record in records] == list(range(1, 13))
    wanted = list(load_predictor(checkpoint, device="cpu").predict(as_rows(texts)))
    assert [record["label"] for record in records] == [one.answer for one in wanted]
    found = probabilities_of(records)
    np.testing.assert_allclose(found, [one.probabilities for one in wanted], atol=1e-5)
    assert [float(record["probability"]) for record in records] == list(found.max(axis=1))
    assert not list(Path().glob("*.part"))


def test_texts_of_the_command_line(predict, capsys, monkeypatch):
    assert predict("今天", "真，好", "--", "--差") == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert [(one["line"], one["text"]) for one in records] == [("1", "今天"), ("2", "真，好"), ("3", "--差")]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert predict("今天") == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == f"{records[0]['label']} {float(records[0]['probability']):.4f}  今天"
    assert all(label in " ".join(lines) for label in LABELS)


def test_standard_input_is_read_as_it_comes(checkpoint):
    """The subprocess sees a pipe, and the output goes to one."""
    command = [sys.executable, "predict.py", "--checkpoint", str(checkpoint), "--input", "-"]
    ended = subprocess.run(
        command, input="今天\n\n真好\n".encode(), cwd=ROOT, capture_output=True, check=True
    )
    records = list(csv.DictReader(io.StringIO(ended.stdout.decode(), newline="")))
    assert [(record["line"], record["text"]) for record in records] == [("1", "今天"), ("3", "真好")]
    assert ended.stderr.decode() == "<stdin>: 2 rows (text '0')\n"


BAD = {
    "lines.txt": (b"\xe4\xbb\x8a\n\n\xff\xe4\xbb\x8a\n\xe5\xa4\xa9\n", "line 3: invalid byte 0xff"),
    "rows.csv": ('text\n今\n""\n天\n'.encode(), "line 3: the text is empty"),
    "rows.tsv": ("text\tid\n今\t1\n好\n天\t2\n".encode(), "line 3: 2 columns are needed"),
    "rows.jsonl": ('{"text": "今"}\n{"text": "\n{"text": "天"}\n'.encode(), "line 2: not a valid JSON value"),
    "rows.json": ('["今", 5, "天"]'.encode(), "element 2: "),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("piped", [False, True])
def test_a_bad_row_stops_or_is_skipped(predict, capsys, monkeypatch, name, piped):
    content, problem = BAD[name]
    Path(name).write_bytes(content)
    format = name.partition(".")[2].replace("txt", "text")
    shown, source = ("<stdin>", "-") if piped else (name, name)
    for on_bad_row, status in (("error", 2), ("skip", 0)):
        with Path(name).open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            options = ["--output", "output.jsonl", "--format", format, "--on_bad_row", on_bad_row]
            assert predict("--input", source, *options) == status
        printed = capsys.readouterr().err
        if on_bad_row == "error":
            assert f"error: {shown}, {problem}" in printed
            assert "--on_bad_row keep" in printed
            assert not Path("output.jsonl").exists()
        else:
            assert f"{shown}: 2 rows" in printed
            assert f", 1 skipped\n  {problem}" in printed
            assert [record["text"] for record in read_output("output.jsonl")] == ["今", "天"]


def only_a_pickle(folder: Path) -> None:
    torch.save({}, folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()


def cut_short(folder: Path) -> None:
    os.truncate(folder / "model.safetensors", 10_000)


def other_tokenizer(folder: Path) -> None:
    tokens = [*VOCABULARY, "鼎"]
    BertTokenizer({token: index for index, token in enumerate(tokens)}).save_pretrained(folder)


def no_head(folder: Path) -> None:
    BertModel(AutoConfig.from_pretrained(folder)).save_pretrained(folder)


FAULTS = [
    (lambda folder: (folder / "config.json").unlink(), "found no config.json, only: "),
    (only_a_pickle, "found no weights, only: config.json, pytorch_model.bin"),
    (cut_short, "could not be loaded"),
    (lambda folder: (folder / "tokenizer.json").unlink(), "found no tokenizer"),
    (other_tokenizer, "must belong together"),
    (no_head, "weights are missing or of the wrong size: classifier."),
    (
        lambda folder: save_checkpoint(folder, problem_type="regression"),
        "must give one number, found 3 label",
    ),
    (lambda folder: save_checkpoint(folder, "xlnet"), "this xlnet model's logits change with padding; use a"),
    (lambda folder: folder.rename(f"{folder}s"), "there is no such folder; did you mean '{folder}s'?"),
]


@pytest.mark.parametrize(("fault", "message"), FAULTS)
def test_a_folder_that_is_no_classifier(tmp_path, capsys, fault, message):
    folder = save_checkpoint(tmp_path / "model")
    fault(folder)
    # The progress bar of save_pretrained
    capsys.readouterr()
    assert main(["--checkpoint", str(folder), "今天"]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message.format(folder=folder) in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("", "texts are needed, or --input FILE"),
        ("今天 --input lines.txt", "not both"),
        ("--inptu lines.txt", "did you mean '--input'?"),
        ("--input lines.txt --text_column text", "plain text has no columns"),
        ("--input lines.xyz", "set --data.format"),
        ("--input line.txt", "did you mean 'lines.txt'?"),
        ("--input lines.txt --output labels.xls", "the name must end in .csv, .xlsx, .jsonl"),
        ("--input lines.txt --output lines.txt", "the name must end in"),
        ("--input lines.txt --output a.parquet", "Parquet is written for Parquet"),
        ("--input lines.txt --data.header maybe", "--data.header must be true or false"),
        ("--input lines.txt --output no/labels.csv", "a new file in a folder is needed; choose another name"),
        ("--input lines.txt --output labels/", "a folder needs --engine"),
        ("--input lines.txt --actors 2", "--actors is for --engine ray"),
        ("--input lines.txt --engine ray", "--engine ray needs files --input and a new folder --output"),
        ("--input lines.txt --data.encoding utf9", "data.encoding must be"),
        ("--input - --format parquet", "cannot be read from a stream"),
        ("今天 --batch_tokens 0", "--batch_tokens must be at least 1"),
        ("今天 ''", "command line, text 2: the text is empty"),
        ("今天 --device abacus", "the device must be auto or what torch"),
        ("今天 --label_column 标签", "--label_column and other settings of labels are for --report"),
        ("今天 --report out", "--report needs a file"),
        ("今天 --output /dev/null", "the name must end in .csv"),
        ("--input . --output one.csv", "error: .: one file is needed, found 2; predict writes those of"),
        ("--input nothing-*.tsv --output one.csv", "there are no files"),
    ],
)
def test_errors_of_the_command_line(predict, capsys, monkeypatch, options, message):
    for name in ("lines.txt", "lines.xyz"):
        Path(name).write_text("今天\n", encoding="utf-8")
    with Path("lines.txt").open(encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdin", file)
        assert predict(*(word.strip("'") for word in options.split())) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error
    assert Path("lines.txt").read_text(encoding="utf-8") == "今天\n"
    assert sorted(os.listdir()) == ["lines.txt", "lines.xyz"]


def test_a_reader_that_leaves_is_no_error(predict, capsys, monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        monkeypatch.setattr(sys, "stdout", gone)
        assert predict("今天") == 141
    assert capsys.readouterr().err == ""


def test_an_interrupted_run_leaves_what_it_has_under_another_name(predict, capsys, caplog):
    """The input is a pipe whose writer interrupts this process while it waits for more."""
    # A shell starts what runs in its background without it
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.mkfifo("pipe")

    def write_and_interrupt() -> None:
        with Path("pipe").open("w", encoding="utf-8") as file:
            file.write("今天\n" * 5000)
            file.flush()
            while not any(part.stat().st_size for part in Path().glob("output.csv.*.part")):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGINT)

    writer = threading.Thread(target=write_and_interrupt)
    writer.start()
    assert predict("--input", "pipe", "--output", "output.csv") == 130
    writer.join()
    assert "interrupted" in capsys.readouterr().err
    assert not Path("output.csv").exists()
    (part,) = Path().absolute().glob("output.csv.*.part")
    assert caplog.messages == [STOPPED.format(part=part)]


@pytest.mark.parametrize("name", ["labels.csv", "labels.jsonl", "labels.xlsx", "linked.csv"])
def test_no_file_is_replaced_whatever_it_is(predict, name, capsys):
    output, other = Path(name), Path("other")
    other.write_bytes(b"of someone else")
    if name == "linked.csv":
        output.symlink_to(other)
    else:
        output.write_bytes(other.read_bytes())
    assert predict("今天", "--output", output) == 2
    assert f"error: --output {output}: a new file in a folder is needed" in capsys.readouterr().err
    assert output.read_bytes() == other.read_bytes() == b"of someone else"


def test_a_disk_that_fills_up_keeps_the_rows_so_far(predict, capsys, caplog):
    """A limit of the size of files stands for the disk."""
    Path("lines.txt").write_text("今天真好\n" * 2000, encoding="utf-8")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
    try:
        status = predict("--input", "lines.txt", "--output", "o.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    (part,) = Path().absolute().glob("o.csv.*.part")
    assert STOPPED.format(part=part) in caplog.text
    assert capsys.readouterr().err.endswith(
        "error: --output o.csv: cannot be written: File too large; free space on the disk and run it again\n"
    )
    assert status == 1
    assert part.stat().st_size == 4096
    assert not Path("o.csv").exists()


def test_help_lists_every_default_without_torch():
    code = (
        "import sys\nfrom app.commands import run_verb\n"
        "try:\n    run_verb('predict', ['--help'])\nfinally:\n    print('torch' in sys.modules)"
    )
    ended = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    text = ended.stdout.decode()
    assert text.endswith("False\n")
    options = text[text.index("options:") :]
    assert options.count("(default") == options.count("\n  --") == 15
