"""What makes two jobs the same, and what a refusal to resume says: python -m pytest
tests/training/test_job_signature.py"""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.schema import Config, DataConfig, ModelConfig, TrainConfig
from app.modes.single import Single
from app.training.build import build
from app.training.job_signature import changes, job_signature
from tests.tiny import SIZES, tiny_tokenizer, write_tiny


def signature(config: Config) -> dict:
    """Return the signature of a job as a training state keeps it."""
    with Single(config) as mode:
        return json.loads(json.dumps(job_signature(config, build(config, mode))))


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    folder = tmp_path_factory.mktemp("job")
    path = write_tiny(folder / "rows.tsv")
    data = DataConfig(train=str(path), cache_dir=str(folder / "cache"), max_length=16)
    return Config(data, ModelConfig(config=SIZES), TrainConfig(device="cpu", threads=1))


@pytest.fixture(scope="module")
def job(config) -> dict:
    return signature(config)


def with_data(config: Config, **settings) -> Config:
    return replace(config, data=replace(config.data, **settings))


def test_moved_files_and_another_cache_are_the_same_job(config, job, tmp_path):
    moved = tmp_path / "moved.txt"
    moved.write_bytes(Path(config.data.train).read_bytes())
    other = with_data(
        config,
        train=str(moved),
        cache_dir=str(tmp_path / "cache"),
        labels=["中性", "正面", "负面"],
        format="tsv",
    )
    assert changes(job, signature(other)) == []


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"split_seed": 7}, "data.split_seed was 42 and is 7"),
        ({"max_length": 12}, "data.max_length was 16 and is 12"),
        ({"limit": 30}, "data.limit was None and is 30"),
        (
            {"labels": ["负面", "正面", "中性"]},
            "data.labels was ['中性', '正面', '负面'] and is ['负面', '正面', '中性']",
        ),
    ],
)
def test_a_changed_setting_is_named(config, job, settings, wanted):
    assert changes(job, signature(with_data(config, **settings))) == [wanted]


def test_changed_content_is_named_by_its_file(config, job, tmp_path):
    other = write_tiny(tmp_path / "rows.tsv", 21, seed=1)
    (found,) = changes(job, signature(with_data(config, train=str(other))))
    assert found.startswith(f"data.train was {config.data.train} (60 rows, content ")
    assert f" and is {other} (63 rows, content " in found
    same_path = job | {"data.train": job["data.train"] | {"content": "tsv 00", "rows": 1}}
    (found,) = changes(same_path, job)
    assert found.startswith(f"the content of data.train was {config.data.train} (1 rows, content 00) and is ")


def test_a_vocabulary_counts_by_its_content(config, job, tmp_path):
    one, other = tmp_path / "one.txt", tmp_path / "other.txt"
    for path, characters in ((one, "abc"), (other, "abd")):
        path.write_text("\n".join(tiny_tokenizer(characters=characters).get_vocab()), encoding="utf-8")
    (tmp_path / "copy.txt").write_bytes(one.read_bytes())
    first, copy, second = (
        signature(replace(config, model=replace(config.model, vocab_file=str(path))))
        for path in (one, tmp_path / "copy.txt", other)
    )
    assert changes(first, copy) == []
    assert changes(first, second)[0].startswith("the tokenizer is not the same (model.vocab_file")


def test_a_pretrained_model_counts_by_its_weights(job):
    before = {"path": "base", "content": "aaaa"}
    assert (
        changes(job | {"model.name": before}, job | {"model.name": {"path": "moved", "content": "aaaa"}})
        == []
    )
    assert (
        changes(job | {"model.name": before}, job | {"model.name": {"path": "base", "content": "bbbb"}}) == []
    )
    assert changes(
        job | {"model.name": before}, job | {"model.name": {"path": "moved", "content": "bbbb"}}
    ) == ["model.name was base (content aaaa) and is moved (content bbbb)"]
