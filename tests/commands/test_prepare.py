"""python -m app prepare fills the cache that a run only reads: python -m pytest
tests/commands/test_prepare.py"""

import json
import shutil
from dataclasses import replace

import pytest

from app.checkpoints.job import cache_content
from app.config.command_line import load_config
from app.modes import open_mode
from app.training.build import build
from tests.tiny import SIZES, write_tiny
from tests.verbs import prepare as main


def test_a_run_reads_the_prepared_cache_wherever_it_is(tmp_path, capsys):
    rows, prepared = write_tiny(tmp_path / "rows.tsv"), tmp_path / "prepared"
    settings = ["--data.train", str(rows), "--data.max_length", "16", "--model.config", json.dumps(SIZES)]
    settings += ["--train.threads", "1"]
    assert main([*settings, "--data.cache_dir", str(prepared)]) == 0
    printed = capsys.readouterr().out
    assert "rows.tsv: 60 rows" in printed
    moved = shutil.copytree(prepared, tmp_path / "moved")
    shutil.rmtree(prepared)
    before = {path: path.stat().st_mtime_ns for path in moved.rglob("*")}
    copy = shutil.copy(rows, tmp_path / "copy.tsv")
    config = load_config([*settings, "--data.train", str(copy), "--data.cache_dir", str(moved)])
    config = replace(config, train=replace(config.train, device="cpu", seed=7))
    with open_mode("single", config) as mode:
        components = build(mode.config, mode)
    assert {path: path.stat().st_mtime_ns for path in moved.rglob("*")} == before
    content = cache_content(components.dataset, components.stores)
    assert printed.endswith(f"Prepared in {prepared}, content {content}\n")


def test_what_is_wrong_with_the_data_is_said(tmp_path, capsys):
    assert main(["--data.train", str(tmp_path / "no.tsv"), "--data.cache_dir", str(tmp_path)]) == 2
    assert "no.tsv: there is no such file" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="0"):
        main(["--help"])
    assert "mount it read-only" in capsys.readouterr().out
