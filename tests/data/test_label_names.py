"""Labels that may be mistakes: python -m pytest tests/data/test_labels.py"""

import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.labels import look_alikes, missing_values
from app.data.report import render
from app.data.tokens import open_store


@pytest.mark.parametrize(
    "names",
    [
        ["好", "好\u200b"],
        ["1", "\uff11"],
        ["1", "01"],
        ["caf\u00e9", "cafe\u0301"],
        ["好 评", "好\u3000评"],
        ["❤", "❤\ufe0f"],
    ],
    ids=["zero width", "full width", "leading zero", "accent", "space", "variation"],
)
def test_labels_that_look_alike(names):
    assert look_alikes(["甲", *names, "乙"]) == [names]


def test_labels_that_are_different():
    assert look_alikes(["好", "坏", "1", "10", "-1", "a", "A", "1.0", "0"]) == []


def test_names_of_missing_values():
    assert missing_values(["nan", "好", "None", "NA", "N/A", "null", "<NA>", "nano", ""]) == [
        *("nan", "None", "NA", "N/A", "null", "<NA>")
    ]


def test_the_data_report_warns_in_one_line_of_each(write, tmp_path, tiny_tokenizer):
    labels = ["好", "好\u200b", "1", "01", "nan"]
    lines = "".join(f"文本{number}{label}\t{label}\n" for number in range(4) for label in labels)
    config = DataConfig(
        train=str(write("a.tsv", lines)), cache_dir=str(tmp_path / "cache"), dev_size=0, test_size=0
    )
    dataset = open_dataset(config)
    stores = {
        name: open_store(split.table, tiny_tokenizer, 8, config.cache_dir)
        for name, split in dataset.splits.items()
    }
    warnings = [line for line in render(dataset, stores).splitlines() if "warning" in line]
    assert warnings == [
        "  warning: labels that look alike are different classes: '01' (U+0030 U+0031) and '1' (U+0031); "
        "'好' (U+597D) and '好\\u200b' (U+597D U+200B)",
        "  warning: the class 'nan' looks like a missing label",
        "  warning: 5 classes have fewer than 20 rows in train, the smallest 01 4: a model learns little of "
        "them, and figures on dev and test vary by chance",
    ]
