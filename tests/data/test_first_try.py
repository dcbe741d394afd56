"""Files as people have them, read without a setting, and what the data report says of it."""

import itertools
import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from app.config.command_line import OTHER_NAMES, load_config
from app.config.schema import SETTINGS, DataConfig
from app.data.dataset import Dataset, open_dataset
from app.data.read import options_of_run
from app.data.report import _few_lines
from app.data.rows import read_rows
from app.errors import InputError
from app.runtime.devices import set_threads
from app.runtime.processes import num_cores

WORDS = (
    *("外卖", "味道", "服务", "送餐", "老板", "价格", "米饭", "牛肉", "包装", "速度", "态度", "分量"),
    *("很好", "不错", "太慢", "难吃", "一般", "推荐", "再来", "失望"),
)


def texts(count: int, seed: int = 0) -> list[str]:
    """Return different texts."""
    chosen = random.Random(seed)
    return [f"{'，'.join(chosen.sample(WORDS, 4))}第{number}次" for number in range(count)]


REVIEWS = [(text, "01"[number % 3 == 0]) for number, text in enumerate(texts(60))]
PAIRS = [(text, f"{text[3:9]}吗{text[:2]}", label) for text, label in REVIEWS]


def opened(folder, name: str, rows, *header: str, separator: str = ",", **settings) -> Dataset:
    lines = [separator.join(map(str, row)) for row in ([header] if header else []) + list(rows)]
    (folder / name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return open_dataset(DataConfig(train=str(folder / name), cache_dir=str(folder / "cache"), **settings))


@pytest.fixture
def read(tmp_path):
    """Return a function that writes a file and returns the table of its training rows."""
    return lambda *arguments, **options: opened(tmp_path, *arguments, **options).files["train"]


def first(table) -> tuple:
    return table.text(0), table.pair(0), table.label_values[table.labels[0]]


HEADERS = ["评论 评分", "内容 情感", "微博正文 标签", "反馈 结果", "这是什么 星级", "标题 类别"]


@pytest.mark.parametrize("header", [header.split() for header in HEADERS], ids=HEADERS)
def test_usual_chinese_headers_also_where_one_name_is_usual(read, header):
    table = read("a.csv", REVIEWS, *header)
    assert table.num_rows == len(REVIEWS)
    assert table.columns.startswith(f"text '{header[0]}', label '{header[1]}'")
    assert first(table) == (REVIEWS[0][0], None, REVIEWS[0][1])


def test_numbers_below_it_make_a_header_of_any_names(read):
    assert read("a.csv", REVIEWS, "甲列", "乙列").columns == "text '甲列', label '乙列'"


SEPARATED = {
    "csv": ("a.txt", ","),
    "tsv": ("a.csv", "\t"),
    "semicolon": ("a.csv", ";"),
    "pipe": ("a.txt", "|"),
}


@pytest.mark.parametrize(
    ("format", "name", "separator"), [*((key, *two) for key, two in SEPARATED.items()), ("csv", "a.tsv", ",")]
)
def test_a_separator_is_seen_by_the_lines(tmp_path, read, format, name, separator):
    rows = [(text.replace("，", "、"), label) for text, label in REVIEWS]
    for header in ((), ("内容", "标签")):
        table = read(name, rows, *header, separator=separator)
        assert (table.num_rows, first(table)) == (60, (rows[0][0], None, rows[0][1]))
        assert table.columns.endswith(f"; read as {format}")
    # The test file of a run without its labels' column in use
    options = options_of_run(tmp_path / name, {"train": f"rows{Path(name).suffix}"})
    again = read_rows(tmp_path / name, options, need_label=False)
    assert next(again).text == rows[0][0]


def test_a_separator_of_some_lines_is_part_of_the_text(read):
    rows = [(text.replace("，", ";,"[n % 2]), label) for n, (text, label) in enumerate(REVIEWS)]
    table = read("a.tsv", rows, separator="\t")
    assert (table.columns, first(table)[0]) == ("text '0', label '1'", rows[0][0])
    with pytest.raises(InputError, match="cannot tell which column is the label: found only one column"):
        read("b.txt", rows, separator=" ")


def test_a_usual_name_that_is_a_label_is_no_header(read):
    rows = [(text, "情感" if label == "1" else "科技") for text, label in REVIEWS]
    table = read("a.csv", rows)
    assert (table.num_rows, table.label_values) == (60, ["情感", "科技"])


def test_a_usual_name_beside_few_rows_is_asked_about(read):
    with pytest.raises(InputError, match="line 1: cannot tell whether this is a header: found '类别'"):
        read("a.csv", [("好吃", "好"), ("难吃", "坏")], "正方", "类别")


def test_columns_without_names_are_seen_by_their_values(read):
    label_first, assumed = [row[::-1] for row in REVIEWS], {"text_column": 1, "label_column": 0}
    for rows in (label_first, sorted(label_first)):
        table = read("a.tsv", rows, separator="\t")
        assert (table.columns, table.assumed) == ("text '1', label '0'", assumed)
    numbered = [(number, *row) for number, row in enumerate(REVIEWS)]
    assert read("b.csv", numbered).columns == "text '1', label '2'; not used: '0'"


def test_pairs_are_seen_with_and_without_a_header(read):
    expected = PAIRS[0]
    without = read("a.tsv", PAIRS, separator="\t")
    assert first(without) == expected
    assert without.assumed == {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    named = read("b.csv", PAIRS, "sentence1", "sentence2", "label")
    assert first(named) == expected
    assert named.assumed == {"text_column": "sentence1", "text_pair_column": "sentence2"}


def test_half_of_a_pair_is_chosen_with_a_word_about_the_other(read):
    table = read("a.tsv", PAIRS, separator="\t", text_column=0, label_column=2)
    assert table.pair(0) is None
    assert table.columns.endswith("not used: '1'; for pairs of texts set --data.text_pair_column 1")


def test_two_columns_of_texts_that_are_no_pairs_are_asked_about(read):
    names = map("".join, itertools.product("赵钱孙李", "伟芳娜敏", "一二丽强"))
    rows = [(name, *row) for name, row in zip(names, REVIEWS, strict=False)]
    with pytest.raises(InputError, match="which column is the text: .* also --data.text_pair_column"):
        read("a.tsv", rows, separator="\t")


def test_other_files_and_the_run_are_read_as_the_train_file(tmp_path):
    dev = tmp_path / "dev.tsv"
    dev.write_text("\t".join(PAIRS[0]) + "\n", encoding="utf-8")
    dataset = opened(tmp_path, "a.tsv", PAIRS, separator="\t", dev=str(dev))
    assert dataset.splits["dev"].table.pair(0) == PAIRS[0][1]
    config = DataConfig(train=str(tmp_path / "a.tsv"), cache_dir=str(tmp_path / "cache"))
    assert open_dataset(replace(config, **dataset.assumed)).assumed == {}


def test_pairs_and_windows_do_not_go_together(read):
    with pytest.raises(InputError, match="data.long windows reads single texts, found pairs"):
        read("a.tsv", PAIRS, separator="\t", long="windows")


@pytest.mark.parametrize(("rows", "is_read"), [(100, True), (99, False)])
def test_one_percent_of_the_rows_may_be_empty(read, rows, is_read):
    lines = [(text, number % 2) for number, text in enumerate(texts(rows - 1))] + [(" ", 1)]
    if is_read:
        table = read("a.csv", lines, "text", "label")
        assert (table.num_rows, table.skipped) == (99, 1)
        assert table.skipped_rows()[0]["problem"].startswith("the text is empty")
    else:
        with pytest.raises(InputError, match=f"line {rows + 1}: the text is empty"):
            read("a.csv", lines, "text", "label")


def test_a_label_that_is_empty_is_an_error(read):
    rows = [(text, number % 2) for number, text in enumerate(texts(300))]
    with pytest.raises(InputError, match="line 302: the label is empty"):
        read("a.csv", [*rows, ("好", "")], "text", "label")


def test_a_header_in_the_middle_is_no_row(read):
    with pytest.raises(InputError, match="line 62: the names of the columns come again"):
        read("a.csv", [*REVIEWS, ("评论", "评分"), *REVIEWS], "评论", "评分")


@pytest.mark.parametrize("separator", ["|", ",", ";", "、"])
def test_several_labels_in_one_name_task_and_separator(read, separator):
    rows = [(text, separator.join(("味道", "速度")[: 1 + int(label)])) for text, label in REVIEWS]
    rows += [("送得快", "速度")]
    with pytest.raises(InputError) as error:
        read("a.tsv", rows, "text", "label", separator="\t", on_bad_row="skip")
    flags = f"--data.task multi_label --data.label_separator '{separator}'"
    assert f"'{separator}' in 20 of 61 labels; for several labels a row set {flags}" in str(error.value)
    with pytest.raises(InputError, match="cannot tell whether this is one label or several"):
        read("b.tsv", rows, "text", "label", separator="\t", on_bad_row="skip", task="multi_label")
    names = ["味道", "速度", f"味道{separator}速度"]
    assert read("c.tsv", rows, "text", "label", separator="\t", labels=names).num_rows == 61


def test_a_label_with_a_comma_in_it_is_one_label(read):
    rows = [(text, "家居,厨具" if label == "1" else "服装") for text, label in REVIEWS]
    assert read("a.tsv", rows, separator="\t").label_values == ["家居,厨具", "服装"]


def test_lists_of_labels_and_columns_of_them_name_the_task(read, tmp_path):
    rows = [json.dumps({"text": text, "label": [label, "2"]}) for text, label in REVIEWS]
    with pytest.raises(
        InputError, match=r'found the list \["1", "2"\]; for several labels a row set --data.task'
    ):
        read("a.jsonl", [(row,) for row in rows], on_bad_row="skip")
    columns = [(text, label, 1 - int(label)) for text, label in REVIEWS]
    with pytest.raises(InputError, match=r"--data.task multi_label --data.label_columns '\[味道, 速度\]'"):
        read("b.csv", columns, "text", "味道", "速度")


def test_classes_with_few_rows_are_named(tmp_path):
    dataset = opened(tmp_path, "a.csv", [*REVIEWS, ("只有一条", "其它")], "text", "label")
    assert _few_lines(dataset.statistics) == [
        "  warning: 2 classes have fewer than 20 rows in train, the smallest 其它 1: a model learns little "
        "of them, and figures on dev and test vary by chance",
        "  warning: dev has no row of 其它: nothing is measured there",
        "  warning: test has no row of 其它: nothing is measured there",
    ]


MEANT = {"train.lr": "train.learning_rate", "bs": "train.batch_size", "model_name_or_path": "model.name"}
MEANT |= {"data.max-len": "data.max_length", "epoch": "train.epochs"}


@pytest.mark.parametrize(("given", "meant"), MEANT.items())
def test_names_of_other_tools_are_known(given, meant):
    with pytest.raises(InputError, match=f"no setting '{given}'; did you mean '{meant}'"):
        load_config([f"--{given}", "1"])


def test_every_name_of_other_tools_leads_to_a_setting():
    assert set(OTHER_NAMES.values()) <= set(SETTINGS)


def test_the_threads_of_one_process_are_those_of_the_environment(monkeypatch):
    before = torch.get_num_threads()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    try:
        set_threads(None, 1)
        assert torch.get_num_threads() == 3
        set_threads(2, 1)
        assert torch.get_num_threads() == 2
        set_threads(None, num_cores())
        assert torch.get_num_threads() == (3 if num_cores() == 1 else 1)
    finally:
        torch.set_num_threads(before)
