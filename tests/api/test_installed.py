"""The installed package, used from a project with an app/ of its own: python -m pytest -m slow
tests/api/test_installed.py"""

import os
import subprocess
import sys
from pathlib import Path
from shlex import split

import pytest

from tests.saved_classifier import LABELS, save_checkpoint

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """Return a folder in which pip has installed the package."""
    site = tmp_path_factory.mktemp("installed") / "site-packages"
    words = split("-m pip install --quiet --no-deps --no-compile --target")
    subprocess.run([sys.executable, *words, str(site), str(ROOT)], check=True)
    return site


@pytest.fixture
def project(tmp_path) -> Path:
    """Return the folder of a program with a package `app`, as web projects have one."""
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("NAME = 'the app of the project'\n")
    return tmp_path


def run(project: Path, installed: Path, *arguments: str) -> subprocess.CompletedProcess:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"PYTHONPATH": str(installed), "OMP_NUM_THREADS": "1"}
    return subprocess.run(arguments, cwd=project, env=environment, capture_output=True, text=True)


@pytest.mark.slow
def test_one_package_is_installed_with_its_command_and_it_is_not_called_app(installed, project):
    assert {path.name.partition("-")[0] for path in installed.iterdir()} == {
        *("chinese_text_classifier", "chinese_text_classification", "bin"),
    }
    done = run(project, installed, str(installed / "bin" / "chinese-text-classifier"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("usage: chinese-text-classifier VERB")
    chinese = (
        "from chinese_text_classifier.words import _, in_language\nwith in_language('zh'): print(_('rows'))"
    )
    done = run(project, installed, sys.executable, "-c", chinese)
    assert done.stdout == "样本数\n"


@pytest.mark.slow
def test_load_and_text_classifier_work_beside_an_app_of_the_project(installed, project, tmp_path):
    model = save_checkpoint(tmp_path / "model")
    (project / "main.py").write_text(
        "import sys\n"
        "import app\n"
        "from chinese_text_classifier import TextClassifier, load\n"
        "print(app.NAME)\n"
        "print(load(sys.argv[1], device='cpu').predict(['今天真开心'])[0])\n"
        "tiny = {'model.config': {'num_hidden_layers': 1, 'hidden_size': 16, 'num_attention_heads': 2}}\n"
        "classifier = TextClassifier(max_steps=1, device='cpu', settings=tiny)\n"
        "print(classifier.fit(['好', '坏'] * 8, ['喜好', '厌恶'] * 8).predict(['好'])[0])\n"
    )
    done = run(project, installed, sys.executable, "main.py", str(model))
    assert done.returncode == 0, done.stderr
    name, loaded, trained = done.stdout.splitlines()
    assert name == "the app of the project"
    assert loaded in LABELS
    assert trained in ("喜好", "厌恶")


@pytest.mark.slow
def test_the_command_trains_several_processes_beside_an_app_of_the_project(installed, project):
    words = ["--steps", "2", "--modes", "ddp", "mp", "--model.config.num_hidden_layers", "1"]
    done = run(project, installed, sys.executable, "-m", "chinese_text_classifier", "verify", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "app.NAME" not in done.stderr
