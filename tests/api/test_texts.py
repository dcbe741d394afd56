"""Texts in lists, columns and data frames: what `Model.predict` takes, and which columns it reads."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from app import load
from app.api.texts import rows_of
from app.errors import InputError
from app.prediction.trained_model import TextColumns
from tests.saved_classifier import save_checkpoint

TITLES = ["今天真好", "气死我了", "电影"]
BODIES = ["手机不错", "快递太差", "好看"]
QUESTIONS = ["好吗", "慢吗", "喜欢吗"]
TABLE = {"id": [1, 2, 3], "标题": TITLES, "正文": BODIES, "问题": QUESTIONS}


def polars_frame(columns: dict) -> object:
    return pytest.importorskip("polars").DataFrame(columns)


MAKERS = {
    "pandas": pd.DataFrame,
    "arrow table": pa.table,
    "arrow record batch": pa.record_batch,
    "arrow structs": lambda columns: pa.array(pd.DataFrame(columns).to_dict("records")),
    "dictionaries": lambda columns: pd.DataFrame(columns).to_dict("records"),
    "polars": polars_frame,
}


def texts_of(values: object, columns: TextColumns | None = None) -> list[tuple]:
    return [(row.text, row.pair) for row in rows_of(values, columns)]


@pytest.mark.parametrize(
    "column",
    [
        pa.array(TITLES),
        pa.chunked_array([TITLES[:1], TITLES[1:]]),
        pa.array(TITLES).dictionary_encode(),
        pa.array(TITLES, pa.large_string()),
        list(pa.array(TITLES)),
        pd.Series(TITLES, dtype="category"),
        np.array(TITLES),
        dict(enumerate(TITLES)).values(),
        pa.table({"any name": TITLES}),
        pd.DataFrame({"any name": TITLES}),
    ],
    ids=lambda column: type(column).__name__,
)
def test_a_column_of_any_library_has_texts(column):
    assert texts_of(column) == [(title, None) for title in TITLES]


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_table_has_the_columns_of_the_model_among_others(make):
    table = make(TABLE)
    assert texts_of(table, TextColumns(("正文",))) == [(body, None) for body in BODIES]
    pairs = list(zip(BODIES, QUESTIONS, strict=True))
    assert texts_of(table, TextColumns(("正文",), "问题")) == pairs


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_several_columns_are_one_text_also_of_pairs(make):
    table = make(TABLE)
    joined = [f"{title}\u241e{body}" for title, body in zip(TITLES, BODIES, strict=True)]
    assert texts_of(table, TextColumns(("标题", "正文"))) == [(text, None) for text in joined]
    pairs = list(zip(joined, QUESTIONS, strict=True))
    assert texts_of(table, TextColumns(("标题", "正文"), "问题")) == pairs


def test_lists_have_the_texts_in_the_order_of_the_columns():
    columns = TextColumns(("标题", "正文"), "问题")
    rows = list(zip(TITLES, BODIES, QUESTIONS, strict=True))
    assert texts_of(rows, columns)[0] == ("今天真好\u241e手机不错", "好吗")
    # Two strings are a pair whose first text was made already
    assert texts_of(list(zip(TITLES, QUESTIONS, strict=True)), columns)[0] == ("今天真好", "好吗")


def test_all_columns_are_read_where_those_of_the_model_are_not_there():
    pairs = list(zip(TITLES, QUESTIONS, strict=True))
    for make in (pd.DataFrame, pa.table):
        table = make({"a": TITLES, "b": QUESTIONS})
        assert texts_of(table, TextColumns(("text",), "pair")) == pairs
        with pytest.raises(InputError, match="the model reads the columns 标题, 正文, 标题 is not there"):
            rows_of(table, TextColumns(("标题", "正文")))
        with pytest.raises(InputError, match=r"found .* at texts\[0\]; choose columns of it"):
            rows_of(make(TABLE))


def test_a_model_reads_the_columns_of_its_training(tmp_path):
    folder = save_checkpoint(tmp_path / "model")
    settings = "data: {text_column: [标题, 正文], text_pair_column: 问题}\n"
    (folder / "config.yaml").write_text(settings, encoding="utf-8")
    model = load(folder, device="cpu")
    rows = list(zip(TITLES, BODIES, QUESTIONS, strict=True))
    expected = model.predict_proba(rows)
    for table in (pd.DataFrame(TABLE), pa.table(TABLE)):
        np.testing.assert_array_equal(model.predict_proba(table), expected)
    with pytest.raises(InputError, match="the model was trained on pairs of texts, found single texts"):
        model.predict(pa.array(TITLES))
