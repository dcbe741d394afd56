"""Files of the shapes that people bring from other programs: python -m pytest
tests/data/test_what_people_bring.py"""

import datetime
import json
from decimal import Decimal
from functools import partial

import pyarrow as pa
import pytest
from pyarrow import parquet

from app.data.labels import look_alikes
from app.errors import InputError
from tests.data.brought import NAMES, ROWS, lines, opened, rows_of


@pytest.fixture
def read(tmp_path):
    return partial(opened, tmp_path)


# Values inside a cell of a table

IN_CELLS = {
    "a JSON list": lambda label: json.dumps([label], ensure_ascii=False),
    "a list of Python": lambda label: f"['{label}']",
    "choices": lambda label: json.dumps({"choices": [label]}, ensure_ascii=False),
    "a set of Python": lambda label: f"{{'choices': ['{label}']}}",
}


@pytest.mark.parametrize("kind", IN_CELLS)
@pytest.mark.parametrize("ending", ["tsv", "csv", "parquet", "xlsx"])
def test_a_list_in_a_cell_is_its_label(tmp_path, read, kind, ending):
    labels = [IN_CELLS[kind](label) for _text, label in ROWS]
    pairs = list(zip([text for text, _label in ROWS], labels, strict=True))
    if ending == "parquet":
        parquet.write_table(
            pa.table({"text": [text for text, _ in pairs], "label": labels}), tmp_path / "a.parquet"
        )
    elif ending == "xlsx":
        openpyxl = pytest.importorskip("openpyxl")
        book = openpyxl.Workbook()
        for row in [("text", "label"), *pairs]:
            book.active.append(row)
        book.save(tmp_path / "a.xlsx")
    else:
        cells = [label.replace('"', '""') for label in labels] if ending == "csv" else labels
        quote = '"' if ending == "csv" else ""
        separator = "," if ending == "csv" else "\t"
        rows = [f"{text}{separator}{quote}{cell}{quote}" for (text, _), cell in zip(ROWS, cells, strict=True)]
        (tmp_path / f"a.{ending}").write_text(lines(f"text{separator}label", *rows), encoding="utf-8")
    dataset = read(f"a.{ending}")
    assert rows_of(dataset) == ROWS
    assert dataset.files["train"].columns.endswith("; one label in each list")


@pytest.mark.parametrize(
    "two", ['["体育", "重点"]', "['体育', '重点']", "['体育' '重点']", '{"choices": ["体育", "重点"]}']
)
def test_a_list_of_several_in_a_cell_names_the_task_and_is_read_by_it(read, two):
    rows = [f"{text}\t{two if label == '体育' else label}" for text, label in ROWS]
    with pytest.raises(
        InputError, match=r'found the list \["体育", "重点"\]; for several labels a row set --data.task'
    ):
        read("a.tsv", lines("text\tlabel", *rows))
    dataset = read("a.tsv", task="multi_label")
    assert dataset.label_names == sorted([*NAMES, "重点"])


@pytest.mark.parametrize("cell", ['{"label": "体育"}', "{'label': '体育', 'score': 1}", '{"体育": {}}'])
def test_an_object_in_a_cell_is_refused_with_the_remedy(read, cell):
    rows = [f"{text}\t{cell if label == '体育' else label}" for text, label in ROWS]
    with pytest.raises(
        InputError, match=r"line 2: a row must have one label, found the object .*; write the value"
    ):
        read("a.tsv", lines("text\tlabel", *rows), on_bad_row="skip")


@pytest.mark.parametrize("label", ["[其他]", "{x", "[", "[1, 2", "{}}"])
def test_what_only_begins_with_a_bracket_is_the_name_of_a_class(read, label):
    rows = [f"{text}\t{label if name == '体育' else name}" for text, name in ROWS]
    assert set(read("a.tsv", lines("text\tlabel", *rows)).label_names) == {label, *NAMES[1:]}


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
def test_values_of_other_types_are_labels(tmp_path, read, values, names):
    column = [values[number % 2] for number in range(len(ROWS))]
    parquet.write_table(
        pa.table({"text": [text for text, _ in ROWS], "label": column}), tmp_path / "a.parquet"
    )
    assert read("a.parquet").label_names == names


def test_decimals_are_numbers(tmp_path, read):
    column = [Decimal(number) / 4 for number in range(len(ROWS))]
    parquet.write_table(
        pa.table({"text": [text for text, _ in ROWS], "label": column}), tmp_path / "a.parquet"
    )
    table = read("a.parquet", task="regression").files["train"]
    assert [float(table.label_values[label]) for label in table.labels] == [
        number / 4 for number in range(len(ROWS))
    ]


def test_truth_values_and_whole_floats_of_json_and_csv_are_the_same_labels(read):
    for true, false in (("true", "false"), ("1.0", "0.0")):
        rows = [
            f'{{"text": "{text}", "label": {true if number % 2 else false}}}'
            for number, (text, _) in enumerate(ROWS)
        ]
        names = read("a.jsonl", lines(*rows)).label_names
        assert names == (["0", "1"] if true == "1.0" else ["false", "true"])
        rows = [f"{text},{true if number % 2 else false}" for number, (text, _) in enumerate(ROWS)]
        assert read("a.csv", lines("text,label", *rows)).label_names == names
    assert read("a.csv", labels=["0.0", "1.0"]).label_names == ["0.0", "1.0"]


@pytest.mark.parametrize(
    ("one", "zero"), [("True", "False"), ("TRUE", "FALSE"), ("true", "false"), ("1.0", "0")]
)
@pytest.mark.parametrize("ending", ["csv", "jsonl"])
def test_columns_of_truth_values_are_suggested_and_read(read, one, zero, ending):
    if ending == "csv":
        rows = [",".join([text, *(one if label == name else zero for name in NAMES)]) for text, label in ROWS]
        content = lines(",".join(["text", *NAMES]), *rows)
    else:
        content = lines(
            *(json.dumps({"text": text} | {name: label == name for name in NAMES}) for text, label in ROWS)
        )
    with pytest.raises(
        InputError, match=r"--data.task multi_label --data.label_columns '\[体育, 教育, 科技, 财经\]'"
    ):
        read(f"a.{ending}", content)
    assert read(f"a.{ending}", task="multi_label", label_columns=NAMES).label_names == NAMES


# Quotes and separators

ENCLOSED = {
    "all fields": [f'"{text}"\t"{label}"' for text, label in ROWS],
    "the labels of some rows": [f'{t}\t"{n}"' if at % 3 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
    "labels only": [f'{text}\t"{label}"' for text, label in ROWS],
    "where needed": [f'"他说""{t}"""\t{n}' if at % 5 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
    "texts with tabs": [
        f'"{t[:3]}\t{t[3:]}"\t{n}' if at % 5 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)
    ],
}


@pytest.mark.parametrize("kind", ENCLOSED)
@pytest.mark.parametrize("header", ["text\tlabel", '"text"\t"label"'])
def test_quotes_that_enclose_fields_of_tsv_are_no_part_of_them(read, kind, header):
    dataset = read("a.tsv", lines(header, *ENCLOSED[kind]))
    assert dataset.label_names == NAMES
    found = [text for text, _label in rows_of(dataset)]
    wanted = [text for text, _label in ROWS]
    if kind == "where needed":
        wanted[::5] = [f'他说"{text}"' for text in wanted[::5]]
    assert ["".join(text.split("\t")) for text in found] == wanted


PART_OF_TEXT = {
    "inside": [f'他说"{text}"\t{label}' for text, label in ROWS],
    "at the beginning": [f'"好"{text}\t{label}' for text, label in ROWS],
    "one open": [f'"{text}\t{label}' for text, label in ROWS],
    "some whole texts": [f'"{t}"\t{n}' if at % 7 == 0 else f"{t}\t{n}" for at, (t, n) in enumerate(ROWS)],
}


@pytest.mark.parametrize("kind", PART_OF_TEXT)
def test_other_quotes_of_tsv_are_part_of_the_text(read, kind):
    dataset = read("a.tsv", lines("text\tlabel", *PART_OF_TEXT[kind]))
    assert [text for text, _label in rows_of(dataset)] == [line.split("\t")[0] for line in PART_OF_TEXT[kind]]


LONGER = {
    "_!_": [f"{number}_!_{label}_!_{text}_!_" for number, (text, label) in enumerate(ROWS)],
    "|,|": [f"{text}|,|{label}" for text, label in ROWS],
    "::": [f"{label}::{text}" for text, label in ROWS],
    "##": [f"{text}##{label}" for text, label in ROWS],
    "_!_ ": [f"{n}_!_{label}_!_{text}_!_a,b" for n, (text, label) in enumerate(ROWS)],
    "~|~": [f"{text}~|~{label}" for text, label in ROWS],
}


@pytest.mark.parametrize("separator", LONGER)
@pytest.mark.parametrize("ending", ["txt", "csv"])
def test_a_longer_separator_is_named(read, separator, ending):
    if separator == "_!_ " and ending == "csv":
        return
    with pytest.raises(InputError) as error:
        read(f"a.{ending}", lines(*LONGER[separator]))
    assert f"the lines have '{separator.strip()}' between columns: replace it by tabs" in str(error.value)


@pytest.mark.parametrize("separator", [" ", "^", "：", " - "])
def test_a_separator_of_one_character_is_named(read, separator):
    rows = [f"{text}{separator}{label}" for text, label in ROWS]
    with pytest.raises(
        InputError, match="cannot tell which column is the label: found only one column"
    ) as error:
        read("a.txt", lines(*rows))
    assert f"'{separator}' between columns" in str(error.value)


@pytest.mark.parametrize(
    "rows",
    [
        [f"{text},-,{label}" for text, label in ROWS],
        [f'"{text}","{label}"' for text, label in ROWS],
        [f"{text}...,{label}" for text, label in ROWS],
        [f"http://a.b/{at}::c,{text},{label}" for at, (text, label) in enumerate(ROWS)],
        [f"{text},,{label}" for text, label in ROWS],
    ],
)
def test_what_csv_may_have_between_commas_is_no_longer_separator(read, rows):
    dataset = read("a.csv", lines(*rows), text_column=1 if "http" in rows[0] else 0)
    assert dataset.label_names == NAMES


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_one_separator_in_every_line_of_texts_is_asked_about(read, separator):
    rows = [f"{text[:9]}{separator}{text[9:]}第{at}次" for at, (text, _) in enumerate(ROWS)]
    with pytest.raises(
        InputError, match="is between columns or a part of the texts: no column looks like labels"
    ):
        read("a.txt", lines(*rows))


def test_a_header_or_labels_make_a_table_of_any_text_file(read):
    rows = [f"{text},{at / 7:.3f}" for at, (text, _) in enumerate(ROWS)]
    dataset = read("a.txt", lines("内容,分数", *rows), task="regression")
    assert dataset.files["train"].columns.endswith("read as csv")
    dataset = read(
        "b.txt", lines(*(f"{text},财经" for text, _ in ROWS), *(f"{text}b,体育" for text, _ in ROWS))
    )
    assert dataset.label_names == ["体育", "财经"]


def test_a_remedy_is_for_the_format_at_hand(read):
    for name, content in (("a.jsonl", '{"text": "好"}\n'), ("a.json", '[{"text": "好"}]')):
        with pytest.raises(InputError, match="found only one column, text; add a label to each text$"):
            read(name, content)


FASTTEXT = {
    "before": "__label__{label} {text}",
    "before, with a comma": "__label__{label} , {text}",
    "after": "{text} __label__{label}",
    "before a tab": "__label__{label}\t{text}",
}


@pytest.mark.parametrize("kind", FASTTEXT)
@pytest.mark.parametrize("name", ["a.txt", "a.train", "a.csv"])
def test_lines_of_fasttext(read, kind, name):
    rows = [FASTTEXT[kind].format(text=text, label=label) for text, label in ROWS]
    assert rows_of(read(name, lines(*rows))) == ROWS


def test_several_labels_of_fasttext(read):
    rows = [f"__label__{label} __label__重点 {text}" for text, label in ROWS]
    with pytest.raises(InputError, match=r'found the list \["体育", "重点"\]'):
        read("a.txt", lines(*rows))
    assert read("a.txt", task="multi_label").label_names == sorted([*NAMES, "重点"])


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("end", ["\r\n", "\n"])
def test_utf16_without_a_mark_is_named_in_one_line(read, encoding, end):
    content = end.join(f"{text}\t{label}" for text, label in ROWS).encode(encoding)
    with pytest.raises(InputError, match=f"^[^\n]*set --data.encoding {encoding}$"):
        read("a.txt", content)
    assert rows_of(read("a.txt", encoding=encoding)) == ROWS


# Exports


def label_studio(text: str, labels: list[str], **answer) -> dict:
    result = [
        {"value": {"choices": [label]}, "from_name": "topic", "to_name": "text", "type": "choices"}
        for label in labels
    ]
    return {
        "id": 1,
        "annotations": [{"id": 7, "result": result, **answer}],
        "data": {"text": text},
        "meta": {},
    }


@pytest.mark.parametrize("ending", ["json", "jsonl"])
def test_an_export_of_label_studio(read, ending):
    tasks = [label_studio(text, [label]) for text, label in ROWS]
    # One that was taken back, before the right one
    tasks[0]["annotations"].insert(0, label_studio("", ["财经"], was_cancelled=True)["annotations"][0])
    tasks[1]["annotations"].append(label_studio("", ["财经"], was_cancelled=True)["annotations"][0])
    content = json.dumps(tasks) if ending == "json" else lines(*map(json.dumps, tasks))
    dataset = read(f"a.{ending}", content)
    assert rows_of(dataset) == ROWS
    tasks = [label_studio(text, [label, "重点"]) for text, label in ROWS]
    dataset = read("b.json", json.dumps(tasks), task="multi_label")
    assert dataset.label_names == sorted([*NAMES, "重点"])


def test_a_short_export_of_label_studio(read):
    rows = [
        {"text": text, "sentiment": {"choices": [label]} if label == "体育" else label}
        for text, label in ROWS
    ]
    assert rows_of(read("a.json", json.dumps(rows), label_column="sentiment")) == ROWS


def test_an_export_of_doccano(read):
    rows = [json.dumps({"id": at, "text": text, "label": [label]}) for at, (text, label) in enumerate(ROWS)]
    dataset = read("a.jsonl", lines(*rows))
    assert rows_of(dataset) == ROWS
    assert (
        dataset.files["train"].columns == "text 'text', label 'label'; not used: 'id'; one label in each list"
    )
    rows = [json.dumps({"text": text, "annotations": [{"label": label}]}) for text, label in ROWS]
    assert rows_of(read("b.jsonl", lines(*rows))) == ROWS
    rows = [
        json.dumps({"text": text, "annotations": [{"label": at % 4 + 5}]})
        for at, (text, _) in enumerate(ROWS)
    ]
    with pytest.raises(InputError, match="must have the names of labels, found the id 5 alone; export"):
        read("c.jsonl", lines(*rows))


# Labels that look alike


@pytest.mark.parametrize(
    "names",
    [["AI", "ai"], ["体 育", "体育"], ["體育", "体育"], ["好。", "好"], ["“好”", "好"], ["財經", "财经"]],
)
def test_labels_that_look_alike(names):
    assert look_alikes(["甲", *names, "乙"]) == [names]
