"""Data files -> dataset, its report, and corrected labels."""

import collections
import json
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.data.build_table import text_hashes
from app.data.read import ReadOptions
from app.data.relabel import read_fixes
from app.data.splits import SPLITS
from app.errors import InputError
from app.runs.out_of_fold import written_hash
from tests.processes import ROOT, finish
from tests.tiny import tiny_lines

MOODS = ["愤怒", "高兴", "😀"]
ROWS = "".join(f"text {number}\t{MOODS[number % 3]}\n" for number in range(90))


def texts(dataset, name):
    split = dataset.splits[name]
    return [split.table.row(row).text for row in split.rows]


def labelled(dataset, names):
    """Return (text, label name) of each row of splits."""
    rows = []
    for name in names:
        labels = [dataset.label_names[label] for label in dataset.splits[name].labels]
        rows += zip(texts(dataset, name), labels, strict=True)
    return rows


def rows_in(lines):
    return [tuple(line.split("\t")) for line in lines.splitlines()]


def test_integers_in_the_file_are_ids_into_given_labels(opened):
    train = "".join(f"text {number}\t{number % 3}\n" for number in range(30)) + "one more\t高兴\n"
    rows = labelled(opened(train=train, labels=MOODS), ["train"])
    assert rows == [*((f"text {number}", MOODS[number % 3]) for number in range(30)), ("one more", "高兴")]


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"dev_size": 0.1, "test_size": 0.2}, {"train": 63, "dev": 9, "test": 18}),
        ({"test": "真\t😀\n", "dev_size": 9}, {"train": 81, "dev": 9, "test": 1}),
        ({}, {"train": 90}),
        ({"dev": ROWS, "limit": 30, "test_size": 6}, {"train": 24, "dev": 90, "test": 6}),
    ],
)
def test_sizes_of_the_splits(opened, settings, sizes):
    """A limit cuts the train file before the split, and no other file; the labels are sorted."""
    dataset = opened(train=ROWS, **settings)
    assert {name: len(split) for name, split in dataset.splits.items()} == sizes
    assert list(dataset.statistics) == list(sizes)
    of_train = [name for name in sizes if name not in settings]
    assert sorted(labelled(dataset, of_train)) == sorted(rows_in(ROWS)[: settings.get("limit", 90)])
    assert dataset.label_names == MOODS


def test_statistics(opened):
    train = ROWS + "甲\t愤怒\n甲\t愤怒\n甲\t高兴\n乙\t高兴\n乙\t😀\n text 0 \t愤怒\n"
    dev = "甲\t愤怒\n甲\t愤怒\n丙\t高兴\n"
    test = "甲\t愤怒\n丙\t高兴\n丁\t😀\n"
    dataset = opened(train=train, dev=dev, test=test)
    assert [labelled(dataset, [name]) for name in ("dev", "test")] == [rows_in(dev), rows_in(test)]
    assert [Path(table.source).name for table in dataset.tables] == ["train.tsv", "dev.tsv", "test.tsv"]
    classes = {"愤怒": 33, "高兴": 32, "😀": 31}
    counts = {"rows": 96, "classes": classes, "repeated": 4, "conflicting": 2, "also_in": {}}
    assert dataset.statistics["train"] == counts
    assert dataset.statistics["dev"]["repeated"] == 1
    assert dataset.statistics["dev"]["also_in"] == {"train": 2}
    assert dataset.statistics["test"]["also_in"] == {"train": 1, "dev": 2}
    assert dataset.statistics["test"]["conflicting"] == 0


def test_pairs_are_the_same_only_as_a_whole(opened):
    train = "".join(f"甲\t{number}\t{number % 2}\n" for number in range(20))
    columns = {"text_column": 0, "text_pair_column": 1, "label_column": 2}
    dataset = opened(train=train + "甲\t1\t1\n甲 1\tx\t0\n甲\t1 x\t0\n", **columns)
    assert dataset.statistics["train"]["repeated"] == 1
    pairs = dataset.splits["train"].table.texts(np.arange(20, 23))
    assert pairs == [("甲", "1"), ("甲 1", "x"), ("甲", "1 x")]


def test_the_report_for_people(opened, report_of):
    rows = "".join(f"{MOODS[n % 2]},今天{'真' * n}\n" for n in range(20))
    train = f'label,text\n愤怒,"好,1\n高兴,坏"\n{rows}高兴,今天\n'
    text = report_of(opened("csv", train=train, dev="label,text\n愤怒,今天\n"), 16)
    assert "train.csv: 22 rows (text 'text', label 'label')" in text
    assert "train: 22 rows; 愤怒 11 (50.0%), 高兴 11 (50.0%)" in text
    lengths = "5 % 4, 50 % 12, 95 % 16, 99 % 16, longest 16"
    assert (
        f"tokens by percentile: {lengths}; 7 rows (31.8%) not read whole (data.long cut, data.max_length 16)"
        in text
    )
    assert "1 repeated text; 1 text with conflicting labels" in text
    assert "dev: 1 row; 愤怒 1 (100.0%), 高兴 0 (0.0%)" in text
    assert "1 row whose text is also in train" in text


def test_the_report_of_many_classes_and_of_hostile_labels(opened, report_of):
    labels = ["\x1b[2J" + "长" * 300, *(f"类{number}" for number in range(50))]
    train = "".join(f"今天{'真' * n}好{m}\t{label}\n" for n, label in enumerate(labels) for m in range(3 + n))
    text = report_of(opened(train=train), 12)
    assert "51 classes, the largest 类49 53 (3.7%), 类48 52" in text
    assert len(text) < 1000
    assert all(character == "\n" or character.isprintable() for character in text)


def test_the_report_warns_where_many_tokens_are_unknown(opened, report_of):
    """Each row has two special tokens, five characters, and of these `num_unknown` unknown ones."""
    for num_unknown, warning in ((1, None), (2, "warning: 29% of the tokens are unknown, and the model")):
        text = "龘" * num_unknown + "真" * (5 - num_unknown)
        train = "".join(f"{text}\t{MOODS[n % 2]}\n" for n in range(20))
        lines = report_of(opened(train=train)).splitlines()
        warnings = [line.strip() for line in lines if "of the tokens are unknown" in line]
        assert bool(warnings) == (warning is not None)
        if warning:
            assert warnings[0].startswith(warning)


def test_a_change_of_the_file_or_of_a_setting_is_never_missed(opened):
    """The file's content counts, not its time or size."""
    sizes = {"dev_size": 0.1, "test_size": 0.1}
    first = opened(train=ROWS, **sizes)
    changed = opened(train=ROWS.replace("text 0", "text x"), **sizes)
    assert "text x" in dict(labelled(changed, SPLITS))
    folders = {first.folder, changed.folder}
    for settings in ({"split_seed": 1}, {"split": "random"}, {"labels": MOODS[::-1]}, {"header": True}):
        folders.add(opened(train=ROWS, **sizes | settings).folder)
    assert len(folders) == 6


def test_the_embedded_sample_set(opened):
    dataset = opened()
    assert dataset.label_names == ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
    assert list(dataset.splits) == ["train", "dev", "test"]
    assert sum(map(len, dataset.splits.values())) >= 1500
    all_texts = []
    for name in SPLITS:
        all_texts += texts(dataset, name)
    assert len(all_texts) == len(set(all_texts)) == len({"".join(text.split()) for text in all_texts})
    for name, statistics in dataset.statistics.items():
        assert min(statistics["classes"].values()) >= 0.1 * statistics["rows"], name
        assert (statistics["repeated"], statistics["conflicting"]) == (0, 0)
        assert not any(statistics["also_in"].values())


def test_the_composed_example_of_several_labels_is_what_its_script_and_datasheet_say(tmp_path):
    path = ROOT / "data" / "composed" / "posts.jsonl"
    made = tmp_path / "made.jsonl"
    finish([sys.executable, "scripts/compose_labels.py", str(made)], status=0)
    assert made.read_bytes() == path.read_bytes()
    assert path.stat().st_size < 150_000
    of_rows = [json.loads(line)["labels"] for line in path.read_text(encoding="utf-8").splitlines()]
    sizes = collections.Counter(map(len, of_rows))
    labels = collections.Counter(label for of_row in of_rows for label in of_row)
    sheet = path.with_name("README.md").read_text(encoding="utf-8")
    header, _, numbers = ([*map(str.strip, row.split("|"))] for row in re.findall(r"(?m)^\|(.*)\|$", sheet))
    wanted = {"rows": len(of_rows), "no label": sizes[0], "one": sizes[1], "two": sizes[2]} | labels
    assert dict(zip(header, map(int, numbers), strict=True)) == wanted


@pytest.mark.parametrize(("column", "pairs"), [("text", True), ("text_hash", False)])
def test_fixes_replace_labels_and_nothing_else(opened, report_of, write, tmp_path, column, pairs):
    settings = {"dev_size": 0.1, "test_size": 0.1, "text_pair_column": "other" if pairs else None}
    settings["train"] = "\n".join(tiny_lines(20, pairs))
    before = opened(**settings)
    table = before.tables[0]
    labels = dict(labelled(before, SPLITS))
    content = (tmp_path / "train.tsv").read_bytes()
    chosen = [row for row in range(table.num_rows) if labels[table.row(row).text] != "正面"][:5]
    if column == "text_hash":
        keys = ["text_hash", *(written_hash(int(table.hashes[row])) for row in chosen), "h" + "0" * 16]
    else:
        keys = ["text,text_pair", *(f" {','.join(pair)}" for pair in table.texts(chosen)), "不在数据里,"]
    values = ["label", *["正面"] * 5, "负面"]
    lines = [f"{key},{value}" for key, value in zip(keys, values, strict=True)]
    after = opened(**settings, relabel=str(write("fixes.csv", "\n".join(lines))))
    relabelled = {table.row(row).text: "正面" for row in chosen}
    assert dict(labelled(after, SPLITS)) == labels | relabelled
    for name, split in before.splits.items():
        assert after.splits[name].rows.tolist() == split.rows.tolist()
    assert (tmp_path / "train.tsv").read_bytes() == content
    summary = (
        "6 corrected labels, for 5 rows, 5 of them had another label; 1 of texts that are not in the data"
    )
    assert f"fixes.csv: {summary}" in report_of(after)
    assert dict(labelled(opened(**settings), SPLITS)) == labels


def test_all_rows_of_a_text_get_the_label_in_every_file(opened):
    rows = "".join(f"文本{n},{n % 2}\n" for n in range(20))
    files = {"train": f"text,label\n{rows}文本0,1\n", "dev": "text,label\n文本0,0\n新,1\n"}
    dataset = opened("csv", **files, relabel="text,label\n文本0,1\n")
    for name in dataset.splits:
        assert {label for text, label in labelled(dataset, [name]) if text == "文本0"} == {"1"}
    assert dataset.relabelled.items() >= {"fixes": 1, "rows": 3, "changed": 2, "unused": 0}.items()
    assert dataset.relabelled["source"].endswith("relabel.csv")


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
TWO = LABEL_STUDIO.format('"{""choices"":[""C"",""B""]}"')
ONE = ReadOptions()
LISTS = ReadOptions(task="multi_label")
GB = ReadOptions(encoding="gb18030")
BARS = replace(LISTS, label_separator="|")
B_C = '["B", "C"]'
FILES = [
    # Rows without a label are no fixes
    ("f.csv", "rank,text,given,label\n1,甲,A,\n2,乙,A,B\n3,丙,B, \n", ONE, "B"),
    ("f.csv", "text,label\n乙,B\n".encode("utf-8-sig"), ONE, "B"),
    ("f.jsonl", '{"text": "乙", "label": "B"}\n', ONE, "B"),
    # A list of label issues is in UTF-8; fixes of a person may have the encoding of the data
    ("f.csv", "text,label\n乙,高兴\n", GB, "高兴"),
    ("f.csv", "text,label\n乙,高兴\n".encode("gb18030"), GB, "高兴"),
    ("export.csv", LABEL_STUDIO.format('"B"'), ONE, "B"),
    ("export.csv", DOCCANO, ONE, "B"),
    # Of doccano as JSON Lines: `#` could be part of a label
    ("export.csv", TWO, LISTS, B_C),
    ("export.csv", LABEL_STUDIO.format('"B"'), LISTS, '["B"]'),
    ("export.jsonl", '{"text_hash": "h00000000000000a1", "label": ["B", "C"]}\n', LISTS, B_C),
    ("f.csv", 'text,label\n甲,\n乙,"[""C"", ""B""]"\n', LISTS, B_C),
    ("f.csv", "text,label\n乙,C|B\n", BARS, B_C),
    ("f.csv", "text,label\n乙,[]\n", LISTS, "[]"),
    ("f.jsonl", '{"text": "乙", "label": ["B", "C", "B"]}\n{"text": "甲", "label": null}', LISTS, B_C),
    ("f.jsonl", '{"text": "乙", "label": "B"}\n', LISTS, '["B"]'),
]


@pytest.mark.parametrize(("name", "content", "options", "label"), FILES)
def test_files_of_fixes(write, name, content, options, label):
    fixes = read_fixes(write(name, content), options, ["A", "B", "C", "高兴"], accept_ids=True)
    assert fixes == {0xA1 if name.startswith("export") else int(text_hashes(["乙"])[0]): label}


MIXED = b"text,label\n" + "甲,中性\n".encode("gb18030") + "甲,中性".encode()
COLUMNS = replace(LISTS, label_columns=["a", "b"])
WRONG = [
    ("text,class\n甲,A\n", ONE, "line 2: a row needs label .or choice. and text"),
    ("text,label\n甲,A\n甲,B\n", ONE, "line 3: all fixes of a text .*'B' here and 'A' in line 2"),
    ("text_hash,label\n12345,A\n", ONE, "line 2: text_hash must be the letter h and 16 hexadecimal.*'12345'"),
    ("text,label\n ,A\n", ONE, "line 2: the text is empty"),
    ("text,label\n甲,A,A\n", ONE, "line 2: a row needs .* the fields of the header"),
    # A line of UTF-8 and one of GB18030
    (MIXED, ONE, "line 2: invalid byte 0xd6 in the label .*set --data.encoding"),
    ("", ONE, "the file is empty"),
    ("text,label\n甲,a|b\n", LISTS, r"line 2: cannot tell .* one label or several: found 'a\|b'"),
    ("text,label\n甲,a|b\n", COLUMNS, r"line 2: .* one label or several: found 'a\|b'.*or write a JSON list"),
    ("text,label\n甲,[a]\n", LISTS, "line 2: cannot tell whether this is one label or several"),
    ('text,label\n甲,"["""",""a""]"\n', LISTS, "line 2: the label is empty"),
    ("text,label\n甲,a\n甲,[]\n", LISTS, r"line 3: all fixes of a text .* found '\[\]' here"),
    (TWO, ONE, r"line 2: a row must have one label, found \["),
    ("text,label\n甲,A\n乙,没有\n", ONE, "line 3: a fix must have a label .*, found '没有'.*known: A, B"),
    ('text,label\n甲,"[""a"", ""d""]"\n', LISTS, "line 2: a fix must have a label of the data, found 'd'"),
]


@pytest.mark.parametrize(("content", "options", "message"), WRONG)
def test_errors_of_fixes_name_file_and_line(write, content, options, message):
    with pytest.raises(InputError, match=rf"f\.csv.*{message}"):
        read_fixes(write("f.csv", content), options, ["A", "B", "a"], accept_ids=True)
    with pytest.raises(InputError, match=r"nothing\.csv"):
        read_fixes("nothing.csv", options, [], accept_ids=True)
