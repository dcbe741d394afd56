"""Ranks that would not train the same are refused before the first step: python -m pytest
tests/training/test_rank_agreement.py"""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from app.config.schema import Config, DataConfig, ModelConfig, OutputConfig, TrainConfig
from app.modes import load_mode
from app.modes.single import Single
from app.training.build import build
from app.training.job_signature import job_signature
from app.training.rank_agreement import differences, rank_signature
from tests.ranks import run, settings
from tests.tiny import SIZES, write_tiny

HOSTS = ["one", "two", "three"]


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    folder = tmp_path_factory.mktemp("ranks")
    data = DataConfig(
        train=str(write_tiny(folder / "rows.tsv")), cache_dir=str(folder / "cache"), max_length=16
    )
    return Config(data, ModelConfig(config=SIZES), TrainConfig(device="cpu", threads=1))


def signature(config: Config, name: str = "ddp") -> dict:
    with Single(config) as mode:
        components = build(config, mode)
        job = job_signature(config, components)
        return json.loads(json.dumps(rank_signature(config, name, components, job)))


def test_what_may_differ_is_no_difference(config, tmp_path):
    """Paths, caches, devices, and what only rank 0 looks at."""
    copy = tmp_path / "copy.txt"
    copy.write_bytes(Path(config.data.train).read_bytes())
    data = replace(config.data, train=str(copy), cache_dir=str(tmp_path / "cache"))
    train, output = (
        replace(config.train, device="auto", threads=2, timeout=60),
        OutputConfig(dir="run", name="x"),
    )
    other = replace(config, data=data, train=train, output=output)
    assert differences([signature(config), signature(other)], HOSTS) == []


def test_another_cache_is_refused_by_its_content(config, tmp_path):
    """Not by its place: a copy is the same."""
    own = signature(config)
    cache = shutil.copytree(config.data.cache_dir, tmp_path / "cache")
    moved = replace(config, data=replace(config.data, cache_dir=str(cache)))
    assert differences([own, signature(moved)], HOSTS) == []
    (tokens,) = cache.glob("tokens-*/tokens.bin")
    content = bytearray(tokens.read_bytes())
    content[2] += 1
    tokens.write_bytes(content)
    (found,) = differences([own, signature(moved)], HOSTS)
    assert found.startswith(f"data.cache_dir: rank 0 (one) has {config.data.cache_dir} (content ")
    assert f"rank 1 (two) has {cache} (content " in found


def test_other_rows_are_named_with_rank_host_and_both_files(config, tmp_path):
    path = write_tiny(tmp_path / "stale.tsv", 19)
    own, other = signature(config), signature(replace(config, data=replace(config.data, train=str(path))))
    (found,) = differences([own, own, other], HOSTS)
    assert found.startswith(f"data.train: rank 0 (one) has {config.data.train} (60 rows, content ")
    assert f"rank 2 (three) has {path} (57 rows, content " in found


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        *(("train", "seed", 7), ("train", "log_every", 3), ("train", "accumulation_steps", 2)),
        *(("data", "split_seed", 7), ("output", "language", "zh")),
    ],
)
def test_another_setting_is_named(config, group, key, value):
    own = getattr(config, group)
    other = replace(config, **{group: replace(own, **{key: value})})
    found = differences([signature(config), signature(other), signature(other)], HOSTS)
    assert found == [
        f"{group}.{key}: rank 0 (one) has {getattr(own, key)}, rank 1 (two) has {value}; 2 ranks differ from "
        "rank 0"
    ]


def test_other_code_is_named(config):
    own = signature(config)
    assert differences([own, own | {"the version of app": "beef", "the version of torch": "1.0"}], HOSTS) == [
        f"the version of app: rank 0 (one) has {own['the version of app']}, rank 1 (two) has beef",
        f"the version of torch: rank 0 (one) has {own['the version of torch']}, rank 1 (two) has 1.0",
    ]


MODES = [("ddp", 3), ("fsdp", 2), ("accelerate", 2), ("deepspeed", 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), MODES)
def test_ranks_with_other_rows_end_with_one_error_and_leave_no_folder(mode, world_size, tmp_path):
    if reason := load_mode(mode).unavailable_reason():
        pytest.skip(reason)
    for rank in range(world_size):
        write_tiny(tmp_path / f"rows-{rank}.tsv", 40 - (rank == 1))
    data = [f"--data.train={tmp_path}/rows-RANK.tsv", f"--data.cache_dir={tmp_path}/cache-RANK"]
    folder, log = tmp_path / "run", tmp_path / "log"
    codes = run(mode, world_size, settings(data, folder, train__epochs=1), log=log)
    assert codes == [2] * world_size, log.read_text()[-3000:]
    assert "rows-0.tsv (120 rows, content " in log.read_text()
    assert "rows-1.tsv (117 rows, content " in log.read_text()
    assert not folder.exists()
