"""What people read has its Chinese. Where not: python scripts/messages.py, and fill in what that lists."""

import ast
import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.words import N_, _, current_language, in_language, use_language
from scripts.messages import extracted, read_catalog
from tests.processes import ROOT

HAN = re.compile("[\u3000-\u9fff\uff00-\uffef]")


def test_the_catalogue_has_the_messages_of_the_code_and_no_others():
    """Every message of the code is extracted; one inside an f-string would not be."""
    of_code = {(message.context, message.id) for message in extracted() if message.id}
    of_catalogue = {(message.context, message.id) for message in read_catalog() if message.id}
    assert of_code - of_catalogue == set(), "run scripts/messages.py"
    assert of_catalogue - of_code == set(), "no code has these"
    ids = {message for _context, message in of_code}
    calls = 0
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in ("_", "N_", "pgettext"):
                last = node.args[-1]
                where = f"{path}:{node.lineno}"
                if isinstance(last, ast.Constant):
                    calls += 1
                    assert last.value in ids, where
                else:
                    # Marked by N_ in a table
                    assert isinstance(last, (ast.Name, ast.Attribute, ast.Subscript)), where
    assert calls > 150


def test_every_message_has_chinese_with_the_same_values():
    for message in (message for message in read_catalog() if message.id):
        assert message.string, f"no translation of: {message.id}"
        assert not message.fuzzy, message.id
        # The names of the values, without their formats
        english, chinese = (set(re.findall(r"\{([^{}!:]*)", text)) for text in (message.id, message.string))
        assert english == chinese, message.id
        assert HAN.search(message.string) or not re.search("[a-z]{3}", message.string), message.id


@pytest.mark.parametrize(
    ("names", "language"),
    [
        ({}, "en"),
        ({"LANG": "zh_CN.UTF-8"}, "zh"),
        ({"LANG": "zh_CN.UTF-8", "LC_MESSAGES": "de_DE.UTF-8"}, "en"),
        ({"LANG": "C", "LC_MESSAGES": "C", "LC_ALL": "zh_TW"}, "zh"),
    ],
)
def test_auto_is_the_language_of_the_locale(monkeypatch, names, language):
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in names.items():
        monkeypatch.setenv(name, value)
    use_language("auto")
    assert current_language() == language
    with in_language("zh"):
        assert _("accuracy") == "准确率"
        with in_language("en"):
            assert _("accuracy") == N_("accuracy") == "accuracy"


def test_the_language_of_a_process_is_that_of_its_threads_and_a_block_or_a_task_has_its_own():
    async def answer(language: str) -> str:
        with in_language(language):
            await asyncio.sleep(0)
            return await asyncio.to_thread(_, "accuracy")

    async def answers() -> list[str]:
        return await asyncio.gather(*map(answer, ("en", "zh", "en")))

    use_language("zh")
    with ThreadPoolExecutor() as threads, in_language("en"):
        assert threads.submit(_, "accuracy").result() == "准确率"
        assert _("accuracy") == "accuracy"
    assert _("accuracy") == "准确率"
    assert asyncio.run(answers()) == ["accuracy", "准确率", "accuracy"]


@pytest.mark.parametrize(
    "words",
    ["--train.lr 1", "--train 1", "--train.epochs 0", "--train.batch_size -1", "--train.dropuot 0.1"],
)
def test_errors_of_settings_are_said_in_chinese(words):
    with in_language("zh"), pytest.raises(InputError, match="^命令行：.*[应没组]"):
        load_config(words.split())


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "没有数据，文件是空的"),
        ("text,label\n", "文件里只有表头，没有数据"),
        ("a,b,c\n好,1,2\n坏,2,3\n", "看不出哪一列是文本"),
        ("text,label\n好,正\n,负\n坏,负\n", " 第 3 行：文本是空的"),
        ("text,label\n好,正\n坏,\n", " 第 3 行：标签是空的"),
        ("text,label\n好,正\n坏,正\n", "训练文件要留下用来训练的行：共 2 行"),
        ("text,label\n好,正,1\n坏,负\n", " 第 2 行：应与第一行一样有 2 列，实际有 3 列"),
        (None, "没有这个文件"),
    ],
)
def test_errors_of_data_are_said_in_chinese(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with in_language("zh"), pytest.raises(InputError, match=message) as error:
        open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache")))
    assert all(HAN.search(line) for line in str(error.value).splitlines())
