"""python -m app explain: python -m pytest tests/commands/test_explain_verb.py"""

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from app.prediction.open_model import ExportRecord, write_record
from tests.saved_classifier import LABELS, save_checkpoint
from tests.verbs import explain as main

TEXT = "今天真开心，手机质量不好"


needs_captum = pytest.mark.skipif(
    not find_spec("captum"), reason="needs captum: pip install -r requirements/explain.txt"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_checkpoint(tmp_path_factory.mktemp("run")))


@needs_captum
def test_it_prints_and_writes_a_new_page_where_one_is_asked_for(model, tmp_path, capsys, monkeypatch):
    page = tmp_path / "why.html"
    assert main([model, TEXT]) == 0
    said = capsys.readouterr()
    assert "Integrated gradients of the log-odds" in said.out
    assert said.err == ""
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert main([model, f"\u202e{TEXT}\u202e", "--html", str(page)]) == 0
    said = capsys.readouterr()
    assert "积分梯度" in said.out
    assert said.err == f"Saved in {page}\n"
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    assert "‹U+202E›" in page.read_text(encoding="utf-8")
    assert main([model, TEXT, "--html", str(page)]) == 2
    assert f"--html {page}: a new file in a folder is needed; choose another name" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--label", "没有"], "--label must be a label of the model, found '没有'"),
        (["--html", "nowhere/x.html"], "--html nowhere/x.html: a new file in a folder is needed"),
        (["--colour", "red"], "command line: unrecognized arguments"),
    ],
)
def test_what_cannot_be_explained_is_an_error(model, capsys, arguments, message):
    assert main([model, TEXT, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_other_folders_are_errors(tmp_path, capsys):
    assert main([str(tmp_path / "none"), TEXT]) == 2
    assert "there is no such folder" in capsys.readouterr().err
    made = {"from": "sample-007"}
    write_record(
        tmp_path,
        ExportRecord(LABELS, 8, "right", 0, [], "fp32", "single_label_classification", {}, {}, {}, made),
    )
    assert main([str(tmp_path), TEXT]) == 2
    assert "use the run that it was made from, sample-007" in capsys.readouterr().err


def test_without_captum_the_error_says_how_to_install_it(model, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    assert main([model, TEXT]) == 2
    assert "pip install -r requirements/explain.txt -c constraints.txt" in capsys.readouterr().err


@needs_captum
def test_settings_of_the_run_are_used(tmp_path, capsys):
    folder = Path(save_checkpoint(tmp_path))
    config = folder / "config.yaml"
    config.write_text("data: {max_length: 8, remove_spaces: true, text_pair_column: null}\n")
    assert main([str(folder), "今天 真 开心手机质量不好"]) == 0
    assert "at most 8 tokens: of 11 characters 1-6 are" in capsys.readouterr().out
    config.write_text("data: {text_pair_column: other}\n")
    assert main([str(folder), "今天"]) == 2
    assert "the model was trained on pairs of texts, found single texts" in capsys.readouterr().err


@needs_captum
def test_a_pair_is_explained(model, capsys):
    assert main([model, TEXT, "--text_pair", "手机质量不好"]) == 0
    assert "2: " in capsys.readouterr().out
