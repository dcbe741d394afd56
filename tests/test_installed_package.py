"""The package as pip installs it: beside an app of the project, and the commands that it prints."""

import shlex
import sys
from pathlib import Path

import pytest

from tests.copied_commands import run_in_shell
from tests.multi_label_runs import arguments
from tests.processes import ROOT, finish
from tests.saved_classifier import LABELS
from tests.training.test_next_commands import FOLDER, commands_of, write_pairs

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """A folder with the package."""
    folder = tmp_path_factory.mktemp("site")
    install = shlex.split("-m pip install --quiet --no-deps --no-compile --target")
    finish([sys.executable, *install, str(folder), str(ROOT)], status=0)
    names = {path.name.partition("-")[0] for path in folder.iterdir()}
    assert names == {"chinese_text_classifier", "chinese_text_classification", "bin"}
    return folder


PROJECT = """
import app
from chinese_text_classifier import TextClassifier, TextRegressor, load
from chinese_text_classifier.words import _, in_language
print(app.NAME)
with in_language('zh'): print(_('rows'))
print(load({!r}, device='cpu').predict(['今天真开心'])[0])
tiny = {{'model.config': {{'num_hidden_layers': 1, 'hidden_size': 16, 'num_attention_heads': 2}}}}
classifier = TextClassifier(model='random', max_steps=1, device='cpu', settings=tiny)
print(classifier.fit(['好', '坏'] * 8, ['喜好', '厌恶'] * 8).predict(['好'])[0])
"""


def test_the_installed_package_works_beside_an_app_of_the_project(site, tmp_path, checkpoint):
    """In the folder of a program with a package `app`, as web projects have one."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("NAME = 'the app of the project'\n")

    def run(*words: str) -> str:
        done = finish(list(words), tmp_path, timeout=500, status=0, PYTHONPATH=str(site))
        return done.stdout + done.stderr

    assert run(str(site / "bin/chinese-text-classifier")).startswith("usage: chinese-text-classifier VERB")
    name, words, loaded, trained, *_ = run(sys.executable, "-c", PROJECT.format(str(checkpoint))).splitlines()
    assert (name, words) == ("the app of the project", "样本数")
    assert loaded in LABELS
    assert trained in ("喜好", "厌恶")
    words = shlex.split("--steps 2 --modes ddp mp --processes 1 --data.limit 200 --model.name=random")
    words += shlex.split("--model.config.num_hidden_layers 1 --model.config.hidden_size=16")
    words += ["--model.config.num_attention_heads=2"]
    assert "app.NAME" not in run(sys.executable, "-m", "chinese_text_classifier", "verify", *words)


def test_the_commands_of_an_installed_package_have_its_name(site, tmp_path, monkeypatch):
    folder = tmp_path / FOLDER
    folder.mkdir()
    monkeypatch.chdir(folder)
    settings = write_pairs() | {"train__max_steps": 1, "data__task": "single_label"}
    words = shlex.join(arguments(Path("unused"), Path("a run"), **settings))
    program = "python -m chinese_text_classifier"
    run_in_shell(f"{program}.run single {words}", PYTHONPATH=str(site))
    commands = commands_of(Path("a run"))
    verbs = [command.removeprefix(f"{program} ").split()[0] for command in commands]
    # Other seeds, and folds
    assert verbs == ["predict", "cross-validate", "cross-validate", "suggest"]
    run_in_shell(commands[0], PYTHONPATH=str(site))
    code = "from chinese_text_classifier.errors import install_command; print(install_command('serve'))"
    printed = run_in_shell(f"python -c {shlex.quote(code)}", PYTHONPATH=str(site))
    assert printed == "pip install 'chinese-text-classification[serve]'\n"
