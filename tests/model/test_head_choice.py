"""How a head starts that is chosen by itself: python -m pytest tests/model/test_head_choice.py"""

from dataclasses import replace

import pytest

from app.checkpoints.run_history import HISTORY, write_config
from app.checkpoints.saving_and_resuming import with_saved_choices
from app.config.command_line import load_config
from app.config.schema import Config
from app.config.shipped import DEFAULT_CONFIG, FEW_LABELS_CONFIG
from app.model.recipe import MAX_ROWS, with_head, with_linear_start

NEW = "--data.train=new.csv"
FEW = 2 * 8


def load(*words: str) -> Config:
    return load_config(["--config", str(DEFAULT_CONFIG), NEW, *words])


def test_few_rows_of_a_plain_run_have_the_settings_of_the_file(caplog):
    caplog.set_level("INFO")
    chosen = with_head(load("--train.seed=3", "--data.max_length=64"), FEW, 2, False)
    wanted = load_config(["--config", str(FEW_LABELS_CONFIG), NEW, "--train.seed=3", "--data.max_length=64"])
    assert replace(chosen, output=wanted.output) == wanted
    assert "Few rows, 16 for 2 labels" in caplog.text
    assert "--model.head random trains the encoder" in caplog.text
    with_dev = with_head(load("--data.dev=dev.csv"), FEW, 2, False)
    assert (with_dev.model.head, with_dev.data.dev) == ("linear", "dev.csv")
    # A choice that was made is not made again
    assert with_head(chosen, 10**6, 2, False) == chosen


@pytest.mark.parametrize(
    "words",
    [
        "--model.head=random",
        "--model.freeze=embeddings",
        "--model.name=hfl/chinese-macbert-base",
        "--model.lora_rank=8",
        "--data.task=multi_label",
        "--data.task=ordinal",
    ],
)
def test_a_head_is_random_where_no_other_was_measured(words, caplog):
    caplog.set_level("INFO")
    config = load(words)
    unchanged = replace(config, model=replace(config.model, head="random"))
    assert with_head(config, FEW, 2, False) == unchanged
    assert not caplog.text


@pytest.mark.parametrize(
    "words",
    [
        "--train.epochs=3",
        "--train.max_steps=9",
        "--train.learning_rate=1e-4",
        "--train.class_weights=balanced",
        "--data.dev_size=0.2",
        "--verb={use_test: false}",
    ],
)
def test_the_encoder_of_few_rows_is_trained_where_a_setting_says_how(words, caplog):
    caplog.set_level("INFO")
    config = load(words)
    assert with_head(config, FEW, 2, False) == with_linear_start(config)
    assert "a linear head is fitted first, then all weights are trained" in caplog.text


@pytest.mark.parametrize(
    ("rows", "labels", "has_pairs", "head"),
    [
        (10_000, 2, False, "linear"),
        (MAX_ROWS + 1, 2, False, "random"),
        (FEW, 1, False, "random"),
        (FEW, 2, True, "random"),
    ],
)
def test_the_rows_decide(rows, labels, has_pairs, head):
    model = with_head(load(), rows, labels, has_pairs).model
    assert (model.head, model.freeze) == (head, None)


def test_the_head_of_the_sample_set_is_random():
    assert with_head(load_config(["--config", str(DEFAULT_CONFIG)]), FEW, 6, False).model.head == "random"


@pytest.mark.parametrize("rows", [FEW, 10_000, MAX_ROWS + 1])
def test_a_resumed_run_keeps_its_head(tmp_path, rows):
    started = with_head(load(f"--output.dir={tmp_path}"), rows, 2, False)
    (tmp_path / HISTORY).write_text("{}")
    write_config(tmp_path, started)
    again = with_saved_choices(load(f"--output.dir={tmp_path}", "--output.resume=auto"))
    for other_rows in (FEW, 10_000, MAX_ROWS + 1):
        resumed = with_head(again, other_rows, 2, False)
        assert replace(resumed, output=started.output) == started
