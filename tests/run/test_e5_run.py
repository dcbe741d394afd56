"""A run of e5-small-zh, from its data file to the pipeline of transformers: python -m pytest
tests/run/test_e5_run.py -m slow"""

from pathlib import Path

import pytest
import yaml

from app.run import main
from tests.model.tiny_e5_file import be_the_fetched_file
from tests.run.test_run import check_against_pipeline, read_predictions
from tests.tiny import write_tiny

pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.mark.slow
def test_the_default_run_is_a_plain_bert_with_the_logits_of_pipeline(tmp_path, monkeypatch, capsys):
    be_the_fetched_file(tmp_path, monkeypatch)
    data = ["--data.train", str(write_tiny(tmp_path / "rows.tsv", 20)), "--data.max_length", "16"]
    data += ["--train.device", "cpu", "--train.precision", "fp32"]
    assert main("single", "", [*data, "--output.dir", "few"]) == 0
    assert "Few rows, 60 for 3 labels" in capsys.readouterr().err
    settings = yaml.safe_load((tmp_path / "few" / "config.yaml").read_text(encoding="utf-8"))
    assert (settings["model"]["head"], settings["data"]["dev_size"]) == ("linear", 0)

    assert main("single", "", [*data, "--train.epochs", "1", "--output.dir", "linear"]) == 0
    assert "60 rows for 3 labels: a linear head is fitted first" in capsys.readouterr().err
    settings = yaml.safe_load((tmp_path / "linear" / "config.yaml").read_text(encoding="utf-8"))
    model, train = settings["model"], settings["train"]
    assert (model["head"], model["freeze"], model["prefix"]) == ("linear", None, "query: ")
    assert (train["learning_rate"], train["head_learning_rate"], train["warmup"]) == (5e-5, None, 0.3)

    assert main("single", "", [*data, "--model.head", "random", "--output.dir", "run"]) == 0
    shown = capsys.readouterr().err
    assert "Few rows" not in shown
    assert "Settings chosen for you: train.learning_rate 0.0002" in shown
    assert "(for e5-small-zh, single texts, 2 steps in an epoch)" in shown
    settings = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text(encoding="utf-8"))
    assert settings["model"]["name"] == "e5-small-zh"
    rates = settings["train"]["learning_rate"], settings["train"]["head_learning_rate"]
    assert rates == (2e-4, pytest.approx(2e-3))

    rows = read_predictions(Path("run"))
    assert len(rows) > 3
    check_against_pipeline(Path("run"), rows, [row["text"] for row in rows])
