"""The composed example of several labels a row: python -m pytest tests/data/test_composed_example.py"""

import collections
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from app.config.command_line import load_config
from app.run import work

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "data" / "composed" / "posts.jsonl"


def rows() -> list[dict]:
    return [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


def test_the_script_makes_the_very_file(tmp_path):
    subprocess.run(
        [sys.executable, ROOT / "scripts" / "compose_labels.py", tmp_path / "made.jsonl"], check=True
    )
    assert (tmp_path / "made.jsonl").read_bytes() == FILE.read_bytes()
    assert FILE.stat().st_size < 150_000


def test_the_datasheet_has_its_numbers():
    sizes = collections.Counter(len(row["labels"]) for row in rows())
    labels = collections.Counter(label for row in rows() for label in row["labels"])
    sheet = (ROOT / "data" / "composed" / "README.md").read_text(encoding="utf-8")
    header, _, numbers = re.findall(r"^\|(.*)\|$", sheet, re.MULTILINE)
    names = [cell.strip() for cell in header.split("|")]
    found = dict(zip(names, (int(cell) for cell in numbers.split("|")), strict=True))
    assert found == {"rows": len(rows()), "no label": sizes[0], "one": sizes[1], "two": sizes[2]} | labels


def test_no_text_of_the_sample_set_is_used_twice():
    sample = (ROOT / "data" / "sample" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
    everything = "\n".join(row["text"] for row in rows())
    texts = [text for text in (line.split("\t")[0] for line in sample) if len(text) > 8]
    assert max(everything.count(text) for text in texts) == 1


@pytest.mark.slow
def test_its_configuration_trains_a_tiny_model(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    settings = {f"model.config.{key}": value for key, value in sizes.items()}
    settings |= {"model.name": "null", "train.max_steps": 2, "train.device": "cpu", "train.precision": "fp32"}
    settings |= {
        "data.cache_dir": tmp_path / "cache",
        "output.dir": tmp_path / "run",
        "output.trackers": "[]",
    }
    words = [word for key, value in settings.items() for word in (f"--{key}", str(value))]
    assert work(load_config(["--config", "configs/multi_label.yaml", *words]), "single") == 0
    report = json.loads((tmp_path / "run" / "report.json").read_text(encoding="utf-8"))
    assert set(report["classes"]) == {"厌恶", "喜好", "悲伤", "愤怒", "高兴"}
    assert report["rows"] == 150
    assert report["baselines"]["TF-IDF + logistic regression"]["micro_f1"] > report["micro_f1"] > 0
