"""What the folder of a model says about its training, in one description."""

import json
from pathlib import Path

import pytest

from app.data.read import ReadOptions
from app.data.tokens import CUT, LongTexts
from app.errors import InputError
from app.prediction.trained_model import TextColumns, TrainedModel, read_trained_model, trained_with

SETTINGS = {
    "task": "multi_label",
    "train": ["posts/a.TXT", "posts/b.csv"],
    "format": "tsv",
    "text_column": ["标题", 3],
    "encoding": "gb18030",
    "label_separator": "|",
    "labels": ["坏", "好"],
    "max_length": 48,
    "long": "windows",
    "max_windows": 3,
}


def test_a_folder_without_settings_says_nothing(tmp_path):
    trained = read_trained_model(tmp_path)
    assert trained == TrainedModel(tmp_path)
    assert not trained.is_recorded
    assert trained.has_pairs is None
    assert trained.columns == TextColumns()
    assert trained.train_suffix == ""
    assert trained.long_texts == CUT
    assert trained.settings() == {}


def test_the_settings_of_a_run_are_described_once(tmp_path):
    groups = {"data": SETTINGS, "train": {"best_metric": "micro_f1"}}
    (tmp_path / "config.yaml").write_text(json.dumps(groups), encoding="utf-8")
    trained = read_trained_model(tmp_path)
    assert trained.is_recorded
    assert trained.task == "multi_label"
    assert trained.has_pairs is False
    assert trained.columns == TextColumns(("标题", "3"))
    assert trained.train_suffix == ".txt"
    assert trained.reading == ReadOptions(
        format="tsv",
        text_column=["标题", 3],
        encoding="gb18030",
        task="multi_label",
        label_separator="|",
    )
    assert trained.max_length == 48
    assert trained.long_texts == LongTexts("windows", 3)
    assert trained.set_labels == ("坏", "好")
    assert trained.best_metric == "micro_f1"


def test_the_quoting_of_an_earlier_version_is_read_under_its_new_name(tmp_path):
    """It was called none, which unsets a setting now."""
    (tmp_path / "config.yaml").write_text(json.dumps({"data": {"quoting": "none"}}), encoding="utf-8")
    assert read_trained_model(tmp_path).reading == ReadOptions(quoting="never")


def test_the_description_is_made_again_from_its_settings(tmp_path):
    trained = trained_with(tmp_path, SETTINGS)
    again = trained_with(tmp_path, json.loads(json.dumps(trained.settings())))
    assert again.settings() == trained.settings()
    assert again.reading == trained.reading
    assert again.long_texts == trained.long_texts
    assert again.set_labels == trained.set_labels
    # The folders of the user's files are nobody else's business
    assert again.train_files == ("a.TXT",)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_length": 3}, r"config.yaml: data\.max_length must be at least 4 tokens, found 3"),
        ({"max_windows": 0}, r"config.yaml: data\.long must be one of cut, head_tail, windows, and data"),
        ({"labels": "好"}, r"config.yaml: data\.labels must be .*, found '好'; fix the file"),
        ({"encoding": 5}, r"config.yaml: data\.encoding must be .*, found 5; fix the file"),
        ({"task": "no such"}, r"config.yaml: data\.task must be .*, found 'no such'; fix the file"),
    ],
)
def test_wrong_settings_are_named_with_their_file(tmp_path, settings, message):
    (tmp_path / "config.yaml").write_text(json.dumps({"data": settings}), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_trained_model(tmp_path)


@pytest.mark.parametrize(
    ("column", "has_pairs", "message"),
    [
        ("second", False, "^model: the model was trained on pairs of texts, found single texts; remedy$"),
        (None, True, "^model: the model was trained on single texts, found pairs; remedy$"),
    ],
)
def test_texts_of_another_form_than_in_the_training_are_refused(column, has_pairs, message):
    trained = trained_with(Path("model"), {"text_pair_column": column})
    with pytest.raises(InputError, match=message):
        trained.check_pairs(has_pairs, "remedy")
    trained.check_pairs(not has_pairs, "remedy")


def test_nothing_is_refused_where_the_training_is_not_known():
    trained = TrainedModel(Path("model"))
    trained.check_pairs(True, "remedy")
    trained.check_pairs(False, "remedy")


def test_files_of_other_programs_are_no_settings_but_a_run_needs_its_own(tmp_path):
    (tmp_path / "config.yaml").write_text("model: bert\n", encoding="utf-8")
    assert not read_trained_model(tmp_path).is_recorded
    (tmp_path / "run_history.json").write_text("{}", encoding="utf-8")
    with pytest.raises(InputError, match="the settings of a run must have the group data, found"):
        read_trained_model(tmp_path)
