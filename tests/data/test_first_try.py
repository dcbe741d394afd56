"""Files as people have them, also of other programs."""

import datetime
import itertools
import json
import random
from collections.abc import Iterable
from decimal import Decimal
from functools import partial

import joblib
import pandas as pd
import pytest
import torch

from app.config.schema import TrainConfig
from app.data.row_reader import open_rows
from app.errors import InputError
from app.prediction.sources import options_of_run
from app.prediction.trained_model import trained_with
from app.runtime.machine import set_up_machine
from tests.data.test_cache import rows_of

WORDS = ["外卖", "味道", "服务", "送餐", "老板", "价格", "米饭", "牛肉", "包装", "速度", "态度", "分量"]
WORDS += ["很好", "不错", "太慢", "难吃", "一般", "推荐", "再来", "失望"]
NAMES = ["体育", "教育", "科技", "财经"]


def texts(count: int) -> list[str]:
    """Return different texts."""
    chosen = random.Random(0)
    return [f"{'，'.join(chosen.sample(WORDS, 4))}第{number}次" for number in range(count)]


def lines(rows: Iterable[str]) -> str:
    return "\n".join(rows) + "\n"


ROWS = [(text, NAMES[number % 4]) for number, text in enumerate(texts(80))]
REVIEWS = [(text, "01"[number % 3 == 0]) for number, text in enumerate(texts(60))]
PAIRS = [(text, f"{text[3:9]}吗{text[:2]}", label) for text, label in REVIEWS]


@pytest.fixture
def opened_table(opened):
    """Write rows, and return the table of the file:
    opened_table(ending, rows, header, separator, **settings)."""

    def write(ending, rows, header=(), separator=",", **settings):
        rows = [separator.join(map(str, row)) for row in ([header] if header else []) + list(rows)]
        return opened(ending, train=lines(rows), **settings).files["train"]

    return write


def first(table) -> tuple:
    return table.row(0).text, table.row(0).pair, table.label_values[table.labels[0]]


HEADERS = ["评论 评分", "内容 情感", "微博正文 标签", "反馈 结果", "这是什么 星级", "标题 类别", "甲列 乙列"]


@pytest.mark.parametrize("header", [header.split() for header in HEADERS], ids=HEADERS)
def test_usual_chinese_headers_and_any_above_numbers(opened_table, header):
    table = opened_table("csv", REVIEWS, header)
    assert table.columns == f"text '{header[0]}', label '{header[1]}'"
    assert (table.num_rows, first(table)) == (60, (REVIEWS[0][0], None, REVIEWS[0][1]))


def test_a_usual_name_that_is_a_label_is_no_header(opened_table):
    rows = [(text, "情感" if label == "1" else "科技") for text, label in REVIEWS]
    table = opened_table("csv", rows)
    assert (table.num_rows, table.label_values) == (60, ["情感", "科技"])
    with pytest.raises(InputError, match="line 1: cannot tell whether this is a header: 正方, 类别; set"):
        opened_table("csv", [("好吃", "好"), ("难吃", "坏")], ("正方", "类别"))
    with pytest.raises(InputError, match="line 62: the names of the columns come again"):
        opened_table("csv", [*REVIEWS, ("评论", "评分"), *REVIEWS], ("评论", "评分"))


def test_columns_without_names_are_seen_by_their_values(opened_table):
    label_first = [row[::-1] for row in REVIEWS]
    assumed = {"text_column": 1, "label_column": 0, "header": False}
    for rows in (label_first, sorted(label_first)):
        table = opened_table("tsv", rows, separator="\t")
        assert (table.columns, table.assumed) == ("text '1', label '0'", assumed)
    numbered = [(number, *row) for number, row in enumerate(REVIEWS)]
    assert opened_table("csv", numbered).columns == "text '1', label '2'; not used: '0'"


def test_pairs_are_seen_with_and_without_a_header(opened_table):
    without = opened_table("tsv", PAIRS, separator="\t")
    assert first(without) == PAIRS[0]
    columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    assert without.assumed == {**columns, "header": False}
    named = opened_table("csv", PAIRS, ("sentence1", "sentence2", "label"))
    assert first(named) == PAIRS[0]
    assert named.assumed == {"text_column": "sentence1", "text_pair_column": "sentence2"}
    assert opened_table("tsv", PAIRS, separator="\t", text_column=0, label_column=2).row(0).pair is None
    names = map("".join, itertools.product("赵钱孙李", "伟芳娜敏", "一二丽强"))
    rows = [(name, *row) for name, row in zip(names, REVIEWS, strict=False)]
    with pytest.raises(InputError, match="which column is the text: .* also --data.text_pair_column"):
        opened_table("tsv", rows, separator="\t")


def test_other_files_and_the_run_are_read_as_the_train_file(opened):
    settings = {"train": lines(map("\t".join, PAIRS)), "dev": lines(map("\t".join, PAIRS[:1]))}
    dataset = opened(**settings)
    assert dataset.splits["dev"].table.row(0).pair == PAIRS[0][1]
    assert opened(**settings, **dataset.files["train"].assumed).files["train"].assumed == {}


SEPARATED = [("csv", "txt", ","), ("tsv", "csv", "\t"), ("semicolon", "csv", ";"), ("pipe", "txt", "|")]


@pytest.mark.parametrize(("format", "ending", "separator"), SEPARATED)
def test_a_separator_is_seen_by_the_lines(tmp_path, opened_table, format, ending, separator):
    rows = [(text.replace("，", "、"), label) for text, label in REVIEWS]
    for header in ((), ("内容", "标签")):
        table = opened_table(ending, rows, header, separator)
        assert (table.num_rows, first(table)) == (60, (rows[0][0], None, rows[0][1]))
        assert table.columns.endswith(f"; read as {format}")
    # The test file of a run without its labels' column in use
    path = tmp_path / f"train.{ending}"
    options = options_of_run(path, trained_with(path.parent, {"train": f"rows.{ending}"}))
    assert next(open_rows(path, options, need_label=False).rows()).text == rows[0][0]


def test_a_separator_of_some_lines_is_part_of_the_text(opened_table):
    rows = [(text.replace("，", ";,"[n % 2]), label) for n, (text, label) in enumerate(REVIEWS)]
    table = opened_table("tsv", rows, separator="\t")
    assert (table.columns, first(table)[0]) == ("text '0', label '1'", rows[0][0])
    for separator in (" ", "::"):
        with pytest.raises(InputError, match=f"between the columns, found '{separator}'; replace it by tabs"):
            opened_table("txt", rows, separator=separator)


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
def test_quotes_of_tsv_are_part_of_the_text_unless_they_enclose_fields(opened, header, line, text):
    records = [line.format(*row) for row in ROWS]
    dataset = opened(train=lines([header, *records]))
    assert rows_of(dataset) == [(text.format(*row), row[1]) for row in ROWS]
    rows = []
    for number, (sentence, label) in enumerate(ROWS):
        cell = f'"{sentence}"' if number % 7 == 0 else sentence
        rows.append((cell, label))
    train = lines(map("\t".join, [("text", "label"), *rows]))
    assert rows_of(opened(train=train)) == rows


def test_one_percent_of_the_rows_may_be_empty(opened_table):
    rows = [(text, number % 2) for number, text in enumerate(texts(99))]
    header = ("text", "label")
    table = opened_table("csv", [*rows, (" ", 1)], header)
    assert (table.num_rows, table.skipped) == (99, 1)
    assert table.skipped_rows()[0].problem.startswith("the text is empty")
    with pytest.raises(InputError, match="line 100: the text is empty"):
        opened_table("csv", [*rows[1:], (" ", 1)], header)
    with pytest.raises(InputError, match=r"line \d+: the label is empty"):
        opened_table("csv", [*rows * 9, ("好", "")], header)


@pytest.mark.parametrize("separator", ["|", ",", "、"])
def test_several_labels_in_one_name_task_and_separator(opened_table, separator):
    rows = [(text, separator.join(("味道", "速度")[: 1 + int(label)])) for text, label in REVIEWS]
    rows += [("送得快", "速度")]
    write = partial(opened_table, rows=rows, header=("text", "label"), separator="\t", on_bad_row="skip")
    with pytest.raises(InputError) as error:
        write("tsv")
    flags = f"--data.task multi_label --data.label_separator '{separator}'"
    assert f"for several labels a row set {flags}" in str(error.value)
    with pytest.raises(InputError, match="cannot tell whether this is one label or several"):
        write("tsv", task="multi_label")
    names = ["味道", "速度", f"味道{separator}速度"]
    assert write("tsv", labels=names).num_rows == 61
    # A label with a comma in it is one label
    rows = [(text, "家居,厨具" if label == "1" else "服装") for text, label in REVIEWS]
    assert opened_table("tsv", rows, separator="\t").label_values == ["家居,厨具", "服装"]


LABELLED = lines(["text\tlabel", *map("\t".join, ROWS)])
LISTS = dict.fromkeys(['["体育"]', "['体育']", "{'choices': ['体育']}"], "体育")
BRACKETS = {name: name for name in ("[其他]", "{x", "[1, 2", "{}}")}
SEVERAL = ['["体育", "重点"]', "['体育' '重点']", '{"choices": ["体育", "重点"]}', '{"体育": {}}']


@pytest.mark.parametrize(("cell", "label"), (LISTS | BRACKETS).items())
def test_a_list_in_a_cell_is_its_label_and_a_bracket_part_of_a_name(opened, cell, label):
    assert set(opened(train=LABELLED.replace("体育", cell)).label_names) == {label, *NAMES[1:]}


@pytest.mark.parametrize("cell", SEVERAL)
def test_several_labels_and_objects_in_a_cell_name_the_task_that_reads_lists(opened, cell):
    train = LABELLED.replace("体育", cell)
    message = "line 2: a row must have one label, .* --data.task multi"
    with pytest.raises(InputError, match=message):
        opened(train=train, on_bad_row="skip")
    if "重点" in cell:
        assert opened(train=train, task="multi_label").label_names == sorted([*NAMES, "重点"])


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
def test_values_of_other_types_are_labels_and_decimals_numbers(opened, values, names):
    labels = values * (len(ROWS) // 2)
    train = pd.DataFrame({"text": [text for text, _ in ROWS], "label": labels}).to_parquet()
    assert opened("parquet", train=train).label_names == names
    if isinstance(values[0], Decimal):
        numbers = [label for _, label in rows_of(opened("parquet", train=train, task="regression"))]
        assert list(map(float, numbers)) == list(map(float, labels))


@pytest.mark.parametrize(("true", "false"), [("true", "false"), ("1.0", "0.0")])
def test_truth_values_and_whole_floats_of_json_and_csv_are_the_same_labels(opened, true, false):
    names = ["0", "1"] if true == "1.0" else ["false", "true"]
    values = [false, true]
    rows = [f'{{"text": "{text}", "label": {values[at % 2]}}}' for at, (text, _) in enumerate(ROWS)]
    assert opened("jsonl", train=lines(rows)).label_names == names
    rows = [f"{text},{values[at % 2]}" for at, (text, _) in enumerate(ROWS)]
    table = lines(["text,label", *rows])
    assert opened("csv", train=table).label_names == names
    assert opened("csv", train=table, labels=values).label_names == values


@pytest.mark.parametrize(
    ("present", "absent"), [("True", "False"), ("TRUE", "FALSE"), ("1.0", "0"), (True, False)]
)
def test_columns_of_truth_values_are_suggested_and_read(opened, present, absent):
    rows = []
    for text, label in ROWS:
        cells = [present if name == label else absent for name in NAMES]
        rows.append([text, *cells])
    ending = "csv"
    header = ["text", *NAMES]
    content = lines(",".join(map(str, row)) for row in [header, *rows])
    if present is True:
        objects = [dict(zip(header, row, strict=True)) for row in rows]
        ending = "jsonl"
        content = lines(map(json.dumps, objects))
    setting = r"set --data\.task multi_label --data\.label_columns '\[体育, 教育, 科技, 财经\]'"
    with pytest.raises(InputError, match=setting):
        opened(ending, train=content)
    assert opened(ending, train=content, task="multi_label", label_columns=NAMES).label_names == NAMES


LABEL = "which column is the label"
SEPARATOR = "is needed between the columns, found "
LABEL_STUDIO = '{{"id": 1, "annotations": [{{"result": [{{"value": {{"choices": ["{1}"]}}}}]}}], '
LABEL_STUDIO += '"data": {{"text": "{0}"}}}}'
IDS = '{{"id": 1, "text": "{0}", "annotations": [{{"id": 3, "label": 8}}], "meta": {{}}}}'
# The ending, header and rows of other programs' files, and the columns or a part of the message
OF_PROGRAMS = {
    "doccano": ("jsonl", "", '{{"id": 1, "text": "{0}", "label": ["{1}"]}}', "label 'label'"),
    "old doccano": ("jsonl", "", '{{"id": 1, "text": "{0}", "annotations": [8], "meta": {{}}}}', LABEL),
    "doccano with ids": ("jsonl", "", IDS, "have the numbers of labels, not their names; export"),
    "Label Studio": ("jsonl", "", LABEL_STUDIO, "text 'text', label 'label'; not used: 'id'"),
    "its CSV": ("csv", "topic,text\n", '"{{""choices"": [""{1}"", ""a""]}}",{0}', "--data.task multi_label"),
    "fastText": ("txt", "", "__label__{1} {0}", "text '0', label '1'"),
    "fastText with tabs": ("txt", "", "__label__{1}\t{0}", "label '0'"),
    "Toutiao": ("txt", "", "65_!_108_!_news_{1}_!_{0}_!_", f"{SEPARATOR}'_!_'; replace"),
    "Toutiao with words": ("txt", "", "65_!_108_!_news_{1}_!_{0}_!_学校,老师", f"{SEPARATOR}'_!_'; replace"),
    "a bar in a name": ("csv", "label|,|ques\n", "{1}|,|{0}", f"{SEPARATOR}'|,|'; replace it by tabs"),
    "an object of Python": ("tsv", "text\tlabel\n", "{0}\t{{'label': '{1}'}}", "a row must have one label"),
    "pandas with its index": ("csv", ",text,体育,教育\n", "7,{0},False,True", "--data.label_columns"),
}


@pytest.mark.parametrize(("ending", "header", "line", "expected"), OF_PROGRAMS.values(), ids=OF_PROGRAMS)
def test_files_of_other_programs_are_read_or_refused_with_a_remedy(opened, ending, header, line, expected):
    try:
        rows = lines(line.format(*row) for row in ROWS)
        columns_or_message = opened(ending, train=header + rows).files["train"].columns
    except InputError as error:
        columns_or_message = str(error)
    assert expected in columns_or_message


def test_the_threads_of_one_process_are_those_of_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    torch.set_num_threads(3)
    for threads, processes, num_threads in ((None, 1, 3), (2, 1, 2), (None, 2 * joblib.cpu_count(), 1)):
        set_up_machine(TrainConfig(threads=threads), torch.device("cpu"), processes)
        assert torch.get_num_threads() == num_threads
