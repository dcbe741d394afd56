"""Every command that a run prints for people can be copied, for every kind of answer."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app.commands import run_verb
from app.config.command_line import load_config
from app.report.commands import quoted
from app.run import work
from tests.copied_commands import run_here, run_in_shell
from tests.multi_label_runs import arguments, train
from tests.ranks import run_forked
from tests.tasks.test_every_kind import KINDS, MASKED, write_lines
from tests.tiny import tiny_lines
from tests.verbs import export

COMMAND = re.compile(r"((?:PYTHONPATH=\S+ )?python .*)$", re.MULTILINE)
# What a shell would take for its own
FOLDER = 'it\'s a $(false) "folder"; & 数据'


def labelled_texts() -> pd.DataFrame:
    """Return 60 rows with the columns text and label."""
    rows = [line.split("\t") for line in tiny_lines(20)[1:61]]
    return pd.DataFrame(rows, columns=["text", "label"])


def write_pairs() -> dict:
    table = labelled_texts()
    pairs = pd.DataFrame({"q 1": table["text"], "q'2": table["text"].str[::-1], "same": table["label"]})
    write_lines(Path("pairs & more.jsonl"), pairs.to_dict("records"))
    return {
        "data__train": "pairs & more.jsonl",
        "data__text_column": "q 1",
        "data__text_pair_column": "q'2",
        "data__label_column": "same",
    }


def write_scores() -> dict:
    """Write scores of pairs of texts."""
    texts = labelled_texts()["text"]
    scores = np.random.default_rng(0).random(len(texts)).round(3)
    table = pd.DataFrame({"sentence1": texts, "sentence2": texts.str[::-1], "score": scores})
    table.to_csv("scores.tsv", sep="\t", index=False)
    return {"data__train": "scores.tsv", "data__task": "regression"}


def write_columns() -> dict:
    """Write two files with texts in two columns, in GB18030."""
    rows = labelled_texts()
    texts = rows["text"].str
    table = pd.DataFrame({"标题": texts[:1], "内 容": texts[1:], "类": rows["label"]})
    table[:30].to_csv(Path("-a.csv"), index=False, encoding="gb18030")
    table[30:].to_csv(Path("b;c.csv"), index=False, encoding="gb18030")
    return {
        "data__train": "[./-a.csv, b;c.csv]",
        "data__encoding": "gb18030",
        "data__text_column": "[标题, 内 容]",
        "data__label_column": "类",
    }


def write_single() -> dict:
    write_lines(Path("rows.jsonl"), labelled_texts().to_dict("records"))
    return {"data__train": "rows.jsonl"}


FORMS = {
    "pairs": write_pairs,
    "scores": write_scores,
    "columns": write_columns,
    "single": write_single,
}


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The current folder, with a name of which every part must be quoted."""
    folder = tmp_path / FOLDER
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def train_in(run: str, settings: dict) -> Path:
    """Train a run in the current folder."""
    usual = {"data__task": "single_label", "train__max_steps": 2, "data__cache_dir": "cache"}
    train(Path("unused"), Path(run), **usual | settings)
    return Path(run)


def printed_commands(text: str) -> list[str]:
    """Return the commands in what was printed, each once."""
    return list(dict.fromkeys(COMMAND.findall(text)))


def commands_of(run: Path) -> list[str]:
    texts = [(run / name).read_text("utf-8") for name in ("train.log", "report.txt")]
    return printed_commands("\n".join(texts))


def refuse_other_columns(model: Path, capsys) -> None:
    """A usual name is in no setting of the run, and the error knows it all the same."""
    Path("other.csv").write_text("甲,乙,丙\n1,今天真开心,x\n", encoding="utf-8")
    assert run_verb("predict", [str(model), "--input", "other.csv"]) == 2
    message = capsys.readouterr().err
    assert "the run was trained on column 'text', and the first row of this file has 甲, 乙, 丙;" in message
    assert "name the column with --text_column NAME or its number from 0, or set --format text" in message
    assert run_verb("predict", [str(model), "--input", "other.csv", "--text_column", "乙"]) == 0


@pytest.mark.parametrize("form", FORMS)
def test_the_command_after_a_run_classifies(form, folder, capsys):
    run = train_in("run of 'today'", FORMS[form]())
    [command] = [command for command in commands_of(run) if "predict.py" in command]
    assert run_here(command) == 0
    if form == "single":
        refuse_other_columns(run, capsys)
        return
    labels = pd.read_csv("run of 'today'-labels.csv")
    assert len(labels) == (30 if form == "columns" else 60)
    answer = "predicted_score" if form == "scores" else "label"
    assert labels[answer].notna().all()


def test_the_end_of_a_run_says_where_its_page_is_and_how_its_state_is_removed(folder, capsys):
    """The commands are at the end of their lines; what is removed was only for a longer training."""
    run = train_in("run of 'today'", write_single())
    log = (run / "train.log").read_text("utf-8")
    page = re.search(r"  report, for a browser: (.*)$", log, re.MULTILINE)[1]
    assert Path(page) == run / "report.html"
    assert Path(page).exists()
    found = re.search(r"state, ([\d.,]+) MB, only .*; remove it with: (.*)$", log, re.MULTILINE)
    size, command = found.groups()
    state_files = [path.stat() for path in (run / "state").rglob("*") if path.is_file()]
    own_bytes = [status.st_size for status in state_files if status.st_nlink == 1]
    assert float(size) == round(sum(own_bytes) / 1e6, 1)
    # The last step was the best: weights and best weights are those of the model
    assert len(own_bytes) == len(state_files) - 2
    before = {path.name for path in run.iterdir()}
    run_in_shell(command)
    assert before - {path.name for path in run.iterdir()} == {"state"}
    [predict] = [command for command in commands_of(run) if "predict.py" in command]
    assert run_here(predict) == 0
    longer = write_single() | {"data__task": "single_label", "output__resume": "auto", "train__epochs": 9}
    assert work(load_config(arguments(Path("unused"), run, **longer)), "single") == 2
    assert "holds a finished run; choose another output.dir, train it for longer" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMS)
def test_the_command_after_an_export_classifies(form, folder, capsys):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    run = train_in("run", FORMS[form]())
    capsys.readouterr()
    assert export([str(run), "--output", "an onnx"]) == 0
    [command] = printed_commands(capsys.readouterr().out)
    assert run_here(command) == 0
    if form == "single":
        refuse_other_columns(Path("an onnx"), capsys)


def write_kind(name: str) -> dict:
    kind_of_answer = KINDS[name]
    kind_of_answer.write(Path(kind_of_answer.file))
    settings = {"data__train": kind_of_answer.file, "data__task": name} | kind_of_answer.settings
    return settings | {"train__epochs": 1}


def write_pool(data: Path) -> None:
    """Write new.csv, which has the columns of a data file."""
    table = pd.read_json(data, lines=True, dtype=False, convert_dates=False)[:40]
    table = table.drop(columns=["label", "labels", "score", "same"], errors="ignore")
    first = table.columns[0]
    table[first] = "新的" + table[first]
    table.to_csv("new.csv", index=False)


# Their commands have every form: with a text, with files, folds, rows to label, training from a checkpoint
IN_A_SHELL = ("pairs", "rare_class", MASKED)
LONG: dict[str, Callable[[], dict]] = {"pairs": write_pairs, "single": write_single}
for kind_name in KINDS:
    LONG[kind_name] = partial(write_kind, kind_name)


@pytest.mark.slow
@pytest.mark.parametrize("name", LONG)
def test_every_command_that_a_run_prints_can_be_copied_into_a_shell(name, folder, monkeypatch):
    """Some kinds have commands of every form, which run in a shell; it makes the words of the others."""
    settings = LONG[name]()
    run = train_in("a run", {"train__max_steps": "null", "train__epochs": 1} | settings)
    write_lines(Path("rows.tsv"), labelled_texts().to_dict("records"))
    if name != MASKED:
        write_pool(Path(settings["data__train"]))
    commands = commands_of(run)
    # To classify, to train with other seeds, and what to do next
    fewest = 3
    if name in ("rare_class", "multi_label"):
        fewest = 2
    if name == MASKED:
        fewest = 1
    assert len(commands) >= fewest
    monkeypatch.setattr("app.runs.series.run_to_end", run_forked)
    for command in commands:
        # Fewer folds and seeds are as good here, and take less time
        command = command.replace("--folds 5", "--folds 2").replace("--seeds 5", "--seeds 2")
        if name in IN_A_SHELL:
            run_in_shell(command)
        else:
            assert run_here(command) == 0


def test_words_are_quoted_where_a_shell_needs_it():
    plain = ["今天真开心", "checkpoints/sample-001", "--data.train=a.csv"]
    assert [quoted(word) for word in plain] == plain
    words = ["", "a b", "it's", "$(rm x)", "[a, b]", "*", "！", "a\nb", "\x1b[2J'\\", "\udcff.csv"]
    line = " ".join(map(quoted, words))
    assert "\n" not in line
    assert "\x1b" not in line
    code = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(code)} {line}"
    printed = subprocess.run(["bash", "-c", command], capture_output=True, check=True).stdout
    assert [os.fsdecode(word) for word in printed.split(b"\0")] == words
