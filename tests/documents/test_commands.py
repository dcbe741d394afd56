"""Every command, option, setting and path that the documents name: python -m pytest
tests/documents/test_commands.py"""

import json
import re
import shlex
from pathlib import Path

import pytest

from app.config.schema import Config
from app.run import main
from tests.documents import commands
from tests.documents.commands import DOCUMENTS, ROOT, read
from tests.tiny import tiny_tokenizer, write_tiny

GROUPS = tuple(Config().to_dict())
RUN_FILES = (".tsv", ".csv", ".json", ".jsonl", ".log", ".md", ".txt", ".safetensors", ".yaml", ".bin", ".py")


def all_commands(document: str) -> list[list[str]]:
    text = read(document)
    return commands.fenced_commands(text) + commands.inline_commands(text)


def check_all(place: str | Path, published: list[list[str]]) -> None:
    for command in published:
        try:
            commands.check(tuple(command))
        except BaseException as error:
            raise AssertionError(f"{place}: {shlex.join(command)}: {error!r}") from error


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_command_is_parsed(document):
    check_all(document, all_commands(document))


def test_every_command_of_a_docstring_is_parsed():
    patterns = ("*.py", "app/commands/*.py", "benchmarks/**/*.py")
    scripts = [path for pattern in patterns for path in ROOT.glob(pattern)]
    published = {path: commands.docstring_commands(path) for path in scripts}
    assert len([path for path in published if published[path]]) >= 15
    for path in scripts:
        check_all(path, published[path])


def test_the_batch_scripts_are_parsed_and_resume_when_they_are_requeued():
    published = commands.batch_scripts()
    assert len(published) == 2
    check_all("examples", published)
    assert all("--resume auto" in shlex.join(command) for command in published)


def test_every_entry_script_has_a_command():
    published = {word for name in DOCUMENTS for command in all_commands(name) for word in command}
    scripts = {path.name for path in ROOT.glob("*.py")} - {"chinese_text_classifier.py"}
    assert len(scripts) >= 10
    assert scripts <= published


@pytest.mark.parametrize(
    "command",
    [
        "python run_single.py --train.epoch 3",
        "python run_none.py",
        "python predict.py --chekpoint x",
        "python verify_modes.py --step 3.5",
        "torchrun --nproc=2 run_ddp.py --no.setting 1",
        "python -m benchmarks.reference_job --train.epoch 1",
        "python -m pytest tests/none",
        'python -m pytest -m "not sloww"',
        "pip install -r requirements/none.txt",
        "bash scripts/none.sh",
    ],
)
def test_a_wrong_command_is_found(command):
    """A control: the check above can fail."""
    with pytest.raises(BaseException):  # noqa: B017, PT011 - an InputError, an exit or an assertion, by the parser
        commands.check(tuple(shlex.split(command)))


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_option_exists(document):
    for code in commands.inline_code(read(document)):
        if re.match(r"--\w", code):
            commands.check_option(code)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_setting_exists(document):
    codes = commands.inline_code(read(document))
    names = [code for code in codes if re.match(rf"({'|'.join(GROUPS)})\.\w", code)]
    words = [name.split()[0] for name in names if not name.endswith(RUN_FILES)]
    assert [name for name in words if not commands.is_setting(name)] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_path_exists(document):
    """A path is inline code that begins with a name of this repository's root, or is a Python file."""
    roots = {path.name for path in ROOT.iterdir()} - {"checkpoints", ".cache", ".git"}
    codes = (code.rstrip("/") for code in commands.inline_code(read(document)))
    paths = [code for code in codes if re.fullmatch(r"[\w.\-*]+(/[\w.\-*]+)*", code)]
    ours = [path for path in paths if path.split("/")[0] in roots and "/" in path]
    ours += [path for path in paths if path.endswith((".sh", ".yml"))]
    assert [path for path in ours if not any(ROOT.glob(path))] == []
    files = [path for path in paths if path.endswith(".py")]
    assert [path for path in files if not (ROOT / path).exists() and not any(ROOT.glob(f"*/**/{path}"))] == []


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_test_exists(document):
    """`test_file.py::test_name`; `::test_name` is of the file named before it."""
    file = ""
    for name, test in re.findall(r"`(?:[\w/]*/)?(test_\w+\.py)?::(\w+)`", read(document)):
        file = name or file
        (path,) = (ROOT / "tests").rglob(file)
        assert f"def {test}(" in path.read_text(encoding="utf-8"), f"{document}: {file} has no {test}"


SIZES = {"hidden_size": 48, "num_hidden_layers": 3, "num_attention_heads": 6, "intermediate_size": 96}


@pytest.mark.slow
def test_the_published_command_for_a_pretrained_model_runs(tmp_path):
    """The README's, with a checkpoint of `SIZES` and a file of tiny rows; `run_single.py` itself is run by
    tests/run/test_run.py. The sizes are the checkpoint's, not those of the model with random weights."""
    import torch
    from transformers import BertConfig, BertForMaskedLM

    readme = commands.fenced_commands(read("README.md"))
    (published,) = [command for command in readme if "hfl/chinese-macbert-base" in command]
    torch.manual_seed(0)
    tokenizer = tiny_tokenizer(characters="差坏烂臭烦气书桌门窗椅柜好棒美赞爱喜的一0123456789")
    BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **SIZES)).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    lines = write_tiny(tmp_path / "reviews.tsv", rows_per_label=12).read_text(encoding="utf-8")
    (tmp_path / "reviews.csv").write_text(lines.replace("\t", ","), encoding="utf-8")

    files = {"hfl/chinese-macbert-base": tmp_path / "bert", "reviews.csv": tmp_path / "reviews.csv"}
    program, *words = [str(files.get(word, word)) for word in published]
    assert program == "python"
    folders = ["--output.dir", str(tmp_path / "run"), "--data.cache_dir", str(tmp_path / "cache")]
    script, *settings = words
    assert script == "run_single.py"
    assert main("single", "", [*settings, *folders]) == 0
    assert "Report on test" in (tmp_path / "run" / "report.txt").read_text(encoding="utf-8")
    saved = json.loads((tmp_path / "run" / "config.json").read_text(encoding="utf-8"))
    assert {key: saved[key] for key in SIZES} == SIZES
