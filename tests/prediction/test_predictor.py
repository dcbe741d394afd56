"""Predictions, and what is kept beside them."""

import csv
import io
import json
import os
import shutil
import sys
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow
import pytest
import torch
from pyarrow import parquet

from app.checkpoints.model_record import add_finish
from app.data.read import ReadOptions
from app.data.row_reader import open_rows
from app.errors import InputError, TrainingError
from app.prediction import excel_writer
from app.prediction import output as output_module
from app.prediction.predictor import Tokens
from app.prediction.sources import open_file
from app.prediction.torch_runtime import TorchRuntime, load_predictor
from app.prediction.trained_model import TrainedModel, choose_run
from tests.multi_label_runs import read_predictions, values_of
from tests.saved_classifier import LABELS, VOCABULARY, as_rows, of_pipeline, random_texts, save_checkpoint
from tests.tiny import CountCasts, tiny_model, token_rows
from tests.verbs import predict as main


@pytest.mark.parametrize("architecture", ["bert", "distilbert"])
@pytest.mark.parametrize("has_pairs", [False, True])
def test_predictions_are_those_of_transformers_in_the_order_of_the_rows(tmp_path, architecture, has_pairs):
    folder = save_checkpoint(tmp_path, architecture)
    texts = random_texts(40)
    rows = as_rows(texts)
    inputs = texts
    if has_pairs:
        rows = as_rows(texts, texts[::-1])
        inputs = [{"text": row.text, "text_pair": row.pair} for row in rows]
    predictor = load_predictor(folder, device="cpu", batch_tokens=200)
    assert predictor.runtime.layout.packed == (architecture == "bert")
    predictions = list(predictor.predict(rows, chunk_rows=16))
    expected = of_pipeline(folder, inputs)
    predicted_rows, answers, probabilities = zip(*predictions, strict=True)
    assert list(predicted_rows) == rows
    assert answers == tuple(LABELS[label] for label in expected.argmax(axis=1))
    assert np.ptp(expected, axis=0).max() > 0.1
    np.testing.assert_allclose(probabilities, expected, atol=1e-5)


def test_rows_are_read_a_chunk_at_a_time(checkpoint):
    taken = []
    batches = []

    def rows():
        for row in as_rows(random_texts(25)):
            taken.append(row.line)
            yield row

    predictor = load_predictor(checkpoint, device="cpu")
    predictions = predictor.predict(rows(), chunk_rows=10, on_batch=batches.append)
    assert next(predictions).row.line == 1
    assert len(taken) == sum(batches) == 10
    assert [prediction.row.line for prediction in predictions] == list(range(2, 26))


def test_bf16_is_near_fp32(checkpoint):
    logits = {}
    for precision in ("fp32", "bf16"):
        predictor = load_predictor(checkpoint, device="cpu", precision=precision)
        tokens = predictor.tokenize(as_rows(random_texts(20)))
        logits[precision] = predictor.logits(tokens)
    difference = np.abs(logits["fp32"] - logits["bf16"]).max()
    assert 0 < difference < 0.2


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_logits_that_are_not_finite_name_the_row(checkpoint, value, precision):
    """Only rows that have the character 鼎, which is [UNK], are not finite; the chunk before them is fine."""
    predictor = load_predictor(checkpoint, device="cpu", precision=precision)
    embeddings = predictor.runtime.model.get_submodule("model.bert.embeddings.word_embeddings").weight
    with torch.no_grad():
        embeddings[VOCABULARY.index("[UNK]")] = value
    predictions = predictor.predict(as_rows([*["今天"] * 3, "好鼎", "真好", "鼎"]), chunk_rows=3)
    assert [next(predictions).row.line for _ in range(3)] == [1, 2, 3]
    with pytest.raises(TrainingError) as error:
        next(predictions)
    remedy = ", or set --precision fp32" if precision == "bf16" else ""
    assert str(error.value) == (
        "the model's logits must be finite numbers, found nan, nan, nan for row 4: '好鼎'; its "
        f"weights are damaged or too large, choose another checkpoint{remedy}"
    )


def add_run(folder: Path, age: int, task: str = "single_label") -> None:
    """Make the folder of a finished run, as far as the choice looks at it."""
    folder.mkdir()
    (folder / "model.safetensors").touch()
    (folder / "report.json").write_text("{}")
    (folder / "config.yaml").write_text(f"data: {{task: {task}}}")
    time = 1_790_000_000 - age
    os.utime(folder / "report.json", (time, time))


def test_the_newest_finished_classifier_is_chosen(tmp_path):
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "model.safetensors").touch()
    with pytest.raises(InputError, match="there is no finished run"):
        choose_run(tmp_path)
    add_run(tmp_path / "without-model", 0)
    (tmp_path / "without-model" / "model.safetensors").unlink()
    # It predicts hidden words, not labels
    add_run(tmp_path / "pretraining", 1, task="masked_language_modelling")
    for name, age in (("new", 2), ("old", 3)):
        add_run(tmp_path / name, age)
    assert choose_run(tmp_path) == tmp_path / "new"
    # A copy of an older run is not newer, but where its history cannot be read
    for name in ("old", "new"):
        starts = [{"started": "2026-01-01T08:00:00+08:00"}]
        (tmp_path / name / "run_history.json").write_text(json.dumps({"starts": starts}))
        add_finish(tmp_path / name)
    shutil.copytree(tmp_path / "old", tmp_path / "backup")
    (tmp_path / "backup" / "report.json").touch()
    assert choose_run(tmp_path) == tmp_path / "new"
    (tmp_path / "backup" / "run_history.json").write_text("[")
    assert choose_run(tmp_path) == tmp_path / "backup"


ADDED = ["probability", *(f"p_{label}" for label in LABELS)]
CSV = '编号,内容,时间,label\n007,今天真开心,2026-01-05,a\n008," ","1,5",b\n9,"真\n好",,c\n'
NEEDS_OPENPYXL = "needs openpyxl: pip install -r requirements/dev.txt"
NEEDS_EXCEL = "needs the packages of Excel files: pip install -r requirements/excel.txt"


@pytest.fixture
def predict(tmp_path, checkpoint, monkeypatch):
    """Return a function that predicts an input of a name, and returns its rows; the content of the input is
    written first, where it is given. `-` is standard input, from the file posts.jsonl."""
    monkeypatch.chdir(tmp_path)

    def run(source: str, output: str, *options: str, content: str | bytes = b"", status: int = 0):
        if output.endswith(".xlsx"):
            pytest.importorskip("xlsxwriter", reason=NEEDS_EXCEL)
        path = Path(source)
        if source == "-":
            path = Path("posts.jsonl")
        if isinstance(content, str):
            content = content.encode()
        if content:
            path.write_bytes(content)
        files = ["--input", source, "--output", output]
        with path.open(encoding="utf-8") as file:
            monkeypatch.setattr(sys, "stdin", file)
            assert main(["--checkpoint", str(checkpoint), "--device", "cpu", *files, *options]) == status
        if status or output.endswith(".xlsx"):
            return []
        if output.endswith(".parquet"):
            return parquet.read_table(output)
        return read_predictions(output)

    return run


def test_all_columns_of_a_csv_file_and_the_reason_of_a_bad_row(predict, capsys):
    rows = predict("posts.csv", "labels.csv", content=CSV)
    header, *input_rows = csv.reader(io.StringIO(CSV))
    assert list(rows[0]) == [*header, "predicted_label", *ADDED, "reason"]
    for row, input_row in zip(rows, input_rows, strict=True):
        assert list(row.values())[: len(header)] == input_row
    assert rows[0]["predicted_label"] in LABELS
    assert rows[2]["predicted_label"] in LABELS
    assert [rows[1][name] for name in ["predicted_label", *ADDED]] == [""] * (2 + len(LABELS))
    reason = "line 3: the text is empty, found ''; fill it in or remove the row"
    assert values_of(rows, "reason") == ["", reason, ""]
    assert "2 rows (text '内容'), 1 without label\n  line 3: the text is empty" in capsys.readouterr().err
    fewer = predict("posts.csv", "fewer.csv", "--on_bad_row", "skip")
    assert values_of(fewer, "predicted_label") == values_of([rows[0], rows[2]], "predicted_label")
    # Without bad rows there are no reasons, and the output can be read again
    first = predict("good.csv", "first.csv", content="id,text\n1,今天\n2,真好\n")
    assert list(first[0]) == ["id", "text", "label", *ADDED]
    again = predict("first.csv", "again.csv")
    assert list(again[0]) == [*first[0], "predicted_label", *(f"predicted_{name}" for name in ADDED)]
    assert values_of(again, "predicted_label") == values_of(first, "label")


GOOD = "今天".encode()
BAD = "天".encode()[:2]
INVALID = {
    "text.csv": (b"text,other\n%b,a\n%b,b\n" % (GOOD, BAD), "text,other"),
    "key.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o%b": 1}\n' % (GOOD, GOOD, BAD), "text,o\ufffd\ufffd"),
    "list.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": ["%b"]}\n' % (GOOD, GOOD, BAD), "text,o"),
    "half.jsonl": (b'{"text": "%b"}\n{"text": "%b", "o": "\\ud800"}\n' % (GOOD, GOOD), "text,o"),
}


@pytest.mark.parametrize("name", INVALID)
def test_bytes_that_are_no_characters_are_replaced(predict, name):
    content, names = INVALID[name]
    for output in ("o.csv", "o.jsonl"):
        first, second = predict(name, output, content=content)
        assert first["label"] in LABELS
        assert (second["label"] in LABELS) is (name != "text.csv")
        assert "\ufffd" in Path(output).read_text(encoding="utf-8")
    assert Path("o.csv").read_text(encoding="utf-8-sig").startswith(f"{names},label")


def test_columns_without_names_and_columns_of_one_name(predict):
    content = "7\t今天\tx\n8\n9\t真好\tz\n10\ta\tb\tc\td\n"
    rows = predict("rows.tsv", "labels.csv", "--text_column", "1", content=content)
    assert list(rows[0])[:3] == ["column_0", "text", "column_2"]
    cells = [list(row.values())[:3] for row in rows]
    assert cells == [["7", "今天", "x"], ["8", "", ""], ["9", "真好", "z"], ["10", "a", "b\tc\td"]]
    assert rows[3]["reason"].startswith("line 4: 3 columns are needed as in the first row, found 5")
    [row] = predict("twice.csv", "twice.jsonl", content="id,id,text\n1,2,今天\n")
    assert (row["id"], row["id_2"], row["text"]) == ("1", "2", "今天")
    [row] = predict("again.csv", "again.jsonl", content="label,predicted_label,text\na,b,今天\n")
    assert list(row)[:4] == ["label", "predicted_label", "text", "predicted_label_2"]


LINES = [
    {"id": 1, "text": "今天", "likes": [1, 2], "ok": True},
    {"text": "真好", "id": 2.5, "user": {"name": "张"}, "label": "old"},
    {"id": None, "text": ""},
]


def test_objects_keep_their_keys_and_types(predict, capsys):
    content = "\n".join([*map(json.dumps, LINES), "{not JSON"])
    for source in ("posts.jsonl", "-"):
        rows = predict(source, f"labels{source}.jsonl", "--format", "jsonl", content=content)
        for row, line in zip(rows, LINES, strict=False):
            assert list(row.items())[: len(line)] == list(line.items())
        for row in rows[:2]:
            assert row["predicted_label"] in LABELS
            assert row["reason"] is None
        assert values_of(rows[2:], "predicted_label") == [None, None]
        assert rows[2]["reason"].startswith("line 3:")
        assert rows[3]["reason"].startswith("line 4:")
        assert len(rows) == 4
    table = predict("posts.jsonl", "labels.csv")
    assert list(table[0])[:6] == ["id", "text", "likes", "ok", "user", "label"]
    assert values_of(table, "likes") == ["[1, 2]", "", "", ""]
    assert (table[0]["ok"], table[1]["user"]) == ("true", '{"name": "张"}')
    # A key that comes late in a stream is an error
    content = "\n".join(map(json.dumps, [*[{"text": "今天"}] * 2100, {"text": "真好", "late": 1}]))
    predict("-", "late.csv", "--format", "jsonl", content=content, status=2)
    rule = "line 2101: the first rows of a stream have all columns, found the key late"
    assert rule in capsys.readouterr().err
    assert not Path("late.csv").exists()


def test_parquet_keeps_its_types(predict):
    count = 2200
    table = pyarrow.table(
        {
            "id": pyarrow.array(range(count), pyarrow.uint64()),
            "price": pyarrow.array([Decimal("1.10")] * count, pyarrow.decimal128(9, 2)),
            "when": pyarrow.array([datetime(2026, 1, 5, tzinfo=UTC)] * count, pyarrow.timestamp("ns", "UTC")),
            "text": [*["今天"] * 2100, " ", *["今天"] * 99],
            "label": pyarrow.array([["a"], None] * (count // 2)),
        },
    ).replace_schema_metadata({"made by": "a test"})
    parquet.write_table(table, "posts.parquet")
    written = predict("posts.parquet", "labels.parquet")
    assert written.select(table.column_names).equals(table)
    assert written.schema.metadata[b"made by"] == b"a test"
    assert written.column_names[5:] == ["predicted_label", *ADDED, "reason"]
    assert written["predicted_label"].null_count == 1
    assert not written["predicted_label"][2100].is_valid
    reason = "row 2101: the text is empty, found ''; fill it in or remove the row"
    assert written["reason"][2100].as_py() == reason
    fewer = predict("posts.parquet", "fewer.parquet", "--on_bad_row", "skip")
    assert fewer["id"].to_pylist() == [*range(2100), *range(2101, count)]
    rows = predict("posts.parquet", "labels.jsonl")
    assert (rows[1]["id"], rows[1]["price"], rows[1]["label"]) == (1, "1.10", None)
    assert rows[0]["when"].startswith("2026-01-05T00:00:00")


def test_excel_keeps_numbers_and_dates_and_texts_are_text_cells(predict):
    openpyxl = pytest.importorskip("openpyxl", reason=NEEDS_OPENPYXL)
    book = openpyxl.Workbook()
    day = datetime(2026, 1, 5, 8, 30)
    rows = [["编号", "内容", "时间", "分", None, "公式", "长号"], [7, "今天", day, 4.5, "旁", "=1+1", 10**15]]
    rows.append([8, *[None] * 6])
    for row in rows:
        book.active.append(row)
    book.save("posts.xlsx")
    predict("posts.xlsx", "labels.xlsx", "--text_column", "内容")
    written = list(openpyxl.load_workbook("labels.xlsx").active.iter_rows())
    # Nobody has computed the formula; Excel has no more than 15 digits
    rows[0][4] = ""
    rows[1][5:] = [None, str(10**15)]
    assert [[cell.value for cell in row[:7]] for row in written] == rows
    assert (written[0][7].value, written[0][-1].value) == ("label", "reason")
    assert written[2][-1].value.startswith("row 3: the text is empty, found null")
    assert predict("posts.xlsx", "labels.csv", "--text_column", "内容")[0]["时间"] == "2026-01-05 08:30:00"


def test_a_sheet_is_read_again_as_it_was_and_what_does_not_fit_is_told(predict, monkeypatch, caplog, capsys):
    texts = ["今天真开心", "=1+1", "\x1b[2J\x00好", "_x0041_ _x_", "第一行\r\n第二行", "@SUM(A1)", "😀"]
    lines = [json.dumps({"text": text, "pair": "{=A1}", "url": "http://a"}) for text in texts]
    options = ["--text_column", "text", "--text_pair_column", "pair"]
    predict("a.jsonl", "a.xlsx", *options, content="\n".join(lines))
    reading = ReadOptions(text_column="text", text_pair_column="pair", label_column="label")
    openpyxl = pytest.importorskip("openpyxl", reason=NEEDS_OPENPYXL)
    sheet = openpyxl.load_workbook("a.xlsx").active
    assert {cell.data_type for row in sheet.iter_rows() for cell in row} == {"s", "n"}
    rows = list(open_rows("a.xlsx", reading).rows())
    for row, text in zip(rows, texts, strict=True):
        assert row.text == text
        assert row.pair == "{=A1}"
        assert row.label in LABELS
    predict("a.txt", "long.xlsx", content="好" * 40_000)
    assert "An Excel cell holds 32767 characters; cut: 1 longer text" in caplog.text
    monkeypatch.setattr(excel_writer, "MAX_ROWS", 3)
    predict("-", "b.xlsx", "--format", "text", content="好\n" * 3, status=2)
    # A file is refused before anything is written
    monkeypatch.setattr(output_module, "open_output", None)
    predict("b.txt", "b.xlsx", content="好\n\1\n好\n", status=2)
    assert capsys.readouterr().err.count("error: an Excel sheet has 1,048,576 rows and 16,384 columns") == 2


def test_formulas_are_written_as_they_were_read(predict):
    """A quote put before them would make other texts of them; docs/data.md says so."""
    formulas = ["=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", '=HYPERLINK("http://a","b")', "\t=1", "a\r=1"]
    content = "\n".join(json.dumps({"text": text}) for text in formulas)
    assert values_of(predict("a.jsonl", "a.csv", content=content), "text") == formulas


def test_what_people_see_holds_no_control_characters(tmp_path, capsys, monkeypatch):
    """Escape sequences in a text would steer the terminal."""
    names = {0: "=正面", 1: "\x07" + "长" * 99}
    label2id = {name: number for number, name in names.items()}
    folder = save_checkpoint(tmp_path, num_labels=2, id2label=names, label2id=label2id)
    capsys.readouterr()
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(["--checkpoint", str(folder), "--device", "cpu", "\x1b[2J\x00好\x9b31m\u202e"]) == 0
    lines = capsys.readouterr().out
    assert "\\x1b[2J\\x00好\\x9b31m\\u202e" in lines
    assert "\\x07长" in lines
    assert "长" * 20 not in lines
    assert lines.replace("\n", "").isprintable()


# The last one has as many rows as the file before
@pytest.mark.parametrize("change", ["今天,b\n" * 5000, "", "明天,b\n" * 4])
def test_an_input_that_changes_between_its_two_readings_is_an_error(tmp_path, change):
    path = tmp_path / "posts.csv"
    path.write_text("text,other\n" + "今天,a\n" * 5, encoding="utf-8")
    source = open_file(str(path), TrainedModel(tmp_path), {})
    source = source.scanned("keep")
    assert source.scan.num_good == 5
    path.write_text(f"text,other\n今天,a\n{change}", encoding="utf-8")
    with pytest.raises(InputError, match="posts.csv: a data file must not change while it is read"):
        list(source.rows("keep"))


def test_prediction_in_bf16_casts_each_weight_once():
    runtime = TorchRuntime(tiny_model(), None, device="cpu", precision="bf16")
    batch = Tokens(token_rows([5, 9]), None, np.ones(2, np.int64))
    counts = []
    for num_batches in (1, 5):
        with CountCasts(runtime.model) as casts:
            runtime.logits([batch] * num_batches, lambda rows: None)
        counts.append(casts.num_casts)
    assert counts[0] > 0
    assert counts[1] == counts[0]
