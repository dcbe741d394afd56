"""Horovod: its launcher works, and a start in which each process would train alone is refused.

python -m pytest tests/modes/test_horovod.py -m slow
"""

import sys

import pytest

from app.modes import load_mode
from tests.modes.launched import run
from tests.processes import finish

HOROVOD = load_mode("horovod")
needs_horovod = pytest.mark.skipif(
    HOROVOD.unavailable_reason() is not None, reason="Horovod is not installed"
)


def test_without_the_package_one_line_says_how_to_install_it(tmp_path):
    # Hides what may be installed, as an install without torch does
    (tmp_path / "horovod").mkdir()
    (tmp_path / "horovod" / "__init__.py").write_text("")
    done = finish([sys.executable, "run_horovod.py"], PYTHONPATH=str(tmp_path))
    assert done.returncode == 2
    assert "install it: bash scripts/install_horovod.sh" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@needs_horovod
@pytest.mark.slow
def test_its_own_launcher(tmp_path):
    settings = ["--train.precision", "bf16"]
    done = run(HOROVOD.launcher.command(["run_horovod.py"], 2), tmp_path, *settings)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "2 process(es)" in done.stderr + done.stdout
    assert done.stdout.count("Report on test") == 1


@needs_horovod
@pytest.mark.slow
def test_torchrun_would_train_alone_and_is_refused(tmp_path):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"]
    done = run([*torchrun, "run_horovod.py"], tmp_path)
    assert done.returncode != 0
    assert "2 processes were asked for, but Horovod has 1, each training alone" in done.stderr
