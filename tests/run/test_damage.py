"""Files that the program reads back of its own, each of them damaged in many ways: it is said which one, with
what helps, or a part of the cache is built again. Nothing answers otherwise, and nothing is a traceback."""

import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import yaml

from app.checkpoints.run_files import HISTORY
from app.checkpoints.run_history import read_starts
from app.config.schema import Config, DataConfig, ModelConfig
from app.data.dataset import open_dataset
from app.errors import InputError
from app.model.tokenizer import load_tokenizer
from app.prediction.open_model import ComputeOptions, open_model
from app.prediction.trained_model import choose_run
from app.run import main
from app.runs.comparison import compare_runs
from app.runs.series import JOB, Series, read_report
from app.training.build import open_stores
from app.training.metrics_file import read_evaluations
from tests.ranks import settings
from tests.saved_classifier import as_rows
from tests.tiny import write_tiny

TEXTS = ["好美", "坏烂", "书桌", "好坏一的", "赞"]
CPU = ComputeOptions("cpu")


def flip_a_bit(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 4]) + content[middle + 1 :]


def with_wrong_types(content: bytes) -> bytes:
    """Give each value of an object another type; a file that is no object becomes a list of numbers."""
    try:
        values = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError):
        values = None
    if not isinstance(values, dict):
        return b"[1, 2]"
    wrong = {key: 5 if isinstance(value, (str, list, dict)) else {"a": "b"} for key, value in values.items()}
    return json.dumps(wrong, default=str).encode()


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "no keys": lambda content: b"{}",
    "a number": lambda content: b"5",
    "a list": lambda content: b"[]",
    "wrong types": with_wrong_types,
    "deep": lambda content: b"[" * 200_000,
    "deep in an object": lambda content: b'{"a": ' * 200_000,
    "cut off": lambda content: content[: len(content) // 2],
    "a bit flipped": flip_a_bit,
    "no UTF-8": lambda content: b"\xff\xfe\x00" + content,
}


def damage(path: Path, fault: str) -> None:
    path.write_bytes(DAMAGES[fault](path.read_bytes()))


@pytest.fixture(scope="module")
def finished(data, tmp_path_factory) -> Path:
    """A finished run with a decision, which no test changes."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    changes = {"train__max_steps": 4, "train__save_every": 2, "data__dev_size": 40, "data__test_size": 30}
    assert main("single", "", settings(data, folder, **changes)) == 0
    return folder


@pytest.fixture
def run(finished, tmp_path) -> Path:
    return shutil.copytree(finished, tmp_path / "run")


def answers(folder: Path) -> list:
    return [
        prediction.probabilities for prediction in open_model(folder, CPU).predictor.predict(as_rows(TEXTS))
    ]


OF_MODEL = ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"]


@pytest.mark.parametrize("fault", DAMAGES)
@pytest.mark.parametrize("name", [*OF_MODEL, "logits.safetensors"])
def test_a_file_of_a_model_that_is_damaged_is_named(run, name, fault):
    damage(run / name, fault)
    with pytest.raises(InputError, match=rf"{name}.*(copy|correct|fix|save|train|choose|repair)"):
        answers(run)


@pytest.mark.parametrize("fault", DAMAGES)
def test_settings_that_are_damaged_are_named_or_answers_stay(run, finished, fault):
    """The half of a file, or a bit elsewhere, may have all settings on which answers depend."""
    damage(run / "config.yaml", fault)
    if fault in ("cut off", "a bit flipped"):
        with suppress(InputError):
            np.testing.assert_array_equal(answers(run), answers(finished))
        return
    with pytest.raises(InputError, match=r"config\.yaml.*(copy|save|correct|fix)"):
        answers(run)


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_decision_that_is_damaged_is_named(run, fault):
    """It is there or not; a run without one gets one, which nobody wrote."""
    path = run / "decision.json"
    if not path.exists():
        path.write_text('{"temperature": 1.5, "rows": 40}')
    damage(path, fault)
    with pytest.raises(InputError, match=r"decision\.json.* copy the folder again"):
        answers(run)


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_damaged_history_is_said_and_answers_stay(run, finished, fault, caplog):
    damage(run / HISTORY, fault)
    with suppress(InputError):
        np.testing.assert_array_equal(answers(run), answers(finished))
        assert (
            fault == "a bit flipped"
            or f"{run / HISTORY} has the SHA-256 of the files of this run" in caplog.text
        )


def test_a_history_that_is_missing_is_said(run, caplog):
    (run / HISTORY).unlink()
    answers(run)
    assert f"{run / HISTORY} has the SHA-256 of the files of this run, and is not there" in caplog.text


def test_labels_heads_and_settings_that_the_training_did_not_write_are_refused(run, finished):
    """Each of them answers otherwise, and the message says what to do where it was on purpose."""
    path = run / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    names = list(config["id2label"].values())
    permuted = dict(zip(config["id2label"], names[1:] + names[:1], strict=True))
    for change in ({"id2label": permuted}, {"num_attention_heads": 1}):
        path.write_text(json.dumps(config | change), encoding="utf-8")
        with pytest.raises(InputError, match=r"config\.json: .*must be those that the training wrote.* null"):
            answers(run)
    starts = read_starts(run)
    starts[-1]["sha256"]["config.json"] = None
    (run / HISTORY).write_text(json.dumps({"starts": starts}))
    assert open_model(run, CPU).predictor.task.label_names == names
    settings_file = run / "config.yaml"
    settings_file.write_text(
        settings_file.read_text(encoding="utf-8").replace("max_length: 24", "max_length: 5")
    )
    with pytest.raises(
        InputError, match=r"config\.yaml: data\.max_length must be as in the training, 24, fou"
    ):
        answers(run)


def test_what_is_not_recorded_is_said_and_models_of_others_need_no_record(run, checkpoint, caplog):
    starts = read_starts(run)
    digests = starts[-1].pop("sha256")
    # As earlier versions wrote it
    (run / HISTORY).write_text(
        json.dumps({"starts": [starts[-1] | {"weights": digests["model.safetensors"]}]})
    )
    answers(run)
    assert "an earlier version recorded the weights only" in caplog.text
    (run / HISTORY).write_text(json.dumps({"starts": starts}))
    answers(run)
    assert "the run has not finished, so its files are not checked" in caplog.text
    caplog.clear()
    answers(checkpoint)
    assert caplog.text == ""


@pytest.mark.parametrize("fault", DAMAGES)
@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "decision.json"])
def test_a_damaged_checkpoint_of_another_program_is_no_traceback(checkpoint, tmp_path, name, fault):
    folder = shutil.copytree(checkpoint, tmp_path / "model")
    if name == "decision.json":
        (folder / name).write_text('{"temperature": 1.5, "rows": 40}')
    damage(folder / name, fault)
    with suppress(InputError):
        answers(folder)


@pytest.mark.parametrize("fault", DAMAGES)
def test_runs_that_are_compared_are_whole(run, finished, fault):
    damage(run / "logits.safetensors", fault)
    with pytest.raises(InputError, match=r"logits\.safetensors: "):
        compare_runs(finished, run)


@pytest.mark.parametrize("fault", DAMAGES)
def test_damaged_evaluations_are_skipped_with_a_warning_when_a_run_trains_for_longer(
    run, data, fault, capsys
):
    path = run / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(DAMAGES[fault](lines[0]) + b"\n" + b"".join(lines[1:]))
    assert read_evaluations(path, ["loss"]) is not None
    changes = {"train__max_steps": 6, "train__save_every": 2, "data__dev_size": 40, "data__test_size": 30}
    assert main("single", "", settings(data, run, **changes)) == 0
    assert (
        fault == "a bit flipped"
        or f"{path}, line 1: no evaluation in JSON; skipped" in capsys.readouterr().err
    )


@pytest.mark.parametrize("fault", DAMAGES)
def test_the_newest_run_is_chosen_or_a_damaged_file_named(run, fault):
    damage(run / HISTORY, fault)
    assert choose_run(run.parent) == run
    damage(run / "config.yaml", fault)
    with suppress(InputError):
        choose_run(run.parent)


@pytest.mark.parametrize("fault", DAMAGES)
def test_a_report_and_a_job_of_a_series_that_are_damaged_are_named(run, data, fault, tmp_path):
    damage(run / "report.json", fault)
    wanted = {"data": {"train": {"rows": int}}, "accuracy": float}
    if fault != "a bit flipped":
        with pytest.raises(InputError, match=r"report\.json.* and the same command trains this run again"):
            read_report(run, wanted)
    config = DataConfig(train=data[1], cache_dir=data[3])
    series = Series(tmp_path / "series", "5 folds", "single", 1, [], Config(data=config))
    dataset = open_dataset(config)
    series.open(dataset)
    damage(series.folder / JOB, fault)
    if fault == "a bit flipped":
        # It may be in a setting that may change
        with suppress(InputError):
            series.open(dataset)
        return
    with pytest.raises(InputError, match=r"job\.json.*another output\.dir|with other settings or data"):
        series.open(dataset)


@pytest.fixture(scope="module")
def cached(tmp_path_factory) -> Path:
    """A cache, and beside it the rows of which it was made."""
    folder = tmp_path_factory.mktemp("cached")
    write_tiny(folder / "rows.tsv")
    open_cache(folder)
    return folder


def open_cache(folder: Path) -> tuple[list, list, list]:
    """Return the texts, labels and tokens of a split."""
    data = DataConfig(train=str(folder / "rows.tsv"), cache_dir=str(folder / "cache"), max_length=32)
    dataset = open_dataset(data)
    tokenizer = load_tokenizer(ModelConfig("random"), dataset, data.max_length, data.cache_dir)
    store = open_stores(dataset, tokenizer, data)["train"]
    split = dataset.splits["train"]
    tokens = [store.row(row).tolist() for row in split.rows]
    return split.table.texts(split.rows), split.labels.tolist(), tokens


PARTS = ["table-*/manifest.json", "table-*/table.json", "table-*/rows.arrow", "dataset-*/manifest.json"]
PARTS += ["dataset-*/dataset.json", "dataset-*/train_rows.npy", "tokens-*/manifest.json"]
PARTS += ["tokens-*/store.json", "tokens-*/tokens.bin", "tokens-*/offsets.npy", "vocabulary-*/vocab.txt"]


@pytest.mark.parametrize("fault", DAMAGES)
@pytest.mark.parametrize("part", PARTS)
def test_a_damaged_part_of_the_cache_is_built_again(cached, tmp_path, part, fault, caplog):
    folder = shutil.copytree(cached, tmp_path / "copy")
    (path,) = (folder / "cache").glob(part)
    damage(path, fault)
    assert open_cache(folder) == open_cache(cached)
    assert f"{path.parent} is damaged and is built again" in caplog.text


def test_a_file_of_the_user_in_a_damaged_part_of_the_cache_stays(cached, tmp_path):
    folder = shutil.copytree(cached, tmp_path / "copy")
    (path,) = (folder / "cache").glob("table-*/manifest.json")
    path.write_text("{}")
    notes = path.with_name("notes.md")
    notes.write_text("mine")
    with pytest.raises(InputError, match=r"files that are not of the cache: notes\.md; move them to another"):
        open_cache(folder)
    assert notes.read_text() == "mine"
    notes.unlink()
    assert open_cache(folder) == open_cache(cached)
