"""The sheet of a workbook, from the training to later files."""

from pathlib import Path

import pytest
import yaml

from app.commands import run_verb
from app.serving.uploads import unpack
from tests.multi_label_runs import read_predictions, values_of
from tests.tiny import tiny_lines

openpyxl = pytest.importorskip("openpyxl", reason="needs openpyxl: pip install -r requirements/dev.txt")
TINY = ["--model.name", "random", "--model.config.num_hidden_layers", "1", "--model.config.hidden_size", "16"]
TINY += ["--model.config.num_attention_heads", "2", "--train.max_steps", "1", "--train.device", "cpu"]
ROWS = [line.split("\t") for line in tiny_lines(20)[1:]]
NOTES = [["文本", "标签"], ["今天", ROWS[0][1]], ["明天", ROWS[1][1]]]


def write_book(path: Path, **sheets: list[list[str]]) -> None:
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run of the first of two sheets; no setting names it."""
    folder = tmp_path_factory.mktemp("sheets")
    write_book(folder / "train.xlsx", 反馈=[["文本", "标签"], *ROWS], 说明=NOTES)
    words = ["--data.train", str(folder / "train.xlsx"), "--data.cache_dir", str(folder / "cache"), *TINY]
    assert run_verb("train", [*words, "--output.dir", str(folder / "run")]) == 0
    return folder / "run"


@pytest.fixture
def texts_of(run, tmp_path, monkeypatch, capsys):
    """Return a function that classifies a workbook, and returns its texts and what was said of it."""
    monkeypatch.chdir(tmp_path)

    def predict(*words: str, **sheets: list[list[str]]) -> tuple[list[str], str]:
        Path("new.xlsx").unlink(missing_ok=True)
        Path("labels.csv").unlink(missing_ok=True)
        write_book(Path("new.xlsx"), **sheets)
        words = ("--checkpoint", str(run), "--device", "cpu", "--input", "new.xlsx", *words)
        assert run_verb("predict", [*words, "--output", "labels.csv"]) == 0
        return values_of(read_predictions("labels.csv"), "文本"), capsys.readouterr().err

    return predict


def test_the_report_names_the_sheets_that_were_not_read_and_the_run_keeps_the_one_that_was(run):
    log = (run / "train.log").read_text(encoding="utf-8")
    assert "; only its sheet '反馈' is read, not '说明': --data.sheet names another one" in log
    settings = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    assert settings["data"]["sheet"] == "反馈"


def test_later_workbooks_are_read_in_the_same_way_where_they_have_such_a_sheet(texts_of):
    later = [["文本", "标签"], ["后天", ROWS[0][1]]]
    texts, words = texts_of(说明=NOTES, 反馈=later)
    assert texts == ["后天"]
    assert "sheet '反馈'" in words
    texts, words = texts_of("--data.sheet", "0", 说明=NOTES, 反馈=later)
    assert texts == ["今天", "明天"]
    assert "sheet '说明'" in words
    texts, words = texts_of(Sheet1=NOTES, 其他=later)
    assert texts == ["今天", "明天"]
    assert "; only its sheet 'Sheet1' is read, not '其他'" in words


def test_a_report_and_a_file_for_the_server(run, texts_of, tmp_path, capsys):
    texts_of(Sheet1=NOTES, 其他=NOTES[:2])
    words = ["--checkpoint", str(run), "--device", "cpu", "--input", "new.xlsx", "--report", "out"]
    assert run_verb("predict", [*words, "--data.sheet", "其他", "--label_column", "标签"]) == 0
    printed = capsys.readouterr()
    assert "Report on new.xlsx: 1 row," in printed.out
    assert "new.xlsx: 1 row (" in printed.err
    assert "sheet '其他'" in printed.err
    assert run_verb("predict", [*words[:-1], "more", "--data.sheet", "再见"]) == 2
    assert (
        "there is no sheet '再见', the first one is number 0; set data.sheet to one of 'Sheet1', '其他'"
        in (capsys.readouterr().err)
    )
    settings = {"sheet": "反馈", "text_column": "文本"}
    with pytest.raises(ValueError, match="one sheet with values is needed, found 'Sheet1', '其他'; send it"):
        unpack("new.xlsx", "rows", str(run), settings, {})
    settings["sheet"] = "其他"
    assert unpack("new.xlsx", "rows", str(run), settings, {})["num_rows"] == 1
