"""The report gives accuracy with and without copies of training texts: python -m pytest
tests/run/test_copies_in_train.py"""

import csv
import json
from pathlib import Path

import pytest

from app.run import main
from tests.run.test_run import SMALL
from tests.tiny import LABELS

pytestmark = pytest.mark.usefixtures("empty_folder")
KNOWN = ["桌子在门的旁边，窗户开着", "这道菜真棒，我很喜欢吃", "气死我了，东西又坏又臭烂"]
NEW = ["椅子和书柜都是新买的呀", "赞美这么好的一天", "天气差，心里很烦", "好看的书"]


def test_the_report_of_a_run_has_accuracy_without_copies():
    known = list(zip(KNOWN, LABELS, strict=True))
    train = [f"{text}{number}\t{label}" for number in range(8) for text, label in known]
    test = [f"{text}\t{LABELS[at % 3]}" for at, text in enumerate(NEW)]
    test = [f"{KNOWN[0]}3\t中性", f"{KNOWN[1]}啊\t负面", *test]
    for name, rows in (("train", train), ("test", test)):
        Path(f"{name}.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    files = ["--data.train", "train.tsv", "--data.test", "test.tsv", "--data.cache_dir", "cache"]
    assert main("single", "", [*files, *SMALL, "--data.header", "false", "--output.dir", "run"]) == 0
    report = json.loads(Path("run/report.json").read_text("utf-8"))
    with Path("run/predictions.csv").open(encoding="utf-8", newline="") as file:
        right = [row["label"] == row["predicted"] for row in csv.DictReader(file)]
    accuracies = {"accuracy": sum(right) / 6, "accuracy_without": sum(right[2:]) / 4}
    assert report["copies_in_train"] == {"rows": 2} | accuracies
    assert report["data"]["test"]["near_copies"]["rows"] == 1
    said = "2 rows are copies or near copies of training texts; accuracy without them "
    assert f"{said}{sum(right[2:]) / 4:.4f}" in Path("run/report.txt").read_text("utf-8")
    assert "near copy of a training text" in Path("run/report.html").read_text("utf-8")
