"""What people read has its Chinese. Where not: python scripts/messages.py, and fill in what that lists."""

import ast
import asyncio
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.config.command_line import load_config
from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.errors import InputError, counted
from app.words import N_, _, current_language, in_language, rows_in_words, use_language
from scripts.messages import extracted, has_translation, read_catalog
from tests.processes import ROOT

FUNCTIONS = ("_", "N_", "ngettext", "pgettext")
HAN = re.compile("[\u3000-\u9fff\uff00-\uffef]")


def test_the_catalogue_has_the_messages_of_the_code_and_no_others():
    """Every message of the code is extracted; one inside an f-string would not be."""
    of_code = {(message.context, message.id) for message in extracted() if message.id}
    of_catalogue = {(message.context, message.id) for message in read_catalog() if message.id}
    assert of_code - of_catalogue == set(), "run scripts/messages.py"
    assert of_catalogue - of_code == set(), "no code has these"
    ids = set()
    for _context, message in of_code:
        # With a plural there are two
        ids.update([message] if isinstance(message, str) else message)
    calls = 0
    for path in sorted((ROOT / "app").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) in FUNCTIONS:
                # After the plural comes the number
                is_plural = node.func.id == "ngettext"
                last = node.args[1 if is_plural else -1]
                where = f"{path}:{node.lineno}"
                if isinstance(last, ast.Constant):
                    calls += 1
                    assert last.value in ids, where
                else:
                    # Marked by N_ in a table
                    assert isinstance(last, (ast.Name, ast.Attribute, ast.Subscript)), where
    assert calls > 100


def test_every_message_has_chinese_with_the_same_values():
    for message in (message for message in read_catalog() if message.id):
        assert has_translation(message), f"no translation of: {message.id}"
        assert not message.fuzzy, message.id
        texts = [message.id]
        translation = message.string
        if message.pluralizable:
            texts = list(message.id)
            (translation,) = message.string
        # The names of the values, without their formats
        chinese = set(re.findall(r"\{([^{}!:]*)", translation))
        for text in texts:
            assert set(re.findall(r"\{([^{}!:]*)", text)) == chinese, message.id
        assert HAN.search(translation) or not re.search("[a-z]{3}", translation), message.id


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


def test_one_has_another_word_than_more_in_english_only():
    for language, expected in (
        ("en", ["0 rows", "1 row", "1,234 rows"]),
        ("zh", ["0 行", "1 行", "1,234 行"]),
    ):
        with in_language(language):
            assert list(map(rows_in_words, (0, 1, 1234))) == expected
    assert [counted(0, "row"), counted(1, "row"), counted(1000, "row")] == ["0 rows", "1 row", "1,000 rows"]
    assert [counted(1, "class", "classes"), counted(2, "class", "classes")] == ["1 class", "2 classes"]


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


HAN_OR_MARK = "[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]"
BETWEEN = f"{HAN_OR_MARK} ?[,;:!?()] ?{HAN_OR_MARK}"
AT_AN_END = f"{HAN_OR_MARK}[,;:!?.](?= |$)"
BRACKETS = rf"{HAN_OR_MARK}\(|\){HAN_OR_MARK}"
HALF_WIDTH = re.compile(f"{BETWEEN}|{AT_AN_END}|{BRACKETS}", re.MULTILINE)


def chinese_texts() -> dict[str, str]:
    """Return what people read in Chinese, by where it stands: pages without their blocks, inline code and
    links, the catalogue, and the scripts of the served pages."""
    texts = {}
    for path in [*ROOT.glob("*.zh-CN.md"), *ROOT.glob("d*/**/*.zh-CN.md")]:
        without_blocks = re.sub(
            "^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
        )
        without_code = re.sub("`[^`]+`", "x", without_blocks)
        texts[path.name] = re.sub(r"\]\([^)]*\)", "]", without_code)
    for message in read_catalog():
        translation = "\n".join(message.string) if message.pluralizable else message.string
        texts[str(message.id)] = re.sub("`[^`]+`", "x", translation)
    for script in (ROOT / "app").rglob("page_files/script.js"):
        texts[script.parents[1].name] = script.read_text(encoding="utf-8")
    return texts


def test_chinese_has_the_punctuation_of_chinese():
    """Commas, colons and brackets between Chinese characters are full-width."""
    found = {}
    for place, text in chinese_texts().items():
        marks = [match[0] for match in HALF_WIDTH.finditer(text)]
        if marks:
            found[place] = marks
    assert found == {}
    assert HALF_WIDTH.search("悲伤 (预测的标签), 概率")
    assert not HALF_WIDTH.search("准确率 0.81（95%），宏平均 F1")


TRANSLATORS = {"_", "pgettext"}
SPEAKERS = {"say", "refuse"}  # functions of app/errors.py and app/runtime/processes.py that print errors


def name_of(function: ast.expr) -> str:
    """Return the name of what is called: of `logger.warning` that is `logger`."""
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return function.value.id
    return getattr(function, "id", "")


def is_translated(expression: ast.AST, translated_names: set[str]) -> bool:
    """Return whether an expression has a translated message, or a variable that holds one, in it."""
    for node in ast.walk(expression):
        if isinstance(node, ast.Call) and name_of(node.func) in TRANSLATORS:
            return True
        if isinstance(node, ast.Name) and node.id in translated_names:
            return True
    return False


def says_problems(call: ast.Call) -> bool:
    """Return whether a call makes an error, writes to the log, or prints on standard error."""
    name = name_of(call.func)
    return name.endswith("Error") or name == "logger" or name in SPEAKERS


def returns_error(function: ast.FunctionDef) -> bool:
    return function.returns is not None and "Error" in ast.unparse(function.returns)


def translated_problems(source: str) -> list[int]:
    """Return the lines of errors and log calls whose message is translated."""
    lines = []
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    for function in functions:
        translated_names: set[str] = set()
        for node in ast.walk(function):
            if isinstance(node, (ast.Assign, ast.AugAssign)) and is_translated(node.value, set()):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                translated_names |= {target.id for target in targets if isinstance(target, ast.Name)}
        for node in ast.walk(function):
            is_problem = isinstance(node, ast.Call) and says_problems(node)
            if isinstance(node, ast.Return):
                is_problem = returns_error(function)
            if is_problem and is_translated(node, translated_names):
                lines.append(node.lineno)
    return lines


def test_no_error_and_no_line_of_the_log_is_translated():
    for path in sorted((ROOT / "app").rglob("*.py")):
        assert translated_problems(path.read_text(encoding="utf-8")) == [], path


@pytest.mark.parametrize(
    "body",
    [
        'raise InputError(_("wrong"))',
        'raise ColumnError(_("{name} is wrong").format(name=1))',
        'message = _("wrong")\n    raise TrainingError(f"{message}: {1}")',
        'logger.warning("%s", _("wrong"))',
        'say(pgettext("of rows", "wrong"))',
        'return _("wrong")',
    ],
)
def test_a_translated_error_is_found(body):
    assert translated_problems(f"def check() -> InputError:\n    {body}\n")


@pytest.mark.parametrize(
    "words",
    ["--train.lr 1", "--train 1", "--train.epochs 0", "--train.batch_size -1", "--train.dropuot 0.1"],
)
def test_errors_of_settings_are_in_english(words):
    with in_language("zh"), pytest.raises(InputError, match="^command line: ") as error:
        load_config(words.split())
    assert not HAN.search(str(error.value))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "there are no rows, the file is empty"),
        ("text,label\n", "there are no rows in the file, only a header"),
        ("a,b,c\ngood,1,2\nbad,2,3\n", "cannot tell which column is the text"),
        ("text,label\ngood,1\n,0\nbad,0\n", ", line 3: the text is empty"),
        ("text,label\ngood,1\nbad,\n", ", line 3: the label is empty"),
        ("text,label\ngood,1\nbad,1\n", "the train file must keep rows to train on: it has 2"),
        ("text,label\ngood,1,1\nbad,0\n", ", line 2: 2 columns are needed as in the first row, found 3"),
        (None, "there is no such file"),
    ],
)
def test_errors_of_data_are_in_english(tmp_path, content, message):
    path = tmp_path / "rows.csv"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with in_language("zh"), pytest.raises(InputError, match=message) as error:
        open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache")))
    assert not HAN.search(str(error.value))
