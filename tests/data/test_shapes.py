"""Shapes of files and folders that other programs write: they are read, or refused with the remedy."""

import json
import re
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from app.config.schema import DataConfig
from app.data.dataset import Dataset, open_dataset
from app.errors import InputError
from app.prediction.sources import Source, open_file
from app.prediction.trained_model import trained_with
from app.words import in_language
from tests.data.test_first_try import NAMES, PAIRS, ROWS, lines


@pytest.fixture
def opened_folder(tmp_path):
    """Open a folder or file as a dataset: opened_folder(name, **settings); all other rows are in train."""

    def open_it(name: str, **settings) -> Dataset:
        usual = {"dev_size": 0, "test_size": 0, "cache_dir": str(tmp_path / "cache")}
        return open_dataset(DataConfig(train=str(tmp_path / name), **usual | settings))

    return open_it


def rows_of(dataset: Dataset, split: str = "train") -> list[tuple[str, str]]:
    """Return text and label of each row of a split."""
    part = dataset.splits[split]
    texts = part.table.texts(part.rows)
    return [(text, dataset.label_names[label]) for text, label in zip(texts, part.labels, strict=True)]


# Folders


@pytest.mark.parametrize("ending", [".txt", ""])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gb18030"])
def test_a_folder_for_each_label(tmp_path, opened_folder, ending, encoding):
    for number, (text, label) in enumerate(ROWS):
        path = tmp_path / "news" / label / f"{number}{ending}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n第二行很好", encoding=encoding)
    (tmp_path / "news" / ".DS_Store").write_text("")
    dataset = opened_folder("news")
    assert sorted(rows_of(dataset)) == sorted((f"{text}\n第二行很好", label) for text, label in ROWS)
    assert "has texts too" not in dataset.files["train"].columns
    (tmp_path / "news" / "体育" / "0.txt").write_text("换了一个文本", encoding=encoding)
    assert ("换了一个文本", "体育") in rows_of(opened_folder("news"))
    (tmp_path / "news" / "体育" / "1.txt").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(InputError, match=r"1\.txt"):
        opened_folder("news")
    (tmp_path / "news" / "体育" / "1.pdf").write_text("")
    with pytest.raises(InputError, match="there are no files"):
        opened_folder("news")


FEATURES = {"label": {"names": NAMES, "_type": "ClassLabel"}, "text": {"dtype": "string", "_type": "Value"}}


def data_set_table(rows, features=FEATURES, several: bool = False) -> pa.Table:
    """Return rows as the library `datasets` stores them: numbers of classes, with their names in metadata."""
    ids = [NAMES.index(label) for _text, label in rows]
    columns = {
        "text": [text for text, _label in rows],
        "label": [[label, 3] for label in ids] if several else ids,
    }
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    return pa.table(columns).replace_schema_metadata(metadata)


def save_arrow(folder: Path, table: pa.Table) -> None:
    folder.mkdir(parents=True)
    path = folder / "data-00000-of-00001.arrow"
    with path.open("wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)
    (folder / "state.json").write_text("{}")
    (folder / "dataset_info.json").write_text("{}")


@pytest.mark.parametrize("validation", ["validation", "dev"])
def test_a_folder_of_save_to_disk(tmp_path, opened_folder, validation):
    parts = {"train": ROWS[:60], validation: ROWS[60:68], "test": ROWS[68:]}
    for split, rows in parts.items():
        save_arrow(tmp_path / "disk" / split, data_set_table(rows))
    (tmp_path / "disk" / "dataset_dict.json").write_text('{"splits": []}')
    dataset = opened_folder("disk")
    assert [rows_of(dataset, name) for name in ("train", "dev", "test")] == list(parts.values())
    save_arrow(tmp_path / "alone", data_set_table(ROWS))
    assert rows_of(opened_folder("alone")) == ROWS
    (tmp_path / "alone" / "data-00000-of-00001.arrow").write_bytes(b"\xff\xff\xff\xffnothing")
    with pytest.raises(InputError, match="the file cannot be read"):
        opened_folder("alone")


@pytest.mark.parametrize("inside", ["", "data"])
def test_a_folder_of_a_hub(tmp_path, opened_folder, inside):
    folder = tmp_path / "hub" / inside
    folder.mkdir(parents=True)
    parts = {
        "train-00000-of-00002": ROWS[:40],
        "train-00001-of-00002": ROWS[40:60],
        "test-00000-of-00001": ROWS[60:],
    }
    for name, rows in parts.items():
        parquet.write_table(data_set_table(rows), folder / f"{name}.parquet")
    (tmp_path / "hub" / "README.md").write_text("---\n---\n")
    dataset = opened_folder("hub")
    assert rows_of(dataset) == ROWS[:60]
    assert rows_of(dataset, "test") == ROWS[60:]
    # A file that is named stands before that of the folder
    named_file = tmp_path / "other.tsv"
    named_file.write_text(lines(["text\tlabel", "好\t体育"]), encoding="utf-8")
    assert rows_of(opened_folder("hub", test=str(named_file)), "test") == [("好", "体育")]


@pytest.mark.parametrize(
    "feature", [[FEATURES["label"]], {"feature": FEATURES["label"], "_type": "Sequence"}]
)
def test_lists_of_classes_with_names(tmp_path, opened_folder, feature):
    table = data_set_table(ROWS, {"label": feature}, several=True)
    parquet.write_table(table, tmp_path / "a.parquet")
    assert opened_folder("a.parquet", task="multi_label").label_names == NAMES


# Lines


SEPARATED = {
    "_!_": [f"{number}_!_{label}_!_{text}_!_" for number, (text, label) in enumerate(ROWS)],
    "_!_ with words": [f"{number}_!_{label}_!_{text}_!_a,b" for number, (text, label) in enumerate(ROWS)],
    "|,|": [f"{text}|,|{label}" for text, label in ROWS],
    "::": [f"{label}::{text}" for text, label in ROWS],
    "##": [f"{text}##{label}" for text, label in ROWS],
    "~|~": [f"{text}~|~{label}" for text, label in ROWS],
    "^": [f"{text}^{label}" for text, label in ROWS],
    " ": [f"{text} {label}" for text, label in ROWS],
}


@pytest.mark.parametrize(
    ("name", "ending"), [*((name, "txt") for name in SEPARATED), ("|,|", "csv"), ("_!_", "csv"), (" ", "csv")]
)
def test_a_separator_that_no_format_has_is_named(opened, name, ending):
    separator = name.removesuffix(" with words")
    with pytest.raises(InputError, match="is needed between the columns, found") as error:
        opened(ending, train=lines(SEPARATED[name]))
    assert f"'{separator}'; replace it by tabs" in str(error.value)


@pytest.mark.parametrize(
    "row", ["{0},-,{1}", '"{0}","{1}"', "{0}...,{1}", "http://a.b/{0}::c,{1}", "{0},,{1}"]
)
def test_what_csv_may_have_between_commas_is_no_other_separator(opened, row):
    content = lines(row.format(*pair) for pair in ROWS)
    dataset = opened("csv", train=content, text_column=0, label_column=-1)
    assert dataset.label_names == NAMES


ENCLOSED = {
    "all fields": [f'"{text}"\t"{label}"' for text, label in ROWS],
    "labels of some rows": [f'{t}\t"{n}"' if at % 3 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
    "labels only": [f'{text}\t"{label}"' for text, label in ROWS],
    "where needed": [f'"他说""{t}"""\t{n}' if at % 5 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
    "tabs": [f'"{t[:3]}\t{t[3:]}"\t{n}' if at % 5 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
}


@pytest.mark.parametrize("name", ENCLOSED)
@pytest.mark.parametrize("header", ["text\tlabel", '"text"\t"label"'])
def test_quotes_that_enclose_fields_of_tsv_are_no_part_of_them(opened, name, header):
    dataset = opened("tsv", train=lines([header, *ENCLOSED[name]]))
    assert dataset.label_names == NAMES
    wanted = [text for text, _label in ROWS]
    if name == "where needed":
        wanted[::5] = [f'他说"{text}"' for text in wanted[::5]]
    assert [text.replace("\t", "") for text, _label in rows_of(dataset)] == wanted


PART_OF_TEXT = {
    "inside": [f'他说"{text}"\t{label}' for text, label in ROWS],
    "at the beginning": [f'"好"{text}\t{label}' for text, label in ROWS],
    "one open": [f'"{text}\t{label}' for text, label in ROWS],
    "some whole texts": [f'"{t}"\t{n}' if at % 7 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
}


@pytest.mark.parametrize("name", PART_OF_TEXT)
def test_other_quotes_of_tsv_are_part_of_the_text(opened, name):
    rows = PART_OF_TEXT[name]
    dataset = opened("tsv", train=lines(["text\tlabel", *rows]))
    assert [text for text, _label in rows_of(dataset)] == [row.split("\t")[0] for row in rows]


def test_a_space_after_the_comma_is_no_part_of_a_quoted_field(opened):
    rows = [f'"{text}", "{label}"' for text, label in ROWS]
    dataset = opened("csv", train=lines(["text, label", *rows]))
    assert rows_of(dataset) == ROWS


@pytest.mark.parametrize("header", [True, None])
@pytest.mark.parametrize("separator", [",", ";"])
def test_the_line_that_tells_excel_the_separator_is_no_row(opened, separator, header):
    rows = [separator.join(row) for row in ROWS]
    content = lines([f"sep={separator}", f"内容{separator}标签", *rows])
    assert rows_of(opened("csv", train=content, header=header)) == ROWS


def test_fasttext_with_one_label_and_with_several(opened):
    content = lines(f"__label__{label} {text}" for text, label in ROWS)
    assert rows_of(opened("txt", train=content)) == ROWS
    content = lines(f"__label__{label} __label__新闻 {text}" for text, label in ROWS)
    with pytest.raises(InputError, match="a row must have one label, found .* --data.task multi_label"):
        opened("txt", train=content)
    assert opened("txt", train=content, task="multi_label").label_names == sorted([*NAMES, "新闻"])


# Objects


def label_studio(text: str, *answers: list[str]) -> str:
    """Return a task of Label Studio's JSON, with an annotation for each answer."""
    annotations = []
    for choices in answers:
        value = {"value": {"choices": choices}, "from_name": "topic", "type": "choices"}
        annotations.append({"result": [value], "was_cancelled": False})
    annotations.append({"result": [], "was_cancelled": True})
    return json.dumps({"id": 1, "annotations": annotations, "data": {"text": text}, "drafts": []})


def test_the_export_of_label_studio(opened):
    tasks = [label_studio(text, [label], [label]) for text, label in ROWS]
    assert rows_of(opened("jsonl", train=lines(tasks))) == ROWS
    assert rows_of(opened("json", train="[" + ",\n".join(tasks) + "]\n")) == ROWS
    tasks[5] = label_studio(ROWS[5][0], ["体育"], ["财经"])
    message = r'line 6: all annotations of a text must have the same labels, found \["体育"\] and \["财经"\]'
    with pytest.raises(InputError, match=message):
        opened("jsonl", train=lines(tasks))


def test_texts_inside_of_objects_are_said_to_be_there(opened):
    rows = [[{"text": text, "label": label}] for text, label in ROWS]
    with pytest.raises(InputError, match="the cells hold objects with the fields text, label"):
        opened("json", train=json.dumps(rows, indent=0))


def test_a_tuple_in_a_cell_is_a_list(opened):
    rows = [f"{text}\t('{label}',)" for text, label in ROWS]
    assert rows_of(opened("tsv", train=lines(["text\tlabel", *rows]))) == ROWS


def test_pairs_of_a_hub_without_labels_of_a_person(tmp_path, opened_folder):
    """-1 stands for no label there."""
    features = {"label": {"names": ["0", "1"], "_type": "ClassLabel"}}
    table = pa.table({"text": [row[0] for row in PAIRS], "label": [int(row[2]) for row in PAIRS[:-1]] + [-1]})
    metadata = {"huggingface": json.dumps({"info": {"features": features}})}
    parquet.write_table(table.replace_schema_metadata(metadata), tmp_path / "a.parquet")
    with pytest.raises(InputError, match="row 60: the label must be a string or an integer, found null"):
        opened_folder("a.parquet")


# Labels


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_a_vector_of_0_and_1_names_no_label(opened, task):
    rows = [
        json.dumps({"text": text, "labels": [1, 0, 0, number % 2]}) for number, (text, _) in enumerate(ROWS)
    ]
    with pytest.raises(
        InputError, match=r"line 1: .* found the vector \[1, 0, 0, 0\]; .* --data.label_columns"
    ):
        opened("jsonl", train=lines(rows), task=task)


@pytest.mark.parametrize("task", ["single_label", "multi_label"])
def test_labels_with_spaces_between_them_name_the_separator(opened, task):
    rows = [
        f"{text}\t{label} 体育" if at % 5 == 0 else f"{text}\t{label}"
        for at, (text, label) in enumerate(ROWS)
    ]
    with pytest.raises(InputError, match="--data.task multi_label --data.label_separator ' '"):
        opened("tsv", train=lines(["text\tlabels", *rows]), task=task)


def test_a_row_for_each_label_of_a_text_is_said_to_be_one(opened, report_of):
    rows = [f"{text},{label}" for text, label in ROWS] + [f"{text},重点" for text, _label in ROWS[:40]]
    dataset = opened("csv", train=lines(["text,label", *rows]))
    assert "for several labels a text, write one row with all (data.task multi_label)" in report_of(dataset)


def test_a_dash_is_no_label_of_a_person(opened, report_of):
    rows = [f"{text},{'-' if number % 9 == 0 else label}" for number, (text, label) in enumerate(ROWS)]
    dataset = opened("csv", train=lines(["text,label", *rows]))
    assert "warning: labels that look alike, or like a missing value" in report_of(dataset)


def test_integers_that_are_no_numbers_of_named_labels_are_said_to_be_read_as_such(opened):
    rows = [f"{text},{number % 3 - 1}" for number, (text, _label) in enumerate(ROWS)]
    with pytest.raises(
        InputError, match="unknown label '-1' .*; integers are read as numbers of these labels"
    ):
        opened("csv", train=lines(["text,label", *rows]), labels=["负面", "中性", "正面"])


def test_many_classes_that_are_numbers_name_the_task_of_numbers(opened):
    rows = [f"{text},{number / 100}" for number, (text, _label) in enumerate(ROWS)]
    with pytest.raises(InputError, match="to predict a number, set --data.task regression"):
        opened("csv", train=lines(["text,label", *rows]), dev_size=0.1)


def test_an_unused_column_of_texts_names_the_settings_for_it(opened):
    rows = [json.dumps({"query": text, "title": f"标题{text}", "label": label}) for text, label in ROWS]
    table = opened("jsonl", train=lines(rows)).files["train"]
    assert "'query' has texts too: set --data.text_pair_column for pairs" in table.columns


@pytest.mark.parametrize("place", ["图片/{}.jpg", "/数据/{}", "C:\\数据\\{}", "https://example.com/新闻/{}"])
def test_names_of_files_and_addresses_are_no_texts(opened, place):
    rows = []
    for number, (text, label) in enumerate(ROWS):
        rows.append(json.dumps({"text": text, "place": place.format(number), "label": label}))
    table = opened("jsonl", train=lines(rows)).files["train"]
    assert table.columns == "text 'text', label 'label'; not used: 'place'"


def test_a_column_without_a_heading_is_called_by_its_number(opened, tmp_path):
    """As pandas writes its index; a sheet may have notes to the right of its headings."""
    rows = [f"{number},{text},{label}" for number, (text, label) in enumerate(ROWS)]
    table = opened("csv", train=lines([",text,label", *rows])).files["train"]
    assert table.columns == "text 'text', label 'label'; not used: '0'"
    openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install -r requirements/dev.txt")
    workbook = openpyxl.Workbook()
    for cells in (["text", "label"], *[[*row, "备注"] for row in ROWS]):
        workbook.active.append(cells)
    workbook.save(tmp_path / "a.xlsx")
    table = opened(train=str(tmp_path / "a.xlsx")).files["train"]
    assert table.columns == "text 'text', label 'label'; not used: '2'"


# Files that are read as the train file was


@pytest.fixture
def read_as_trained(tmp_path, opened, write):
    """Open a file as a model reads it that was trained on other rows: read_as_trained(train, content)."""

    def read(train: str, name: str, content: str) -> Source:
        dataset = opened("txt", train=train)
        settings = {"train": "train.txt", **dataset.files["train"].assumed}
        return open_file(str(write(name, content)), trained_with(tmp_path, settings), {})

    return read


def texts_of(source: Source) -> list[str]:
    return [row.text for row in source.rows("error")]


LABEL_FIRST = lines(f"{label}\t{text}" for text, label in ROWS)
TEXT_FIRST = lines(f"{text}\t{label}" for text, label in ROWS)
NAMED = lines(["text,label", *(f"{text},{label}" for text, label in ROWS)])


def test_a_model_of_a_file_without_header_reads_files_of_that_shape_and_with_a_header(read_as_trained):
    texts = [text for text, _label in ROWS]
    for train in (LABEL_FIRST, TEXT_FIRST):
        assert texts_of(read_as_trained(train, "new.txt", train)) == texts
        # A few rows do not show which column is the text
        assert texts_of(read_as_trained(train, "few.txt", lines(train.splitlines()[:2]))) == texts[:2]
        # Usual names come before numbers of columns, which would be those of the labels here
        assert texts_of(read_as_trained(train, "named.csv", NAMED)) == texts


@pytest.mark.parametrize("train", [LABEL_FIRST, TEXT_FIRST])
def test_a_test_file_with_a_header_beside_a_train_file_without_one(opened, write, train):
    dataset = opened("txt", train=train, test=str(write("test.csv", NAMED)))
    assert rows_of(dataset, "test") == ROWS


def test_columns_of_another_name_than_in_the_training_name_the_settings_for_them(read_as_trained):
    train = lines(["sentence1\tsentence2\tlabel", *("\t".join(pair) for pair in PAIRS)])
    new = lines(["query,title", *(f"{first},{second}" for first, second, _label in PAIRS)])
    with pytest.raises(InputError, match="there is no text column 'sentence1'") as error:
        read_as_trained(train, "new.csv", new)
    message = str(error.value)
    assert "the run was trained on columns 'sentence1', 'sentence2', and this file has query" in message
    assert message.endswith("with --text_column and --text_pair_column")


def test_lines_of_text_with_commas_name_the_format_of_texts(read_as_trained):
    train = lines(["text\tlabel", *(f"{text}\t{label}" for text, label in ROWS)])
    new = lines(f"{text},包装很好,第{number}次用" for number, (text, _label) in enumerate(ROWS))
    with pytest.raises(InputError, match="--format text where each line is one text"):
        read_as_trained(train, "new.csv", new)


# Languages


def test_a_cache_of_another_language_is_read_in_this_one(opened, report_of):
    """The rows are read once, and their messages are said again in the language of each reader."""
    rows = [f"{text}\t{label}\t{number}" for number, (text, label) in enumerate(ROWS)]
    rows[3] = " \t体育\t3"
    rows[5] = "少了两列"
    train = lines(["text\tlabel\tid", *rows]).encode("gb18030")
    reports = {}
    for language in ("zh", "en"):
        with in_language(language):
            reports[language] = report_of(opened("txt", train=train, on_bad_row="skip"))
    assert "text 'text', label 'label'; not used: 'id'; encoding gb18030" in reports["en"]
    assert "the text is empty, found ''; fill it in or remove the row" in reports["en"]
    assert "3 columns are needed as in the first row, found 1" in reports["en"]
    assert "text 'text'" not in reports["zh"]
    assert "文本 'text'、标签 'label'；" in reports["zh"]
    assert re.search(r"体育 \d+（\d+\.\d%）、", reports["zh"])
    assert not set(reports["en"].splitlines()) & set(reports["zh"].splitlines())


# Quotes that join rows


def test_rows_that_two_stray_quotes_join_are_said_to_be_there(opened, report_of):
    rows = [f"{text},{label}" for text, label in ROWS]
    rows[3] = '"' + rows[3]
    rows[7] = rows[7].replace(",", '",')
    dataset = opened("csv", train=lines(["text,label", *rows]))
    assert dataset.tables[0].num_rows == len(ROWS) - 4
    report = report_of(dataset)
    assert "1 text has line breaks; it has 5 lines, in the row of line 5" in report
    assert "1 row of several lines has as many fields in each line as the file has columns" in report
    assert "stray quotes may have joined rows: line 5; double these quotes" in report


def test_texts_of_several_lines_are_counted_without_a_warning(opened, report_of):
    rows = [f'"{text}\n第二行\n第三行",{label}' for text, label in ROWS]
    report = report_of(opened("csv", train=lines(["text,label", *rows])))
    assert f"{len(ROWS)} texts have line breaks; the longest has 3 lines, in the row of line 2" in report
    # The vocabulary of the tests is small
    warnings = [line for line in report.splitlines() if "warning" in line and "unknown" not in line]
    assert warnings == []
