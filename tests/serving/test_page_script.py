"""The page reads a file as the run did: python -m pytest tests/serving/test_page_script.py; needs node"""

import shutil
import subprocess
from pathlib import Path

import pytest

pytest.importorskip("fastapi")
from app.serving.served_page import FOLDER

NODE = shutil.which("node")


@pytest.mark.skipif(NODE is None, reason="there is no node here")
def test_the_page_reads_files_by_the_settings_of_the_run():
    command = [NODE, Path(__file__).with_name("page_script.js"), FOLDER / "script.js"]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
