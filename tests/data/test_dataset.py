"""Data files -> dataset: labels, splits, statistics, corrected labels, the embedded sample set:
python -m pytest tests/data/test_dataset.py"""

import json
import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.config.schema import DataConfig
from app.data.dataset import SPLITS, Dataset, open_dataset, read_fixes, written_hash
from app.data.labels import label_ids, sort_labels
from app.data.read import ReadOptions
from app.data.report import length_line, render
from app.data.table import text_hashes
from app.data.tokens import open_store
from app.errors import InputError
from tests.tiny import write_tiny

MOODS = ["愤怒", "高兴", "😀"]
ROWS = "".join(f"text {number}\t{MOODS[number % 3]}\n" for number in range(90))


@pytest.fixture
def opened(write, tmp_path):
    """Open a dataset whose files are given as text: opened(train=ROWS, dev=..., **settings)."""

    def open_files(ending="tsv", **settings):
        files = {name: str(write(f"{name}.{ending}", settings[name])) for name in SPLITS if name in settings}
        return open_dataset(DataConfig(**settings | files, cache_dir=str(tmp_path / "cache")))

    return open_files


def texts(dataset, name):
    split = dataset.splits[name]
    return [split.table.text(row) for row in split.rows]


def labelled(dataset, *names):
    """Return (text, label name) of each row of splits."""
    labels = [dataset.label_names[label] for name in names for label in dataset.splits[name].labels]
    return list(zip([text for name in names for text in texts(dataset, name)], labels, strict=True))


@pytest.fixture
def stores_of(tmp_path, tiny_tokenizer):
    """Encode the splits of a dataset: stores_of(dataset, max_length)."""
    cache = str(tmp_path / "cache")
    return lambda dataset, length: {
        name: open_store(split.table, tiny_tokenizer, length, cache) for name, split in dataset.splits.items()
    }


def lines(rows):
    return [tuple(line.split("\t")) for line in rows.splitlines()]


# "²" and "١" are digits to str.isdigit, but no numbers
ORDERS = ["1 9 10", "-1 0 1", "10 9 a b", "1 ²", "--1 1", "- 1", f"{'1' * 5000} 2", "2 ١"]


@pytest.mark.parametrize("in_order", list(map(str.split, ORDERS)), ids=lambda labels: " ".join(labels)[:9])
def test_the_order_of_labels_of_the_train_file(in_order):
    assert sort_labels(in_order[::-1]) == in_order


def test_labels_by_name_and_by_id():
    assert label_ids(("愤怒", "高兴")) == {"愤怒": 0, "高兴": 1, "0": 0, "1": 1}
    assert label_ids(("0", "1.0", "3")) == {"0": 0, "1": 1, "1.0": 1, "3": 2}
    assert label_ids(("-1", "-2")) == {"-1": 0, "-2": 1}
    # Among labels of the train file, ids have no meaning
    assert label_ids(("坏", "好"), accept_ids=False) == {"坏": 0, "好": 1}


def test_integers_in_the_file_are_ids_into_given_labels(opened):
    train = "".join(f"text {number}\t{number % 3}\n" for number in range(30)) + "one more\t高兴\n"
    dataset = opened(train=train, labels=MOODS, dev_size=0, test_size=0)
    assert labelled(dataset, "train")[:4] == [(f"text {number}", MOODS[number % 3]) for number in range(4)]
    assert labelled(dataset, "train")[30] == ("one more", "高兴")


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({"dev_size": 0.1, "test_size": 0.2}, {"train": 63, "dev": 9, "test": 18}),
        ({"test": "真\t😀\n", "dev_size": 9}, {"train": 81, "dev": 9, "test": 1}),
        ({"dev_size": 0, "test_size": 0}, {"train": 90}),
        ({"dev": ROWS, "limit": 30, "test_size": 6}, {"train": 24, "dev": 90, "test": 6}),
    ],
)
def test_sizes_of_the_splits(opened, settings, sizes):
    """A limit cuts the train file before the split, and no other file; the labels are sorted."""
    dataset = opened(train=ROWS, **settings)
    assert {name: len(split) for name, split in dataset.splits.items()} == sizes
    assert list(dataset.statistics) == list(sizes)
    of_train = [name for name in sizes if name not in settings]
    assert sorted(labelled(dataset, *of_train)) == sorted(lines(ROWS)[: settings.get("limit", 90)])
    assert dataset.label_names == MOODS


def test_statistics(opened):
    train = ROWS + "甲\t愤怒\n甲\t愤怒\n甲\t高兴\n乙\t高兴\n乙\t😀\n text 0 \t愤怒\n"
    dev, test = "甲\t愤怒\n甲\t愤怒\n丙\t高兴\n", "甲\t愤怒\n丙\t高兴\n丁\t😀\n"
    dataset = opened(train=train, dev=dev, test=test)
    assert [labelled(dataset, name) for name in ("dev", "test")] == [lines(dev), lines(test)]
    assert [Path(table.source).name for table in dataset.tables] == ["train.tsv", "dev.tsv", "test.tsv"]
    assert dataset.statistics["train"] == {
        "rows": 96,
        "classes": {"愤怒": 33, "高兴": 32, "😀": 31},
        "repeated": 4,
        "conflicting": 2,
        "also_in": {},
    }
    assert dataset.statistics["dev"]["repeated"] == 1
    assert dataset.statistics["dev"]["also_in"] == {"train": 2}
    assert dataset.statistics["test"]["also_in"] == {"train": 1, "dev": 2}
    assert dataset.statistics["test"]["conflicting"] == 0


def test_pairs_are_the_same_only_as_a_whole(opened):
    train = "".join(f"甲\t{number}\t{number % 2}\n" for number in range(20))
    settings = {"text_column": 0, "text_pair_column": 1, "label_column": 2, "dev_size": 0, "test_size": 0}
    dataset = opened(train=train + "甲\t1\t1\n甲 1\tx\t0\n甲\t1 x\t0\n", **settings)
    assert dataset.statistics["train"]["repeated"] == 1
    assert dataset.splits["train"].table.texts(np.arange(20, 23)) == [
        ("甲", "1"),
        ("甲 1", "x"),
        ("甲", "1 x"),
    ]


def test_the_report_for_people(opened, stores_of):
    rows = "".join(f"{MOODS[n % 2]},今天{'真' * n}\n" for n in range(20))
    train = f'label,text\n愤怒,"好,1\n高兴,坏"\n{rows}高兴,今天\n'
    dataset = opened("csv", train=train, dev="label,text\n愤怒,今天\n", test_size=0)
    assert dataset.label_names == ["愤怒", "高兴"]
    text = render(dataset, stores_of(dataset, 12))
    assert "train.csv: 22 rows (text 'text', label 'label')" in text
    assert "train: 22 rows; 愤怒 11 (50.0%), 高兴 11 (50.0%)" in text
    assert "11 rows (50.0%) not read whole (data.long cut, data.max_length 12)" in text
    assert "1 repeated texts; 1 texts with conflicting labels" in text
    assert "dev: 1 rows; 愤怒 1 (100.0%), 高兴 0 (0.0%)" in text
    assert "1 rows whose text is also in train" in text


def test_the_report_of_many_classes_and_of_hostile_labels(opened, stores_of):
    labels = ["\x1b[2J" + "长" * 300, *(f"类{number}" for number in range(50))]
    train = "".join(f"今天{'真' * n}好{m}\t{label}\n" for n, label in enumerate(labels) for m in range(3 + n))
    dataset = opened(train=train, dev_size=0, test_size=0)
    text = render(dataset, stores_of(dataset, 12))
    assert "51 classes, the largest 类49 53 (3.7%), 类48 52" in text
    assert len(text) < 1000
    assert all(character == "\n" or character.isprintable() for character in text)


def test_percentiles_of_lengths(opened, stores_of):
    generator = random.Random(0)
    train = "".join(f"{'好' * generator.randint(1, 40)}\t{n % 2}\n" for n in range(301))
    dataset = opened(train=train, dev_size=30, test_size=0.2, split="random")
    for name, store in stores_of(dataset, 32).items():
        lengths = [min(32, len(text) + 2) for text in texts(dataset, name)]
        wanted = np.percentile(lengths, [5, 50, 95, 99, 100], method="inverted_cdf").astype(int)
        names, num_cut = (
            ["5 %", "50 %", "95 %", "99 %", "longest"],
            sum(len(t) > 30 for t in texts(dataset, name)),
        )
        shown = ", ".join(f"{name} {length}" for name, length in zip(names, wanted, strict=True))
        line = length_line(store, dataset.splits[name].rows)
        assert line.startswith(f"tokens by percentile: {shown}; {num_cut} rows (")


def test_a_change_of_the_file_or_of_a_setting_is_never_missed(opened):
    """The file's content counts, not its time or size."""
    first = opened(train=ROWS)
    changed = opened(train=ROWS.replace("text 0", "text x"))
    assert "text x" in dict(labelled(changed, *SPLITS))
    folders = {first.folder, changed.folder}
    for settings in ({"split_seed": 1}, {"split": "random"}, {"labels": MOODS[::-1]}):
        folders.add(opened(train=ROWS, **settings).folder)
    assert len(folders) == 5


def test_the_embedded_sample_set(tmp_path):
    dataset = open_dataset(DataConfig(cache_dir=str(tmp_path / "cache")))
    assert dataset.label_names == ["其他", "喜好", "悲伤", "厌恶", "愤怒", "高兴"]
    assert list(dataset.splits) == ["train", "dev", "test"]
    assert sum(map(len, dataset.splits.values())) >= 1500
    found = [text for name in SPLITS for text in texts(dataset, name)]
    assert len(found) == len(set(found)) == len({"".join(text.split()) for text in found})
    for name, statistics in dataset.statistics.items():
        assert min(statistics["classes"].values()) >= 0.1 * statistics["rows"], name
        assert (statistics["repeated"], statistics["conflicting"]) == (0, 0)
        assert not any(statistics["also_in"].values())


# Corrected labels


def open_with(folder: Path, fixes: Path | None, pairs: bool = False) -> Dataset:
    path = folder / "rows.tsv"
    if not path.exists():
        write_tiny(path, pairs=pairs)
    names = {"text_pair_column": "other"} if pairs else {}
    settings = {"train": str(path), "cache_dir": str(folder / "cache"), "relabel": fixes and str(fixes)}
    return open_dataset(DataConfig(max_length=32, **settings, **names))


def label_of_rows(dataset: Dataset) -> dict[int, str]:
    return {
        int(row): dataset.label_names[label]
        for split in dataset.splits.values()
        for row, label in zip(split.rows, split.labels, strict=True)
    }


@pytest.mark.parametrize(("column", "pairs"), [("text", True), ("text_hash", False)])
def test_fixes_replace_labels_and_nothing_else(tmp_path, write, tiny_tokenizer, column, pairs):
    before = open_with(tmp_path, None, pairs)
    table, labels = before.tables[0], label_of_rows(before)
    content = (tmp_path / "rows.tsv").read_bytes()
    chosen = [row for row, label in labels.items() if label != "正面"][:5]
    if column == "text_hash":
        keys = ["text_hash", *(written_hash(int(table.hashes[row])) for row in chosen), "h" + "0" * 16]
    else:
        keys = ["text,text_pair", *(f" {table.text(row)},{table.pair(row)}" for row in chosen), "不在数据里,"]
    values = ["label", *["正面"] * 5, "负面"]
    lines = [f"{key},{value}" for key, value in zip(keys, values, strict=True)]
    after = open_with(tmp_path, write("fixes.csv", "\n".join(lines) + "\n"), pairs)
    assert label_of_rows(after) == labels | dict.fromkeys(chosen, "正面")
    for name, split in before.splits.items():
        assert after.splits[name].rows.tolist() == split.rows.tolist()
    assert (tmp_path / "rows.tsv").read_bytes() == content
    stores = {n: open_store(s.table, tiny_tokenizer, 32, str(tmp_path)) for n, s in after.splits.items()}
    said = "6 corrected labels, for 5 rows, 5 of them had another label; 1 of texts that are not in the data"
    assert f"fixes.csv: {said}" in render(after, stores)
    assert label_of_rows(open_with(tmp_path, None, pairs)) == labels


def test_all_rows_of_a_text_get_the_label_in_every_file(tmp_path, write):
    rows = "".join(f"文本{n},{n % 2}\n" for n in range(20))
    files = {"train": f"text,label\n{rows}文本0,1\n", "dev": "text,label\n文本0,0\n新,1\n"}
    files["relabel"] = "text,label\n文本0,1\n"
    paths = {name: str(write(f"{name}.csv", content)) for name, content in files.items()}
    dataset = open_dataset(DataConfig(**paths, test_size=0, cache_dir=str(tmp_path / "cache")))
    for split in dataset.splits.values():
        labelled = zip(split.table.texts(np.asarray(split.rows)), split.labels, strict=True)
        assert {label for text, label in labelled if text == "文本0"} == {1}
    counts = {"fixes": 1, "rows": 3, "changed": 2, "unused": 0}
    assert dataset.relabelled.items() >= (counts | {"source": paths["relabel"]}).items()


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
ONE, LISTS, GB = ReadOptions(), ReadOptions(task="multi_label"), ReadOptions(encoding="gb18030")
FILES = [
    # Rows without a label are no fixes
    ("f.csv", "rank,text,given,label\n1,甲,A,\n2,乙,A,B\n3,丙,B, \n", ONE, ["B"]),
    ("f.csv", "text,label\n乙,B\n".encode("utf-8-sig"), ONE, ["B"]),
    ("f.jsonl", '{"text": "乙", "label": "B"}\n', ONE, ["B"]),
    # A list of label issues is in UTF-8; fixes of a person may have the encoding of the data
    ("f.csv", "text,label\n乙,高兴\n", GB, ["高兴"]),
    ("f.csv", "text,label\n乙,高兴\n".encode("gb18030"), GB, ["高兴"]),
    ("export.csv", LABEL_STUDIO.format('"B"'), ONE, ["B"]),
    ("export.csv", DOCCANO, ONE, ["B"]),
    # Of doccano as JSON Lines: `#` could be part of a label
    ("export.csv", TWO, LISTS, ['["B", "C"]']),
    ("export.csv", LABEL_STUDIO.format('"B"'), LISTS, ['["B"]']),
    ("export.jsonl", '{"text_hash": "h00000000000000a1", "label": ["B", "C"]}\n', LISTS, ['["B", "C"]']),
]


@pytest.mark.parametrize(("name", "content", "options", "labels"), FILES)
def test_files_of_fixes(write, name, content, options, labels):
    fixes = read_fixes(write(name, content), options, ["A", "B", "C", "高兴"])
    hashes = [0xA1] if name.startswith("export") else text_hashes(["乙"]).tolist()
    assert fixes == dict(zip(hashes, labels, strict=True))


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
        read_fixes(write("f.csv", content), options, ["A", "B", "a"])
    with pytest.raises(InputError, match=r"nothing\.csv"):
        read_fixes("nothing.csv", options, [])


TEXTS = ["甲一", "乙二", "丙三", "丁四", "戊五", "甲一"]
SETS = [["b", "a"], [], ["c"], ["a"], ["b", "c"], ["a"]]
OBJECTS = [("甲一", ["b", "c", "b"]), ("丙三", None), ("乙二", "a"), ("丁四", []), ("不在", ["a"])]


@pytest.mark.parametrize(
    ("name", "content", "separator"),
    [
        ("f.csv", 'text,label\n甲一,"[""c"", ""b""]"\n乙二,a\n丙三,\n丁四,[]\n不在,a\n', None),
        ("f.csv", "text,label\n甲一,b|c\n乙二,a\n丁四,[]\n不在,a\n", "|"),
        ("f.jsonl", "\n".join(json.dumps({"text": t, "label": label}) for t, label in OBJECTS), None),
    ],
)
def test_fixes_of_label_lists(tmp_path, write, name, content, separator):
    joined = separator.join if separator else json.dumps
    lines = "".join(f"{text}\t{joined(labels)}\n" for text, labels in zip(TEXTS, SETS, strict=True))
    files = {"train": str(write("rows.tsv", lines)), "relabel": str(write(name, content))}
    settings = {"dev_size": 0, "test_size": 0, "label_separator": separator, "cache_dir": str(tmp_path / "c")}
    data = DataConfig(task="multi_label", **files, **settings)

    def sets(dataset: Dataset) -> list[list[str]]:
        rows = np.asarray(dataset.splits["train"].labels).tolist()
        return [[one for one, has in zip(dataset.label_names, row, strict=True) if has] for row in rows]

    dataset = open_dataset(data)
    assert sets(dataset) == [["b", "c"], ["a"], ["c"], [], ["b", "c"], ["b", "c"]]
    found = {key: dataset.relabelled[key] for key in ("fixes", "rows", "changed", "unused")}
    assert found == {"fixes": 4, "rows": 4, "changed": 4, "unused": 1}
    assert sets(open_dataset(replace(data, relabel=None))) == list(map(sorted, SETS))
