"""Tokens from several processes: python -m pytest tests/data/test_encoded_parts.py"""

import json

import pytest

from app.data import tokens
from app.data.long_texts import CUT, LongTexts
from app.data.read import ReadOptions
from app.data.table import Table, build_table
from app.data.tokens import EncodingJob, build_store, row_ranges
from app.errors import InputError

TEXTS = ["好" * (1 + 7 * number % 40) + f"第{number}条" for number in range(60)]


def make_table(folder, rows):
    (folder / "rows.json").write_text(json.dumps(rows))
    (folder / "table").mkdir()
    build_table(folder / "table", str(folder / "rows.json"), ReadOptions(), False, None)
    return Table(folder / "table")


def content(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def store(folder, table, tokenizer, *settings):
    backend = tokenizer.backend_tokenizer
    backend.no_truncation()
    backend.no_padding()
    folder.mkdir()
    long, workers = settings
    job = EncodingJob(table, backend.to_str(), 12, tokenizer.unk_token_id, "right", long)
    build_store(folder, job, workers)
    return content(folder)


@pytest.mark.parametrize("case", ["texts", "pairs", "windows"])
def test_the_bits_are_the_same_for_any_number_of_processes(tmp_path, tiny_tokenizer, monkeypatch, case):
    rows = [[text, *([text[::-1]] * (case == "pairs")), index % 3] for index, text in enumerate(TEXTS)]
    table = make_table(tmp_path, rows)
    assert table.has_pairs == (case == "pairs")
    long = LongTexts("windows", max_windows=3) if case == "windows" else CUT
    one = store(tmp_path / "1", table, tiny_tokenizer, long, 1)
    assert len(one) == 4 + (case == "pairs") + 2 * (case == "windows")
    # None: no other processes
    monkeypatch.setattr(tokens, "computed_apart", None)
    assert store(tmp_path / "none", table, tiny_tokenizer, long, None) == one
    monkeypatch.undo()
    for workers, part_rows, parts in ((2, 500, 2), (3, 500, 3), (2, 20, 4)):
        monkeypatch.setattr(tokens, "PART_ROWS", part_rows)
        ranges = row_ranges(table, workers)
        assert (len(ranges), [row for rows in ranges for row in rows]) == (parts, list(range(60)))
        assert store(tmp_path / f"{workers}-{part_rows}", table, tiny_tokenizer, long, workers) == one


def test_an_error_in_a_process_names_the_row(tmp_path, tiny_tokenizer):
    table = make_table(tmp_path, [["好", 1]] * 8 + [["\u00ad\u200b好", 1], ["\ue000", 2]])
    definition = json.loads(tiny_tokenizer.backend_tokenizer.to_str())
    definition["normalizer"] = definition["post_processor"] = None
    definition["pre_tokenizer"] = {
        "type": "Split",
        "pattern": {"Regex": "\ue000"},
        "behavior": "Removed",
        "invert": False,
    }
    (tmp_path / "store").mkdir()
    with pytest.raises(InputError, match="rows.json, element 10: each text must have a token"):
        build_store(tmp_path / "store", EncodingJob(table, json.dumps(definition), 12, 1), 2)
