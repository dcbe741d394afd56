"""Files, decisions and reports of predict."""

import codecs
import csv
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.special import softmax
from sklearn.metrics import accuracy_score, f1_score, log_loss
from transformers import AutoModel

from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.torch_runtime import load_predictor
from app.report.logits_file import SplitLogits, write_logits
from app.run import main as train
from app.runtime.disk import read_json
from app.tasks import open_task
from tests.multi_label_runs import arguments, read_predictions, values_of
from tests.processes import ROOT, full_disk
from tests.saved_classifier import LABELS, as_rows, of_pipeline, random_texts, save_checkpoint, several_labels
from tests.tiny import SIZES, tiny_lines
from tests.verbs import export
from tests.verbs import predict as main

SHARES = [f"p_{label}" for label in LABELS]
STOPPED = "stopped early; the rows so far are in {part}"
REPORT = ["predictions.csv", "report.html", "report.json", "report.txt"]
TEMPERATURE = 2.5


@pytest.fixture
def predict(checkpoint, tmp_path, monkeypatch) -> Callable[..., int]:
    """Return the verb, for the checkpoint or another `model`, in an empty working folder."""
    monkeypatch.chdir(tmp_path)
    return lambda *words, model=checkpoint: main(
        ["--checkpoint", str(model), "--device", "cpu", *map(str, words)]
    )


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory) -> Path:
    """A checkpoint with a temperature and dev logits, whose predictions are right as often as they say."""
    folder = tmp_path_factory.mktemp("calibrated")
    save_checkpoint(folder, decision={"temperature": TEMPERATURE, "rows": 60})
    generator = np.random.default_rng(0)
    logits = generator.normal(0, 2, (800, 3)).astype(np.float32)
    chances = softmax(logits / TEMPERATURE, axis=1).cumsum(axis=1)
    labels = (generator.random((800, 1)) > chances).sum(axis=1).clip(max=2)
    hashes = generator.integers(0, 1 << 63, 800).astype(np.uint64)
    dev = SplitLogits(np.arange(800), labels, hashes, logits)
    write_logits(folder / "logits.safetensors", {"dev": dev}, open_task("single_label", LABELS), 5)
    return folder


def probabilities_of(records: list[dict]) -> np.ndarray:
    return np.array([[float(record[name]) for name in SHARES] for record in records])


def accuracy_of(folder: Path) -> float:
    return read_json(folder / "report.json")["accuracy"]


def write_texts(texts: list[str]) -> str:
    Path("texts.txt").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")
    return "texts.txt"


@pytest.mark.parametrize("output", ["output.csv", "output.jsonl"])
def test_rows_have_their_line_text_label_and_probabilities(predict, checkpoint, output):
    texts = random_texts(12)
    Path("texts.json").write_text(json.dumps(texts), encoding="utf-8")
    for source in (write_texts(texts), "texts.json"):
        Path(output).unlink(missing_ok=True)
        assert predict("--input", source, "--output", output) == 0
        records = read_predictions(output)
        assert list(records[0]) == ["line", "text", "label", "probability", *SHARES]
        assert values_of(records, "text") == texts
        assert list(map(int, values_of(records, "line"))) == list(range(1, 13))
        predictions = load_predictor(checkpoint, device="cpu").predict(as_rows(texts))
        _rows, answers, expected = zip(*predictions, strict=True)
        assert values_of(records, "label") == list(answers)
        probabilities = probabilities_of(records)
        np.testing.assert_allclose(probabilities, expected, atol=1e-5)
        assert list(map(float, values_of(records, "probability"))) == list(probabilities.max(axis=1))
        assert not list(Path().glob("*.part"))


def test_texts_of_the_command_line(predict, capsys, monkeypatch):
    assert predict("今天", "真，好", "--", "--差") == 0
    records = list(csv.DictReader(io.StringIO(capsys.readouterr().out, newline="")))
    assert values_of(records, "line") == ["1", "2", "3"]
    assert values_of(records, "text") == ["今天", "真，好", "--差"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert predict("今天") == 0
    lines = capsys.readouterr().out.split("\n")
    assert lines[0] == f"{records[0]['label']} {float(records[0]['probability']):.4f}  今天"
    assert all(label in " ".join(lines) for label in LABELS)


@pytest.mark.slow
def test_standard_input_is_read_as_it_comes(checkpoint):
    """The subprocess sees a pipe, and the output goes to one."""
    command = [sys.executable, "predict.py", "--checkpoint", str(checkpoint), "--input", "-"]
    texts = "今天\n\n真好\n".encode()
    ended = subprocess.run(command, input=texts, cwd=ROOT, capture_output=True, check=True)
    records = list(csv.DictReader(io.StringIO(ended.stdout.decode(), newline="")))
    assert values_of(records, "line") == ["1", "3"]
    assert values_of(records, "text") == ["今天", "真好"]
    assert ended.stderr.decode() == "<stdin>: 2 rows (texts without columns)\n"


BAD = {
    "lines.txt": (b"\xe4\xbb\x8a\n\n\xff\xe4\xbb\x8a\n\xe5\xa4\xa9\n", "line 3: invalid byte 0xff"),
    "rows.jsonl": ('{"text": "今"}\n{"text": "\n{"text": "天"}\n'.encode(), "line 2: not a valid JSON value"),
    "rows.json": ('["今", 5, "天"]'.encode(), "element 2: "),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("piped", [False, True])
def test_a_bad_row_stops_or_is_skipped(predict, capsys, monkeypatch, name, piped):
    content, problem = BAD[name]
    Path(name).write_bytes(content)
    source = name
    name_in_messages = name
    if piped:
        source = "-"
        name_in_messages = "<stdin>"
    options = ["--output", "output.jsonl", "--format", name.partition(".")[2].replace("txt", "text")]
    for on_bad_row, status in (("error", 2), ("skip", 0)):
        with Path(name).open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert predict("--input", source, *options, "--on_bad_row", on_bad_row) == status
        printed = capsys.readouterr().err
        if status:
            assert f"error: {name_in_messages}, {problem}" in printed
            assert "--on_bad_row keep" in printed
            assert not Path("output.jsonl").exists()
    assert f"{name_in_messages}: 2 rows" in printed
    assert f", 1 skipped\n  {problem}" in printed
    assert values_of(read_predictions("output.jsonl"), "text") == ["今", "天"]


NO_HEAD = "weights are missing or of the wrong size: classifier."
ONE_LABEL = {"num_labels": 1, "id2label": {0: "负面"}, "label2id": {"负面": 0}}
FAULTS = {
    "found no config.json, only: ": lambda folder: (folder / "config.json").unlink(),
    "found no weights, only: config.json": lambda folder: (folder / "model.safetensors").unlink(),
    "found no tokenizer": lambda folder: (folder / "tokenizer.json").unlink(),
    "must belong together": lambda folder: save_checkpoint(folder, vocab_size=20),
    NO_HEAD: lambda folder: AutoModel.from_pretrained(folder).save_pretrained(folder),
    "choose from two or more labels": lambda folder: save_checkpoint(folder, **ONE_LABEL),
    "one number, found 3 label": lambda folder: save_checkpoint(folder, problem_type="regression"),
    "this xlnet model's logits change with padding; use a": lambda folder: save_checkpoint(folder, "xlnet"),
    "there is no such folder; did you mean '{folder}s'?": lambda folder: folder.rename(f"{folder}s"),
}


@pytest.mark.parametrize("message", FAULTS)
def test_a_folder_that_is_no_classifier(predict, tmp_path, capsys, message):
    folder = save_checkpoint(tmp_path / "model")
    FAULTS[message](folder)
    # The progress bar of save_pretrained
    capsys.readouterr()
    assert predict("今天", model=folder) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("error: ")
    assert message.format(folder=folder) in printed.err
    assert printed.out == ""


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


def test_a_disk_that_fills_up_keeps_the_rows_so_far(predict, capsys, caplog):
    Path("lines.txt").write_text("今天真好\n" * 2000, encoding="utf-8")
    with full_disk(4096):
        assert predict("--input", "lines.txt", "--output", "o.csv") == 1
    (part,) = Path().absolute().glob("o.csv.*.part")
    assert STOPPED.format(part=part) in caplog.text
    problem = "cannot be written: File too large; free space on the disk and run it again"
    assert capsys.readouterr().err.endswith(f"error: --output o.csv: {problem}\n")
    assert part.stat().st_size == 4096
    assert not Path("o.csv").exists()


@pytest.fixture
def decided(predict, capsys) -> Callable[..., tuple[list[dict], str]]:
    """Return a function that gives the rows that predict writes for 40 texts, and what it says."""

    def rows(model: Path, *options: str) -> tuple[list[dict], str]:
        assert predict("--input", write_texts(random_texts(40)), *options, model=model) == 0
        printed = capsys.readouterr()
        return list(csv.DictReader(io.StringIO(printed.out, newline=""))), printed.err

    return rows


def test_probabilities_are_those_of_the_run_s_temperature(calibrated, checkpoint, decided):
    calibrated_rows, _messages = decided(calibrated)
    plain_rows, _messages = decided(checkpoint)
    probabilities = probabilities_of(calibrated_rows)
    plain = probabilities_of(plain_rows)
    expected = softmax(np.log(np.maximum(plain, 1e-12)) / TEMPERATURE, axis=1)
    # Six digits are enough for the rest
    sure = plain.min(axis=1) > 1e-3
    assert sure.sum() > 5
    np.testing.assert_allclose(probabilities[sure], expected[sure], atol=1e-3)
    assert probabilities.argmax(axis=1).tolist() == plain.argmax(axis=1).tolist()


def test_a_threshold_decides_rows(calibrated, decided, predict, capsys):
    rows, _ = decided(calibrated, "--threshold", "0.5")
    assert list(rows[0]) == ["line", "text", "label", "probability", "decision", "margin", *SHARES]
    assert set(values_of(rows, "decision")) == {"accept", "abstain"}
    for row, chances in zip(rows, np.sort(probabilities_of(rows)), strict=True):
        assert (row["decision"] == "accept") == (float(row["probability"]) >= 0.5)
        assert float(row["margin"]) == pytest.approx(chances[-1] - chances[-2], abs=2e-6)
    assert predict("今天", "--threshold", "0.5", "--output", "one.jsonl", model=calibrated) == 0
    [record] = read_predictions("one.jsonl")
    assert record["decision"] == ("accept" if record["probability"] >= 0.5 else "abstain")
    assert 0 <= record["margin"] <= 1
    rows, messages = decided(calibrated, "--threshold", "precision=0.6")
    threshold = float(messages.split("threshold ")[1].split()[0])
    assert "for precision 0.6, chosen on half of dev; on the " in messages
    assert 0.4 < threshold < 0.7
    for row in rows:
        is_sure = float(row["probability"]) >= threshold
        assert (row["decision"] == "accept") == is_sure
    assert predict("--threshold", "precision=0.99999", "今天", model=calibrated) == 2
    assert "cannot be reached on at least 20 of the" in capsys.readouterr().err


def test_several_labels_are_as_sure_as_the_least_certain_one(decided, predict, capsys, monkeypatch):
    several = save_checkpoint(Path("several"), **several_labels(0.4, 0.5, 0.6))
    plain_rows, _messages = decided(several)
    rows, _messages = decided(several, "--threshold", "0.55")
    assert list(rows[0]) == ["line", "text", "labels", "decision", "confidence", *SHARES]
    assert values_of(rows, "labels") == values_of(plain_rows, "labels")
    assert set(values_of(rows, "decision")) == {"accept", "abstain"}
    for row in rows:
        sure = []
        for name, threshold in zip(LABELS, (0.4, 0.5, 0.6), strict=True):
            chance = float(row[f"p_{name}"])
            odds = chance / (1 - chance) * (1 - threshold) / threshold
            if name in json.loads(row["labels"]):
                sure.append(odds / (1 + odds))
            else:
                sure.append(1 / (1 + odds))
        assert float(row["confidence"]) == pytest.approx(min(sure), abs=1e-4)
        assert (row["decision"] == "accept") == (float(row["confidence"]) >= 0.55)
    assert predict("今天真开心", "--threshold", "precision=0.6", model=several) == 2
    assert "precision=P needs a model of one label a row, and the logits" in capsys.readouterr().err
    assert predict("今天", "--threshold", "0.5", "--output", "one.jsonl", model=several) == 0
    [record] = read_predictions("one.jsonl")
    assert record["decision"] == ("accept" if record["confidence"] >= 0.5 else "abstain")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert predict("今天", "--threshold", "0.5", model=several) == 0
    assert record["decision"] in capsys.readouterr().out.split("\n")[0]


@pytest.fixture
def report(predict, calibrated) -> Callable[..., int]:
    """Return a function that writes rows with labels and reports on them in a folder."""

    def call(texts: list[str], labels: list[str], out: str = "out") -> int:
        with Path("new.csv").open("w", encoding="utf-8", newline="") as file:
            csv.writer(file).writerows([["内容", "标签"], *zip(texts, labels, strict=True)])
        words = ["--label_column", "标签", "--text_column", "内容"]
        return predict("--input", "new.csv", "--report", out, *words, model=calibrated)

    return call


def test_a_report_is_about_the_rows_of_the_file(report, calibrated, capsys, monkeypatch):
    texts = random_texts(60)
    out = Path("out")
    true = np.random.default_rng(0).integers(0, 3, 60)
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert report(texts, [LABELS[number] for number in true]) == 0
    assert sorted(os.listdir(out)) == REPORT
    printed = capsys.readouterr()
    assert printed.out == (out / "report.txt").read_text(encoding="utf-8")
    assert "new.csv: 60 rows" in printed.err
    probabilities = of_pipeline(calibrated, texts)
    written = read_json(out / "report.json")
    predicted = probabilities.argmax(1)
    assert written["accuracy"] == pytest.approx(accuracy_score(true, predicted))
    assert written["macro_f1"] == pytest.approx(f1_score(true, predicted, average="macro"))
    loss = log_loss(true, probabilities / probabilities.sum(1, keepdims=True), labels=range(3))
    assert written["loss"] == pytest.approx(loss, rel=1e-3)
    assert written["calibration"]["before"]["loss"] == pytest.approx(written["loss"])
    assert written["calibration"]["rows"] == 60
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "评测报告" in page
    assert re.search(r"new\.csv 第 \d+ 行", page)
    assert "logits.safetensors" not in page, "a report on a file has none"
    assert (out / "predictions.csv").read_bytes().startswith(codecs.BOM_UTF8)
    rows = read_predictions(out / "predictions.csv")
    assert values_of(rows, "predicted") == [LABELS[label] for label in predicted]
    assert values_of(rows, "label") == [LABELS[label] for label in true]


def test_a_report_that_failed_leaves_nothing_behind(report, capsys):
    assert report(random_texts(2), [LABELS[0], "未知"]) == 2
    assert os.listdir("out") == []
    # What `kill -9` leaves
    Path("out/.unfinished").mkdir()
    Path("out/.unfinished/predictions.csv").touch()
    assert report(random_texts(2), LABELS[:2]) == 0
    assert sorted(os.listdir("out")) == REPORT
    with full_disk(1000):
        assert report(random_texts(2), LABELS[:2], out="other") == 1
    assert "--report other: cannot be written: File too large" in capsys.readouterr().err
    assert os.listdir("other") == []


TITLES = [["的一", *line.split("\t")] for line in tiny_lines(20)[1:]]


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run on titles, which tell the label, beside a column of a usual name, in a CSV file in GB18030."""
    folder = tmp_path_factory.mktemp("titles")
    rows = folder / "rows.txt"
    output = folder / "checkpoints" / "run"
    with rows.open("w", encoding="gb18030", newline="") as file:
        csv.writer(file).writerows([["content", "title", "label"], *TITLES])
    titles = {"format": "csv", "text_column": "title", "encoding": "gb18030", "remove_spaces": True}
    titles |= {"task": "single_label", "test": rows, "max_length": 16}
    settings = {f"data__{name}": value for name, value in titles.items()}
    words = arguments(rows, output, SIZES | {"initializer_range": 0.2}, **settings, train__epochs=20)
    assert train("single", "", words) == 0
    return output


def test_a_file_is_read_as_by_the_newest_run_or_its_export(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(run.parents[1])
    options = ["--device", "cpu", "--input", "rows.txt"]
    assert main([*options, "--report", str(tmp_path / "out")]) == 0
    assert accuracy_of(tmp_path / "out") == accuracy_of(run)
    assert "model checkpoints/run\n" in capsys.readouterr().err
    assert main([*options, "--output", str(tmp_path / "labels.csv")]) == 0
    assert values_of(read_predictions(tmp_path / "labels.csv"), "title") == [row[1] for row in TITLES]
    pytest.importorskip("onnxruntime")
    output = tmp_path / "onnx"
    assert export([str(run), "--output", str(output), "--rows", "rows.txt"]) == 0
    options = ["--checkpoint", str(output), "--input", "rows.txt", "--report", str(tmp_path / "again")]
    assert main(options) == 0
    assert accuracy_of(tmp_path / "again") == accuracy_of(run)
    opened = open_model(output, ComputeOptions())
    assert (opened.trained.has_pairs, opened.predictor.max_length) == (False, 16)
    recorded = {"text_column": "title", "encoding": "gb18030", "train": "rows.txt", "remove_spaces": True}
    assert opened.trained.settings().items() >= recorded.items()


def test_a_file_of_other_columns_than_the_run_s_is_an_error(predict, run, capsys):
    Path("other.csv").write_text("content,label\n今天,正面\n", encoding="utf-8")
    options = ["--input", "other.csv", "--data.encoding", "utf-8"]
    titles = run.parents[1] / "rows.txt"
    assert predict(*options, "--text_column", "content", model=run) == 0
    pairs = shutil.copytree(run, "pairs")
    settings = (run / "config.yaml").read_text(encoding="utf-8")
    settings = settings.replace("text_pair_column: null", "text_pair_column: content")
    Path("pairs/config.yaml").write_text(settings, encoding="utf-8")
    Path("lines.txt").write_text("今天\n", encoding="gb18030")
    capsys.readouterr()
    for words, model, message in [
        (options, run, "there is no text column 'title'"),
        (["今天"], pairs, "the model was trained on pairs of texts, found single texts"),
        (["--input", "lines.txt", "--format", "text"], pairs, "on pairs of texts, found single texts"),
        (["--input", titles, "--text_pair_column", "content"], run, "on single texts, found pairs"),
    ]:
        assert predict(*words, model=model) == 2
        assert message in capsys.readouterr().err
    assert predict("--input", titles, model=pairs) == 0
    assert "text 'title', second text 'content'" in capsys.readouterr().err


def test_a_text_that_is_a_file_names_the_option_for_files(predict, capsys):
    Path("posts.csv").write_text("text\n今天\n", encoding="utf-8")
    assert predict("posts.csv") == 2
    assert "there is a file" in capsys.readouterr().err


def test_integers_are_no_ids_of_labels_that_no_setting_named(report, capsys):
    """Sorted names have another order than the numbers of a person, so the report would be inverted."""
    assert report(random_texts(2), ["0", "1"]) == 2
    assert "the model has no label '0'" in capsys.readouterr().err
