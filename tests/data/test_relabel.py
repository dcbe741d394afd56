"""Corrected labels: python -m pytest tests/data/test_relabel.py"""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.config.command_line import load_config
from app.config.schema import DataConfig, ModelConfig
from app.data.dataset import Dataset, open_dataset
from app.data.read import ReadOptions
from app.data.relabel import read_fixes, written_hash
from app.data.report import render
from app.data.tokenizer import load_tokenizer
from app.errors import InputError
from app.run.assembly import open_stores
from tests.tiny import write_tiny


def open_with(folder: Path, fixes: Path | None, pairs: bool = False) -> Dataset:
    path = folder / "rows.tsv"
    if not path.exists():
        write_tiny(path, pairs=pairs)
    names = {"text_pair_column": "other"} if pairs else {}
    return open_dataset(
        DataConfig(
            train=str(path),
            cache_dir=str(folder / "cache"),
            relabel=fixes and str(fixes),
            max_length=32,
            **names,
        )
    )


def label_of_rows(dataset: Dataset) -> dict[int, str]:
    names = dataset.label_names
    return {
        int(row): names[label]
        for split in dataset.splits.values()
        for row, label in zip(split.rows, split.labels, strict=True)
    }


@pytest.mark.parametrize(("column", "pairs"), [("text", True), ("text_hash", False)])
def test_fixes_replace_labels_and_nothing_else(tmp_path, write, column, pairs):
    before = open_with(tmp_path, None, pairs)
    table, labels = before.tables[0], label_of_rows(before)
    content = (tmp_path / "rows.tsv").read_bytes()
    chosen = [row for row, label in labels.items() if label != "正面"][:5]
    lines = ["text_hash,label" if column == "text_hash" else f"text{',text_pair' if pairs else ''},label"]
    for row in chosen:
        texts = [f" {table.text(row)}", *([table.pair(row)] if pairs else [])]
        lines.append(
            ",".join(
                [
                    *([written_hash(int(table.hashes[row]))] if column == "text_hash" else texts),
                    "正面",
                ]
            )
        )
    lines += [f"{'h' + '0' * 16 if column == 'text_hash' else '不在数据里' + ',' * pairs},负面"]
    after = open_with(tmp_path, write("fixes.csv", "\n".join(lines) + "\n"), pairs)
    assert label_of_rows(after) == labels | dict.fromkeys(chosen, "正面")
    for name, split in before.splits.items():
        assert after.splits[name].rows.tolist() == split.rows.tolist()
    assert (tmp_path / "rows.tsv").read_bytes() == content
    tokenizer = load_tokenizer(ModelConfig(), after, 32, str(tmp_path / "cache"))
    report = render(
        after, open_stores(after, tokenizer, DataConfig(max_length=32, cache_dir=str(tmp_path / "cache")))
    )
    assert (
        "fixes.csv: 6 corrected labels, for 5 rows, 5 of them had another label; 1 of texts that are not in "
        "the data, the first in line 7"
    ) in report
    assert label_of_rows(open_with(tmp_path, None, pairs)) == labels


def test_all_rows_of_a_text_get_the_label_in_every_file(tmp_path, write):
    train = write(
        "train.csv", "text,label\n" + "".join(f"文本{n},{n % 2}\n" for n in range(20)) + "文本0,1\n"
    )
    dev = write("dev.csv", "text,label\n文本0,0\n新,1\n")
    fixes = write("fixes.csv", "text,label\n文本0,1\n")
    data = {"train": str(train), "dev": str(dev), "test_size": 0, "cache_dir": str(tmp_path / "cache")}
    dataset = open_dataset(DataConfig(**data, relabel=str(fixes)))
    for split in dataset.splits.values():
        texts = split.table.texts(np.asarray(split.rows))
        assert [label for text, label in zip(texts, split.labels, strict=True) if text == "文本0"] != []
        assert all(label == 1 for text, label in zip(texts, split.labels, strict=True) if text == "文本0")
    counts = {"fixes": 1, "rows": 3, "changed": 2, "unused": 0, "first_unused": None, "source": str(fixes)}
    assert dataset.relabelled == counts


def test_rows_without_a_label_are_no_fixes(write):
    fixes = read_fixes(write("fixes.csv", "rank,text,given,label\n1,甲,A,\n2,乙,A,B\n3,丙,B, \n"))
    assert (fixes.labels, fixes.lines) == (["B"], [3])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("f.csv", "text,label\n甲,B\n".encode("utf-8-sig")),
        ("f.tsv", "text\tlabel\n甲\tB\n"),
        ("f.jsonl", '{"text": "甲", "label": "B"}\n'),
        ("f.json", '[{"text": "甲", "label": "B"}]'),
    ],
)
def test_formats_of_fixes(write, name, content):
    (expected,) = read_fixes(write("g.csv", "text,label\n甲,B\n")).hashes.tolist()
    fixes = read_fixes(write(name, content))
    assert (fixes.hashes.tolist(), fixes.labels) == ([expected], ["B"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,class\n甲,A\n",
            "f.csv, line 1: a file of fixes needs a header with the column label.*found text, class",
        ),
        (
            "text,label\n甲,A\n乙,A\n甲,B\n",
            "f.csv, line 4: a text can have one label only, found 'B' here and 'A' in line 2",
        ),
        (
            "text_hash,label\n12345,A\n",
            "f.csv, line 2: text_hash must be the letter h and 16 hexadecimal digits.*'12345'",
        ),
        ("text,label\n ,A\n", "f.csv, line 2: a fix needs its text_hash or its text"),
        ("text,label\n甲,A,A\n", "f.csv, line 2: a row of 2 columns as in the header is needed"),
        (
            # A line of UTF-8 and one of GB18030
            b"text,label\n" + "甲,中性\n".encode("gb18030") + "甲,中性".encode(),
            "f.csv, line 2: invalid byte 0xd6 in the label .*set --data.encoding",
        ),
        ("", "f.csv"),
    ],
)
def test_errors_of_fixes_name_file_and_line(write, content, message):
    with pytest.raises(InputError, match=message):
        read_fixes(write("f.csv", content))


def test_a_fix_has_a_label_of_the_data(write):
    fixes = read_fixes(write("f.csv", "text,label\n甲,正面\n乙,没有\n"))
    with pytest.raises(
        InputError, match=r"f.csv, line 3: a fix must have a label of the data, found '没有'.*known: 中性, 正"
    ):
        fixes.new_labels(["中性", "正面"])


def test_a_file_that_is_not_there_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match=r"nothing\.csv"):
        read_fixes(tmp_path / "nothing.csv")


def test_texts_without_labels_have_no_fixes():
    with pytest.raises(
        InputError, match=r"data\.relabel must be left out with data\.task masked_language_modelling"
    ):
        load_config(
            ["--data.task", "masked_language_modelling", "--data.train", "a.txt", "--data.relabel", "f.csv"]
        )


SETS = [
    ("甲一", ["b", "a"]),
    ("乙二", []),
    ("丙三", ["c"]),
    ("丁四", ["a"]),
    ("戊五", ["b", "c"]),
    ("甲一", ["a"]),
]


def sets_of(dataset: Dataset) -> list[list[str]]:
    rows = np.asarray(dataset.splits["train"].labels)
    return [[name for name, has in zip(dataset.label_names, row, strict=True) if has] for row in rows]


@pytest.mark.parametrize(
    ("name", "content", "separator"),
    [
        ("f.csv", 'text,label\n甲一,"[""c"", ""b""]"\n乙二,a\n丙三,\n丁四,[]\n不在,a\n', None),
        ("f.csv", "text,label\n甲一,b|c\n乙二,a\n丁四,[]\n不在,a\n", "|"),
        (
            "f.jsonl",
            '{"text": "甲一", "label": ["b", "c", "b"]}\n{"text": "丙三", "label": null}\n'
            '{"text": "乙二", "label": "a"}\n{"text": "丁四", "label": []}\n'
            '{"text": "不在", "label": ["a"]}\n',
            None,
        ),
    ],
)
def test_fixes_of_label_lists(tmp_path, write, name, content, separator):
    lines = "".join(f"{text}\t{(separator or '|').join(labels)}\n" for text, labels in SETS)
    if separator is None:
        lines = "".join(f"{text}\t{json.dumps(labels)}\n" for text, labels in SETS)
    data = DataConfig(
        task="multi_label",
        train=str(write("rows.tsv", lines)),
        dev_size=0,
        test_size=0,
        label_separator=separator,
        relabel=str(write(name, content)),
        cache_dir=str(tmp_path / "cache"),
    )
    dataset = open_dataset(data)
    assert sets_of(dataset) == [["b", "c"], ["a"], ["c"], [], ["b", "c"], ["b", "c"]]
    found = {key: dataset.relabelled[key] for key in ("fixes", "rows", "changed", "unused")}
    assert found == {"fixes": 4, "rows": 4, "changed": 4, "unused": 1}
    assert sets_of(open_dataset(replace(data, relabel=None))) == [sorted(labels) for _, labels in SETS]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            "text,label\n甲,a|b\n",
            "f.csv, line 2: cannot tell whether this is one label or several: found 'a|b'",
        ),
        ("text,label\n甲,[a]\n", "f.csv, line 2: a list of labels must be JSON"),
        ('text,label\n甲,"["""",""a""]"\n', "f.csv, line 2: the label is empty"),
        (
            "text,label\n甲,a\n甲,[]\n",
            r"f.csv, line 3: a text can have one set of labels only, found '\[\]' here",
        ),
    ],
)
def test_errors_of_label_lists_fixes_name_file_and_line(write, content, message):
    with pytest.raises(InputError, match=message):
        read_fixes(write("f.csv", content), ReadOptions(task="multi_label"))


def test_fixes_of_columns_of_labels_are_lists(write):
    path = write("f.csv", "text,label\n甲,a|b\n")
    with pytest.raises(
        InputError, match=r"f.csv, line 2: .* one label or several: found 'a\|b'.*or write a JSON list"
    ):
        read_fixes(path, ReadOptions(task="multi_label", label_columns=["a", "b"]))


def test_a_label_of_a_set_must_be_one_of_the_data(write):
    fixes = read_fixes(
        write("f.csv", 'text,label\n甲,a\n乙,"[""a"", ""d""]"\n'), ReadOptions(task="multi_label")
    )
    with pytest.raises(
        InputError, match=r"f.csv, line 3: a fix must have a label of the data, found 'd'.*known: a, b"
    ):
        fixes.new_labels(["a", "b"])


def test_a_list_of_label_issues_is_read_in_utf_8_whatever_the_encoding_of_the_data(write):
    """cross-validate writes it in UTF-8; fixes of a person may have the encoding of the data."""
    content = "text,label\n今天,高兴\n"
    files = [write(f"{encoding}.csv", content.encode(encoding)) for encoding in ("utf-8", "gb18030")]
    fixes = [read_fixes(file, ReadOptions(encoding="gb18030")) for file in files]
    assert [one.labels for one in fixes] == [["高兴"]] * 2
    assert fixes[0].hashes.tolist() == fixes[1].hashes.tolist()


# Label Studio exports this CSV of an imported label_issues.csv, with <Choices name="choice">: the columns are
# in order of their names, the `label` of the list stays empty, and several choices are an object
LABEL_STUDIO = (
    '"annotation_id","annotator","choice","created_at","flagged","given","id","label","lead_time","rank",'
    '"suggested","text","text_hash","updated_at"\n'
    '1,"1",{},"2026-11-25T10:00:00Z","yes","A",7,"",3.2,1,"B","甲，\n乙","h00000000000000a1","2026"\n'
    '2,"1","","2026-11-25T10:00:00Z","no","A",8,"",1.5,2,"B","丙","h00000000000000b2","2026"\n'
)
# doccano exports this CSV: the text, the columns that it did not use, and the labels joined by #
DOCCANO = (
    "id,text,rank,file,line,row_id,given,suggested,score,flagged,text_hash,label,Comments\n"
    '1,"甲，\n乙",1,a.tsv,7,5,A,B,0.01,yes,h00000000000000a1,B,\n'
    "2,丙,2,a.tsv,3,1,A,B,0.2,no,h00000000000000b2,,\n"
)


@pytest.mark.parametrize("content", [LABEL_STUDIO.format('"B"'), DOCCANO])
def test_the_csv_exports_of_annotation_tools_are_fixes(write, content):
    fixes = read_fixes(write("export.csv", content))
    assert (fixes.hashes.tolist(), fixes.labels) == ([0xA1], ["B"])


def test_exports_of_several_labels_are_fixes(write):
    """Of doccano as JSON Lines: `#` could be part of a label."""
    options = ReadOptions(task="multi_label")
    choices = LABEL_STUDIO.format('"{""choices"":[""C"",""B""]}"')
    lines = '{"id": 1, "text": "甲", "text_hash": "h00000000000000a1", "label": ["B", "C"], "Comments": []}\n'
    for path in (write("export.csv", choices), write("export.jsonl", lines)):
        fixes = read_fixes(path, options)
        assert (fixes.hashes.tolist(), fixes.labels) == ([0xA1], ['["B", "C"]'])
    one = read_fixes(write("one.csv", LABEL_STUDIO.format('"B"')), options)
    assert one.labels == ['["B"]']


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ('"{""choices"":[""C"",""B""]}"', "export.csv, line 2: a row must have one label, found the list"),
        ('"{""choices"":[""C"",""B"""', "export.csv, line 2: the choices are not valid JSON"),
    ],
)
def test_choices_that_are_no_label_name_file_and_line(write, choice, message):
    with pytest.raises(InputError, match=message):
        read_fixes(write("export.csv", LABEL_STUDIO.format(choice)))
