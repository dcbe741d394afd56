"""Stopped runs resume to the same bits: python -m pytest tests/tasks/test_resumed_runs.py"""

from functools import partial
from pathlib import Path

import pytest

from app.config.command_line import load_config
from app.run import work
from tests.multi_label_runs import arguments, write_posts
from tests.stopped_run import check_resumed
from tests.tasks.test_ordinal import write_stars
from tests.tasks.test_paths import SINGLE, write_news
from tests.tasks.test_pretraining import write_texts
from tests.tasks.test_regression import write_scores
from tests.tiny import write_tiny

ONE_LABEL = {"data__task": "single_label"}
# The file of a run, the function that writes it, and the settings
RUNS = {
    "logit_adjusted": ("rows.tsv", write_tiny, ONE_LABEL | {"train__loss": "logit_adjusted"}),
    "focal": ("rows.tsv", write_tiny, ONE_LABEL | {"train__loss": "focal"}),
    "multi_label": ("posts.jsonl", write_posts, {"train__class_weights": "balanced"}),
    "regression": ("scores.jsonl", write_scores, {"data__task": "regression"}),
    "ordinal": ("stars.jsonl", partial(write_stars, names=["1", "2", "10"]), {"data__task": "ordinal"}),
    "single_path": ("news.jsonl", write_news, SINGLE),
    "masked_language_modelling": ("texts.txt", write_texts, {"data__task": "masked_language_modelling"}),
}


@pytest.mark.parametrize("kind", RUNS)
def test_a_stopped_run_resumes_to_the_same_bits(kind, tmp_path):
    name, write, settings = RUNS[kind]
    data: Path = write(tmp_path / name)
    settings = settings | {"train__epochs": 2, "train__accumulation_steps": 2, "train__save_every": 3}
    settings |= {"model__dropout": 0.1}
    assert work(load_config(arguments(data, tmp_path / "whole", **settings)), "single") == 0
    check_resumed(arguments(data, tmp_path / "cut", **settings), tmp_path / "cut", tmp_path / "whole")
