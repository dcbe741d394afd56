"""The rules that find a header and the columns, as a table of cases.

Each case is the beginning of a file and what is read of it. A rule that changes changes a line here.
"""

import pytest

from app.data.columns import Columns
from app.data.read import ReadOptions
from app.data.row_reader import open_rows
from app.errors import InputError

OPINIONS = ["很好吃", "太慢了", "还可以", "不会再来"] * 3
TEXTS = [f"第{number}次来{text}" for number, text in enumerate(OPINIONS)]
LABELS = ["正面", "负面", "中性", "负面"] * 3
STARS = ["5", "1", "3", "2"] * 3
NUMBERS = [str(number) for number in range(12)]
SECOND_TEXTS = [f"{text}真的" for text in TEXTS]
REPLIES = [f"谢谢您的支持欢迎光临{sign}" for sign in "子丑寅卯辰巳午未申酉戌亥"]

UNCLEAR_HEADER = "cannot tell whether this is a header"
UNCLEAR_TEXT = "cannot tell which column is the text"
UNCLEAR_LABEL = "cannot tell which column is the label"
NO_HEADER = None
PAIR = ("sentence1", "sentence2", "label")


# What the first row is, the columns below it, and whether it is a header
HEADERS = [
    # Usual names of text and label make a header, whatever is below
    ("usual names", "text,label", (TEXTS, LABELS), True),
    ("usual names in capitals", " Text ,LABEL", (TEXTS, LABELS), True),
    ("Chinese names", "评论,评分", (TEXTS, STARS), True),
    # A usual name of one of them, and short cells that do not come again below
    ("only the text has a usual name", "内容,心情", (TEXTS, LABELS), True),
    ("only the label has a usual name", "话,标签", (TEXTS, LABELS), True),
    # Any short cells above numbers
    ("any names above numbers", "话,分", (TEXTS, STARS), True),
    # A usual name that is a label of the rows below is none
    ("a usual name that is a label", "服务真好,情感", (TEXTS, ["情感", "科技"] * 6), False),
    # Cells that are no names: longer than 20 characters, or numbers
    ("a long text", "今天去了一家新开的餐厅，味道真的非常好，推荐,正面", (TEXTS, LABELS), False),
    ("a number", "12,正面", (TEXTS, LABELS), False),
    # Short cells without a usual name above labels may be both
    ("may be both", "正方,类型一", (TEXTS, LABELS), UNCLEAR_HEADER),
    # One usual name and too few rows below to tell
    ("few rows", "text,y", (TEXTS[:2], LABELS[:2]), UNCLEAR_HEADER),
    ("few rows, usual names", "text,label", (TEXTS[:2], LABELS[:2]), True),
    ("few rows, no usual name", "好吃,好", (TEXTS[:2], LABELS[:2]), False),
]


# The header, the columns below it, and what text, second text and label are
COLUMNS = [
    # Usual names come first, in any order; the first of TEXT_NAMES and of LABEL_NAMES counts
    ("label,id,text", (LABELS, NUMBERS, TEXTS), ("text", None, "label")),
    ("title,content,label", (REPLIES, TEXTS, LABELS), ("content", None, "label")),
    ("text,stars,label", (TEXTS, STARS, LABELS), ("text", None, "label")),
    # One of the other names of labels, but not two
    ("text,stars,id", (TEXTS, STARS, NUMBERS), ("text", None, "stars")),
    ("text,stars,topic", (TEXTS, STARS, LABELS), UNCLEAR_LABEL),
    # The two names of a pair
    ("id,sentence1,sentence2,label", (NUMBERS, TEXTS, SECOND_TEXTS, LABELS), PAIR),
    # Values decide where names do not: texts are different and have words, labels come again
    ("text,id,心情", (TEXTS, NUMBERS, LABELS), ("text", None, "心情")),
    ("编号,话,标签", (NUMBERS, TEXTS, LABELS), ("话", None, "标签")),
    # Two columns of texts in a file with a label are a pair only where they are alike
    ("甲,乙,标签", (TEXTS, SECOND_TEXTS, LABELS), ("甲", "乙", "标签")),
    ("甲,乙,标签", (TEXTS, REPLIES, LABELS), UNCLEAR_TEXT),
    # Without names: values, then the order text, label
    (NO_HEADER, (LABELS, TEXTS), (1, None, 0)),
    (NO_HEADER, (NUMBERS, TEXTS, STARS), (1, None, 2)),
    (NO_HEADER, (TEXTS, SECOND_TEXTS, LABELS), (0, 1, 2)),
    (NO_HEADER, (TEXTS[:3], LABELS[:3]), (0, None, 1)),
    (NO_HEADER, (NUMBERS[:3], TEXTS[:3], LABELS[:3]), UNCLEAR_TEXT),
]


# Of a file without labels: the header, the columns below it, and the text
WITHOUT_LABELS = [
    ("id,text", (NUMBERS, TEXTS), "text"),
    ("id,话", (NUMBERS, TEXTS), UNCLEAR_TEXT),
    ("评论", (TEXTS,), "评论"),
    (NO_HEADER, (TEXTS,), 0),
    # The first of several columns may be the number of a row
    (NO_HEADER, (TEXTS, LABELS), UNCLEAR_TEXT),
]

# The same, of a model whose train file had no header, with the column of text that it had
LIKE_TRAIN = [
    (None, NO_HEADER, (TEXTS, LABELS), 0),
    (None, NO_HEADER, (TEXTS[:2], LABELS[:2]), 0),
    (None, NO_HEADER, (NUMBERS, TEXTS), UNCLEAR_TEXT),
    (None, "label,text", (LABELS, TEXTS), "text"),
    (1, NO_HEADER, (LABELS, TEXTS), 1),
    (1, "text,label", (TEXTS, LABELS), "text"),
    (1, "label,title", (LABELS, TEXTS), "title"),
    (1, "text,title", (TEXTS, REPLIES), "title"),
    (1, NO_HEADER, (TEXTS,), 0),
]


def write_table(path, header, columns):
    rows = [",".join(row) for row in zip(*columns, strict=True)]
    if header is not None:
        rows.insert(0, header)
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def column(columns: Columns, numbers: tuple) -> str | int | None:
    """Return the only column of a role, by its name if the file has a header."""
    if not numbers:
        return None
    [number] = numbers
    return number if columns.header is None else columns.header[number].strip()


@pytest.mark.parametrize(("name", "first", "below", "expected"), HEADERS, ids=lambda value: str(value)[:30])
def test_rules_of_headers(tmp_path, name, first, below, expected):
    path = write_table(tmp_path / "a.csv", first, below)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            open_rows(path, ReadOptions())
    else:
        reader = open_rows(path, ReadOptions())
        assert (reader.columns.header is not None) == expected


@pytest.mark.parametrize(("header", "values", "expected"), COLUMNS, ids=lambda value: str(value)[:30])
def test_rules_of_columns(tmp_path, header, values, expected):
    path = write_table(tmp_path / "a.csv", header, values)
    options = ReadOptions(header=header is not None)
    if isinstance(expected, str):
        with pytest.raises(InputError, match=expected):
            open_rows(path, options, find_pairs=True)
    else:
        columns = open_rows(path, options, find_pairs=True).columns
        roles = (columns.text, columns.pair, columns.label)
        assert tuple(column(columns, role) for role in roles) == expected


@pytest.mark.parametrize(("header", "values", "expected"), WITHOUT_LABELS)
def test_rules_of_files_without_labels(tmp_path, header, values, expected):
    check_text(write_table(tmp_path / "a.csv", header, values), ReadOptions(), expected)


@pytest.mark.parametrize(("text_column", "header", "values", "expected"), LIKE_TRAIN)
def test_rules_of_files_of_a_model_whose_train_file_had_no_header(
    tmp_path, text_column, header, values, expected
):
    options = ReadOptions(text_column=text_column, train_has_no_header=True)
    check_text(write_table(tmp_path / "a.csv", header, values), options, expected)


def check_text(path: str, options: ReadOptions, expected: str | int) -> None:
    if expected == UNCLEAR_TEXT:
        with pytest.raises(InputError, match=UNCLEAR_TEXT):
            open_rows(path, options, need_label=False)
    else:
        columns = open_rows(path, options, need_label=False).columns
        assert column(columns, columns.text) == expected
