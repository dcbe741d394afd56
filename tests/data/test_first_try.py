"""Files as people have them, also of other programs, read without a setting, or refused with the setting that
is needed: python -m pytest tests/data/test_first_try.py"""

import datetime
import itertools
import json
from dataclasses import replace
from decimal import Decimal
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from app.config.command_line import OTHER_NAMES, load_config
from app.config.schema import SETTINGS, DataConfig, TrainConfig
from app.data.dataset import open_dataset
from app.data.read import options_of_run
from app.data.rows import RowReader
from app.errors import InputError
from app.runtime.devices import set_up_machine
from app.runtime.processes import num_cores
from tests.data.brought import NAMES, ROWS, lines, opened, rows_of, texts
from tests.real_data import REAL_DATA

FIRST_TRIES = REAL_DATA.parent / "first_tries"
REVIEWS = [(text, "01"[number % 3 == 0]) for number, text in enumerate(texts(60))]
PAIRS = [(text, f"{text[3:9]}吗{text[:2]}", label) for text, label in REVIEWS]


@pytest.fixture
def read(tmp_path):
    return partial(opened, tmp_path)


@pytest.fixture
def table(read):
    """Write rows, and return the table of the file: table(name, rows, header, separator)."""

    def write(name, rows, header=(), separator=",", **settings):
        rows = [separator.join(map(str, row)) for row in ([header] if header else []) + list(rows)]
        return read(name, lines(*rows), **settings).train

    return write


def first(table) -> tuple:
    return table.text(0), table.pair(0), table.label_values[table.labels[0]]


HEADERS = ["评论 评分", "内容 情感", "微博正文 标签", "反馈 结果", "这是什么 星级", "标题 类别", "甲列 乙列"]


@pytest.mark.parametrize("header", [header.split() for header in HEADERS], ids=HEADERS)
def test_usual_chinese_headers_and_any_above_numbers(table, header):
    found = table("a.csv", REVIEWS, header)
    assert found.columns == f"text '{header[0]}', label '{header[1]}'"
    assert (found.num_rows, first(found)) == (60, (REVIEWS[0][0], None, REVIEWS[0][1]))


def test_a_usual_name_that_is_a_label_is_no_header(table):
    rows = [(text, "情感" if label == "1" else "科技") for text, label in REVIEWS]
    found = table("a.csv", rows)
    assert (found.num_rows, found.label_values) == (60, ["情感", "科技"])
    with pytest.raises(InputError, match="line 1: cannot tell whether this is a header: 正方, 类别; set"):
        table("b.csv", [("好吃", "好"), ("难吃", "坏")], ("正方", "类别"))
    with pytest.raises(InputError, match="line 62: the names of the columns come again"):
        table("c.csv", [*REVIEWS, ("评论", "评分"), *REVIEWS], ("评论", "评分"))


def test_columns_without_names_are_seen_by_their_values(table):
    label_first, assumed = [row[::-1] for row in REVIEWS], {"text_column": 1, "label_column": 0}
    for rows in (label_first, sorted(label_first)):
        found = table("a.tsv", rows, separator="\t")
        assert (found.columns, found.assumed) == ("text '1', label '0'", assumed)
    numbered = [(number, *row) for number, row in enumerate(REVIEWS)]
    assert table("b.csv", numbered).columns == "text '1', label '2'; not used: '0'"


def test_pairs_are_seen_with_and_without_a_header(table):
    without = table("a.tsv", PAIRS, separator="\t")
    assert first(without) == PAIRS[0]
    assert without.assumed == {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    named = table("b.csv", PAIRS, ("sentence1", "sentence2", "label"))
    assert first(named) == PAIRS[0]
    assert named.assumed == {"text_column": "sentence1", "text_pair_column": "sentence2"}
    assert table("c.tsv", PAIRS, separator="\t", text_column=0, label_column=2).pair(0) is None
    names = map("".join, itertools.product("赵钱孙李", "伟芳娜敏", "一二丽强"))
    rows = [(name, *row) for name, row in zip(names, REVIEWS, strict=False)]
    with pytest.raises(InputError, match="which column is the text: .* also --data.text_pair_column"):
        table("d.tsv", rows, separator="\t")


def test_other_files_and_the_run_are_read_as_the_train_file(tmp_path):
    for name, rows in (("dev.tsv", PAIRS[:1]), ("a.tsv", PAIRS)):
        (tmp_path / name).write_text(lines(*map("\t".join, rows)), encoding="utf-8")
    config = DataConfig(train=str(tmp_path / "a.tsv"), cache_dir=str(tmp_path / "cache"))
    dataset = open_dataset(replace(config, dev=str(tmp_path / "dev.tsv")))
    assert dataset.splits["dev"].table.pair(0) == PAIRS[0][1]
    again = open_dataset(replace(config, **dataset.files["train"].assumed))
    assert again.files["train"].assumed == {}


SEPARATED = [
    ("csv", "a.txt", ","),
    ("tsv", "a.csv", "\t"),
    ("semicolon", "a.csv", ";"),
    ("pipe", "a.txt", "|"),
]


@pytest.mark.parametrize(("format", "name", "separator"), SEPARATED)
def test_a_separator_is_seen_by_the_lines(tmp_path, table, format, name, separator):
    rows = [(text.replace("，", "、"), label) for text, label in REVIEWS]
    for header in ((), ("内容", "标签")):
        found = table(name, rows, header, separator)
        assert (found.num_rows, first(found)) == (60, (rows[0][0], None, rows[0][1]))
        assert found.columns.endswith(f"; read as {format}")
    # The test file of a run without its labels' column in use
    options = options_of_run(tmp_path / name, {"train": f"rows{Path(name).suffix}"})
    assert next(RowReader(tmp_path / name, options, need_label=False).rows()).text == rows[0][0]


def test_a_separator_of_some_lines_is_part_of_the_text(table):
    rows = [(text.replace("，", ";,"[n % 2]), label) for n, (text, label) in enumerate(REVIEWS)]
    found = table("a.tsv", rows, separator="\t")
    assert (found.columns, first(found)[0]) == ("text '0', label '1'", rows[0][0])
    for separator in (" ", "::"):
        with pytest.raises(InputError, match="cannot tell which column is the label"):
            table("b.txt", rows, separator=separator)


@pytest.mark.parametrize(
    ("header", "line", "text"),
    [
        ('"text"\t"label"', '"{0}"\t"{1}"', "{0}"),
        ("text\tlabel", '"{0}"\t"{1}"', "{0}"),
        ("text\tlabel", '{0}\t"{1}"', "{0}"),
        ("text\tlabel", '"他说""{0}"""\t{1}', '他说"{0}"'),
        ("text\tlabel", '{0}"好"\t{1}', '{0}"好"'),
        ("text\tlabel", '"好"{0}\t{1}', '"好"{0}'),
        ("text\tlabel", '"{0}\t{1}', '"{0}'),
    ],
)
def test_quotes_of_tsv_are_part_of_the_text_unless_they_enclose_fields(read, header, line, text):
    dataset = read("a.tsv", lines(header, *(line.format(*row) for row in ROWS)))
    assert rows_of(dataset) == [(text.format(*row), row[1]) for row in ROWS]
    some = [(f'"{one}"' if at % 7 == 0 else one, label) for at, (one, label) in enumerate(ROWS)]
    assert rows_of(read("b.tsv", lines("text\tlabel", *map("\t".join, some)))) == some


@pytest.mark.parametrize(("rows", "is_read"), [(100, True), (99, False)])
def test_one_percent_of_the_rows_may_be_empty(table, rows, is_read):
    found = [(text, number % 2) for number, text in enumerate(texts(rows - 1))] + [(" ", 1)]
    if is_read:
        one = table("a.csv", found, ("text", "label"))
        assert (one.num_rows, one.skipped) == (99, 1)
        assert one.skipped_rows()[0]["problem"].startswith("the text is empty")
    else:
        with pytest.raises(InputError, match=f"line {rows + 1}: the text is empty"):
            table("a.csv", found, ("text", "label"))
        with pytest.raises(InputError, match=r"line \d+: the label is empty"):
            table("b.csv", [*found[:-1] * 9, ("好", "")], ("text", "label"))


@pytest.mark.parametrize("separator", ["|", ",", "、"])
def test_several_labels_in_one_name_task_and_separator(table, separator):
    rows = [(text, separator.join(("味道", "速度")[: 1 + int(label)])) for text, label in REVIEWS]
    rows += [("送得快", "速度")]
    write = partial(table, rows=rows, header=("text", "label"), separator="\t", on_bad_row="skip")
    with pytest.raises(InputError) as error:
        write("a.tsv")
    flags = f"--data.task multi_label --data.label_separator '{separator}'"
    assert f"for several labels a row set {flags}" in str(error.value)
    with pytest.raises(InputError, match="cannot tell whether this is one label or several"):
        write("b.tsv", task="multi_label")
    names = ["味道", "速度", f"味道{separator}速度"]
    assert write("c.tsv", labels=names).num_rows == 61


def test_a_label_with_a_comma_in_it_is_one_label(table):
    rows = [(text, "家居,厨具" if label == "1" else "服装") for text, label in REVIEWS]
    assert table("a.tsv", rows, separator="\t").label_values == ["家居,厨具", "服装"]


def with_cells(cell: str) -> str:
    """Return a table in which the label 体育 is written as `cell`."""
    cells = (f"{text}\t{cell if label == '体育' else label}" for text, label in ROWS)
    return lines("text\tlabel", *cells)


LISTS = ['["体育"]', "['体育']", "{'choices': ['体育']}"]
BRACKETS = ["[其他]", "{x", "[1, 2", "{}}"]


@pytest.mark.parametrize(
    ("cell", "label"), [*((one, "体育") for one in LISTS), *zip(BRACKETS, BRACKETS, strict=True)]
)
def test_a_list_in_a_cell_is_its_label_and_a_bracket_part_of_a_name(read, cell, label):
    assert set(read("a.tsv", with_cells(cell)).label_names) == {label, *NAMES[1:]}


@pytest.mark.parametrize(
    "cell", ['["体育", "重点"]', "['体育' '重点']", '{"choices": ["体育", "重点"]}', '{"体育": {}}']
)
def test_several_labels_and_objects_in_a_cell_name_the_task_that_reads_lists(read, cell):
    with pytest.raises(
        InputError, match=r"line 2: a row must have one label, .* set --data.task multi_label"
    ):
        read("a.tsv", with_cells(cell), on_bad_row="skip")
    if "重点" in cell:
        assert read("a.tsv", task="multi_label").label_names == sorted([*NAMES, "重点"])


@pytest.mark.parametrize(
    ("values", "names"),
    [
        ([True, False], ["false", "true"]),
        ([Decimal("3"), Decimal("12")], ["3", "12"]),
        ([b"\xe4\xbd\x93\xe8\x82\xb2", b"a"], ["a", "体育"]),
        ([datetime.date(2026, 1, 5), datetime.date(2025, 1, 5)], ["2025-01-05", "2026-01-05"]),
        ([1.0, 2.0], ["1", "2"]),
    ],
)
def test_values_of_other_types_are_labels_and_decimals_numbers(tmp_path, read, values, names):
    column = [values[number % 2] for number in range(len(ROWS))]
    columns = {"text": [text for text, _ in ROWS], "label": column}
    parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert read("a.parquet").label_names == names
    if isinstance(values[0], Decimal):
        table = read("a.parquet", task="regression").train
        assert [float(table.label_values[label]) for label in table.labels] == [*map(float, column)]


@pytest.mark.parametrize(("true", "false"), [("true", "false"), ("1.0", "0.0")])
def test_truth_values_and_whole_floats_of_json_and_csv_are_the_same_labels(read, true, false):
    names, shown = ["0", "1"] if true == "1.0" else ["false", "true"], [false, true]
    rows = [f'{{"text": "{text}", "label": {shown[at % 2]}}}' for at, (text, _) in enumerate(ROWS)]
    assert read("a.jsonl", lines(*rows)).label_names == names
    rows = [f"{text},{shown[at % 2]}" for at, (text, _) in enumerate(ROWS)]
    assert read("a.csv", lines("text,label", *rows)).label_names == names
    assert read("a.csv", labels=shown).label_names == shown


@pytest.mark.parametrize(("one", "zero"), [("True", "False"), ("TRUE", "FALSE"), ("1.0", "0"), (True, False)])
def test_columns_of_truth_values_are_suggested_and_read(read, one, zero):
    rows = [[text, *(one if label == name else zero for name in NAMES)] for text, label in ROWS]
    name, content = "a.csv", lines(",".join(["text", *NAMES]), *(",".join(map(str, row)) for row in rows))
    if one is True:
        objects = [dict(zip(["text", *NAMES], row, strict=True)) for row in rows]
        name, content = "a.jsonl", lines(*map(json.dumps, objects))
    with pytest.raises(InputError, match="--data.task multi_label and --data.label_columns"):
        read(name, content)
    assert read(name, task="multi_label", label_columns=NAMES).label_names == NAMES


# What the small files of the public reports lead to: the columns, or a part of the message
REPORTED = {
    "a1_json_list.csv": "label 'label'",
    "a2_dict.tsv": "a row must have one label",
    "c01b_utf16le_nomark.txt": "utf-16-le",
    "c02_space.txt": "which column is the label",
    "c03_fasttext.txt": "which column is the label",
    "c03c_fasttext_tab.txt": "label '0'",
    "c05_toutiao.txt": "which column is the label",
    "c05b_toutiao_comma.txt": "which column is the label",
    "c06_bar_comma.csv": "whether this is a header: label|, |ques",
    "c07_label_studio.json": "found the columns id, annotations",
    "c08b_label_studio_multi.csv": "--data.task multi_label",
    "c10_doccano.jsonl": "label 'label'",
    "c10c_doccano_annotations.jsonl": "which column is the label",
    "c14b_onehot_bool.csv": "--data.label_columns",
    "c16_bool.jsonl": "label 'label'",
    "c19_disk": "an array of pairs or of objects is needed",
    "c20_hub": "cannot tell the format",
    "c20f_decimal.parquet": "label 'label'",
    "c21_folders": "there are no files",
    "g2_TRUE.csv": "",
    "h3_case.csv": "label 'label'",
    "h5_quotes.tsv": "label 'label'",
    "j1_quote_all.tsv": "label 'label'",
}


@pytest.mark.skipif(not FIRST_TRIES.is_dir(), reason=f"needs the small files of {FIRST_TRIES}")
@pytest.mark.parametrize(("name", "expected"), REPORTED.items())
def test_the_files_of_public_reports_are_read_or_refused_with_a_remedy(tmp_path, name, expected):
    try:
        found = opened(FIRST_TRIES, name, cache_dir=str(tmp_path)).train.columns
    except InputError as error:
        found = str(error)
    assert expected in found


MEANT = {"train.lr": "train.learning_rate", "bs": "train.batch_size", "model_name_or_path": "model.name"}
MEANT |= {"data.max-len": "data.max_length", "epoch": "train.epochs"}


@pytest.mark.parametrize(("given", "meant"), MEANT.items())
def test_names_of_other_tools_are_known(given, meant):
    with pytest.raises(InputError, match=f"no setting '{given}'; did you mean '{meant}'"):
        load_config([f"--{given}", "1"])
    assert set(OTHER_NAMES.values()) <= set(SETTINGS)


def test_the_threads_of_one_process_are_those_of_the_environment(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    cpu, several = torch.device("cpu"), 2 * num_cores()
    try:
        torch.set_num_threads(3)
        for threads, processes, found in ((None, 1, 3), (2, 1, 2), (None, several, 1)):
            set_up_machine(TrainConfig(threads=threads), cpu, processes)
            assert torch.get_num_threads() == found
    finally:
        torch.set_num_threads(before)
