"""Several text columns that are read as one: python -m pytest tests/data/test_text_columns.py"""

import csv

import numpy as np
import pandas as pd
import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.read import BadRow, ReadOptions
from app.data.rows import RowReader
from app.data.tokens import RowEncoder, open_store
from app.prediction.open_model import OpenedModel
from chinese_text_classifier import load
from tests.data.test_row_encoder import word_piece
from tests.saved_classifier import save_checkpoint
from tests.verbs import predict

COLUMNS = ["标题", "正文"]
ROWS = [("今天真好", "手机不错"), ("气死我了", " 快递太差"), ("", "喜欢"), ("电影", "")]
JOINED = ["今天真好[SEP]手机不错", "气死我了[SEP]快递太差", "喜欢", "电影"]


@pytest.fixture
def table(tmp_path):
    lines = [f"{number % 2},{title},x,{body}" for number, (title, body) in enumerate(ROWS * 5)]
    (tmp_path / "rows.csv").write_text("\n".join(["label,标题,id,正文", *lines]), encoding="utf-8")
    return str(tmp_path / "rows.csv")


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    folder = save_checkpoint(tmp_path_factory.mktemp("model"))
    (folder / "config.yaml").write_text(f"data: {{text_column: [{', '.join(COLUMNS)}]}}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize("columns", [COLUMNS, [1, 3], [1, "正文"]])
def test_the_tokenizers_separator_stands_between_the_texts(tmp_path, table, tiny_tokenizer, columns):
    sizes = {"dev_size": 0, "test_size": 0}
    data = DataConfig(train=table, text_column=columns, cache_dir=str(tmp_path / "cache"), **sizes)
    found = open_dataset(data).files["train"]
    assert found.columns == "text '标题', '正文', label 'label'; not used: 'id'"
    store = open_store(found, tiny_tokenizer, 64, data.cache_dir)
    assert [store.row(row).tolist() for row in range(4)] == tiny_tokenizer(JOINED)["input_ids"]


def test_a_row_needs_a_text_in_one_column(write):
    path = write("a.jsonl", '{"a": "好", "b": null}\n{"a": " ", "b": ""}\n{"a": "好", "b": 5}\n{"a": "好"}\n')
    rows = list(RowReader(path, ReadOptions(text_column=["a", "b"]), need_label=False).rows())
    assert rows[0].text == "好"
    assert all(isinstance(row, BadRow) for row in rows[1:])
    assert [row.problem.partition(",")[0] for row in rows[1:]] == [
        "the text is empty",
        "the text must be a string",
        "the column 'b' is missing",
    ]


def test_characters_of_tokens_are_those_of_the_given_text():
    text = "好好␞天天向上␞a"
    tokens = RowEncoder(word_piece(), 64).parts_read((text,))[0][0]
    assert "".join(text[token.start : token.end] for token in tokens if token.text == 0) == text


def test_predict_serve_and_python_take_the_same_columns(checkpoint, table, tmp_path, monkeypatch):
    rows_of = pytest.importorskip("app.serving.application", exc_type=ImportError).rows_of
    model, plain = load(checkpoint, device="cpu"), load(save_checkpoint(tmp_path / "plain"), device="cpu")
    expected = plain.predict_proba(JOINED)
    frame = pd.DataFrame(ROWS, columns=COLUMNS).assign(id=1)
    for texts in (frame, frame.to_dict("records"), ROWS):
        np.testing.assert_allclose(model.predict_proba(texts), expected, atol=1e-6)
    opened = OpenedModel(checkpoint, model._opened.predictor, {"text_column": COLUMNS})
    rows = rows_of([dict(zip(COLUMNS, row, strict=True)) for row in ROWS], opened)
    np.testing.assert_allclose(model.predict_proba([row.text for row in rows]), expected, atol=1e-6)
    monkeypatch.chdir(tmp_path)
    words = ["--checkpoint", str(checkpoint), "--device", "cpu", "--input", table]
    words += ["--output", "labels.csv"]
    assert predict(words) == 0
    with open("labels.csv", encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["predicted_label"] for row in found[:4]] == plain.predict(JOINED).tolist()
    assert predict([*words[:-1], "b.csv", "--text_column", "[标题, 正文]"]) == 0
