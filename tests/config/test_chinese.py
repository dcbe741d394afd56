"""What people see is there in both languages: python -m pytest tests/config/test_chinese.py"""

import ast
import logging
import re
from pathlib import Path

import pytest

from app.config.chinese import Spoken, in_chinese, shown
from app.config.command_line import load_config
from app.config.console_words import LOG_LINES
from app.config.error_words import ERRORS, RULES
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError

APP = Path(__file__).resolve().parents[2] / "app"
FIELD = re.compile(r"\{([^}!:.\[]*)[^}]*\}")
HAN = re.compile("[\u4e00-\u9fff]")
# Nobody reads these before something is damaged, or in a training
RARE = (
    "no evaluation in JSON",
    "tracker",
    "TensorBoard",
    "card",
    "damaged",
    "locked",
    "oneDNN",
    "logits are too many",
)


def pairs_of(tree: ast.Module) -> list[tuple[int, tuple[str, ...]]]:
    """Return the texts of each value of a table of words, a dict with at least one Chinese text, with its
    line."""
    found = []
    for table in (node for node in ast.walk(tree) if isinstance(node, ast.Dict)):
        values = [value for value in table.values if isinstance(value, ast.Tuple)]
        texts = [
            (value.lineno, tuple(ast.literal_eval(value)))
            for value in values
            if all(isinstance(part, ast.Constant) and isinstance(part.value, str) for part in value.elts)
        ]
        if any(HAN.search(text) for _, value in texts for text in value[1:2]):
            found += texts
    return found


def test_every_table_of_words_has_both_languages_with_the_same_values():
    count = 0
    for path in sorted(APP.rglob("*.py")):
        for line, texts in pairs_of(ast.parse(path.read_text(encoding="utf-8"))):
            count += 1
            assert len(texts) == 2, f"{path}:{line}"
            assert bool(texts[0]) == bool(texts[1]), f"{path}:{line}"
            english, chinese = (set(FIELD.findall(text)) for text in texts)
            assert english == chinese, f"{path}:{line}"
    assert count > 200


@pytest.mark.parametrize("table", [LOG_LINES, ERRORS, RULES])
def test_every_message_of_the_console_has_the_same_values_in_chinese(table):
    for english, chinese in table:
        assert sorted(set(FIELD.findall(english))) == sorted(set(FIELD.findall(chinese))), english
        assert HAN.search(chinese) or chinese == "{1}：{m}", english
        # A message inside it is a suffix, such as a nearest name, or a word
        lines = [
            FIELD.sub(lambda field, m=m: {"m": m, "n": "", "w": "x"}.get(field[1], "7"), english)
            for m in ("", "single texts")
        ]
        assert any(in_chinese(line) != line for line in lines), english


def test_every_line_of_a_log_is_in_the_table():
    missing = []
    for path in sorted(APP.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            is_log = isinstance(node, ast.Call) and ast.unparse(node.func) in (
                "logger.info",
                "logger.warning",
            )
            if not (is_log and isinstance(node.args[0], ast.Constant)) or "prediction" in path.parts:
                continue
            line = re.sub(r"%[\d.]*[a-z]", "single texts", node.args[0].value)
            if "serving" not in path.parts and line.strip("%s") and not any(word in line for word in RARE):
                missing += [] if HAN.search(in_chinese(line)) else [(path.name, line)]
    assert missing == []


@pytest.mark.parametrize(
    "words",
    [
        ["--train.lr", "1"],
        ["--train", "1"],
        ["--train.epochs", "0"],
        ["--train.batch_size", "-1"],
        ["--train.dropuot", "0.1"],
    ],
)
def test_errors_of_settings_are_said_in_chinese(words):
    with pytest.raises(InputError) as error:
        load_config(words)
    assert HAN.search(in_chinese(f"error: {error.value}"))


@pytest.mark.parametrize(
    "content",
    [
        "",
        "text,label\n",
        "a,b,c\n好,1,2\n坏,2,3\n",
        "text,label\n好,正\n,负\n坏,负\n",
        "text,label\n好,正\n坏,\n",
        "text,label\n好,正\n坏,正\n",
        "text,label\n好,正,1\n坏,负\n",
        None,
    ],
)
def test_errors_of_data_are_said_in_chinese(tmp_path, content):
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(InputError) as error:
        open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache")))
    for line in in_chinese(f"error: {error.value}").splitlines():
        assert HAN.search(line), line


def test_a_message_that_is_not_known_stays_as_it_is(monkeypatch):
    assert in_chinese("error: nobody knows this; fix it") == "error: nobody knows this; fix it"
    monkeypatch.setenv("LC_ALL", "zh_CN.UTF-8")
    assert shown("Resuming from step 3.") == "从第 3 步继续训练。"
    assert shown("Resuming from step 3.", "en") == "Resuming from step 3."
    record = logging.makeLogRecord({"msg": "Resuming from step %d.", "args": (3,)})
    assert Spoken("auto").filter(record)
    assert record.getMessage() == "从第 3 步继续训练。"
