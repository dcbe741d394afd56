"""What makes two jobs the same, in a run that resumes and on all ranks, and what a refusal says."""

import hashlib
import json
import platform
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.checkpoints import ranks
from app.checkpoints.job import TARGETS, describe_changes, job_signature
from app.checkpoints.ranks import check_ranks
from app.checkpoints.run_history import code_version, describe_start
from app.config.schema import Config, DataConfig, ModelConfig, OutputConfig, TrainConfig
from app.data.cache import MANIFEST
from app.errors import InputError
from app.modes.group import Group
from app.modes.mode import Single
from app.training.build import build
from tests.ranks import check_run, need, settings
from tests.tiny import LABELS, SIZES, write_tiny

HOST = platform.node()


def own_job(config: Config) -> tuple:
    """Return the parts of a run and its job."""
    with Single(config) as mode:
        parts = build(config, mode)
    best_metric = parts.task.best_metric
    return parts, job_signature(config, parts.dataset, parts.tokenizer, parts.model, best_metric)


def signature(config: Config) -> dict:
    """Return the signature of a job as a training state keeps it."""
    return json.loads(json.dumps(own_job(config)[1]))


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    folder = tmp_path_factory.mktemp("job")
    path = write_tiny(folder / "rows.tsv")
    data = DataConfig(train=str(path), cache_dir=str(folder / "cache"), max_length=16)
    train = TrainConfig(device="cpu", threads=1, precision="fp32")
    return Config(data, ModelConfig("random", config=SIZES), train)


@pytest.fixture(scope="module")
def job(config) -> dict:
    return signature(config)


def with_data(config: Config, **settings) -> Config:
    return replace(config, data=replace(config.data, **settings))


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"max_length": 12}, "max_length was 16 and is 12"),
        ({"limit": 30}, "limit was None and is 30"),
        ({"labels": LABELS[::-1]}, f"labels was {LABELS} and is {LABELS[::-1]}"),
    ],
)
def test_a_changed_setting_is_named(config, job, settings, wanted):
    assert describe_changes(job, signature(with_data(config, **settings))) == [f"data.{wanted}"]


def test_rows_that_were_trained_on_their_label_do_not_go_on_with_distributions(config, tmp_path):
    """As earlier versions trained them: of the same file and settings."""
    path = tmp_path / "soft.csv"
    path.write_text("text,label,p_a,p_b\n" + "一,a,0.9,0.1\n二,b,0.2,0.8\n" * 5, encoding="utf-8")
    now = signature(with_data(config, train=str(path), dev_size=0, test_size=0))
    earlier = dict(now)
    del earlier[TARGETS]
    assert describe_changes(earlier, now) == [f"{TARGETS} was None and is distributions of labels"]


def test_files_count_by_their_content(config, job, tmp_path):
    """Moved files and another cache are the same job; so are the weights of a moved model."""
    moved = tmp_path / "moved.txt"
    other_file = write_tiny(tmp_path / "rows.tsv", 21, seed=1)
    moved.write_bytes(Path(config.data.train).read_bytes())
    settings = {"train": str(moved), "cache_dir": str(tmp_path / "cache"), "labels": LABELS, "format": "tsv"}
    assert describe_changes(job, signature(with_data(config, **settings))) == []
    change, *_ = describe_changes(job, signature(with_data(config, train=str(other_file))))
    assert change.startswith(f"data.train was {config.data.train} (60 rows, content ")
    assert f" and is {other_file} (63 rows, content " in change

    models = (("base", "aaaa"), ("moved", "aaaa"), ("moved", "bbbb"))
    jobs = [job | {"model.name": {"path": path, "content": content}} for path, content in models]
    assert describe_changes(jobs[0], jobs[1]) == []
    assert describe_changes(jobs[0], jobs[2]) == [
        "model.name was base (content aaaa) and is moved (content bbbb)"
    ]

    vocabularies = []
    for name, characters in (("one", "abc"), ("copy", "abc"), ("other", "abd")):
        path = tmp_path / f"{name}.txt"
        path.write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n" + "\n".join(characters), encoding="utf-8")
        vocabularies.append(signature(replace(config, model=replace(config.model, vocab_file=str(path)))))
    first, copy, second = vocabularies
    assert describe_changes(first, copy) == []
    assert describe_changes(first, second)[0].startswith("the tokenizer (model.vocab_file, ")


class TwoRanks(Group):
    """The group of rank 1 of two, whose other rank gives what rank 0 gave before."""

    world_size = 2
    first = None

    def gather_values(self, value):
        self.first = self.first or value
        return [self.first, json.loads(json.dumps(value))]


def compare_ranks(config: Config, other_config: Config, mode: str = "ddp") -> None:
    group = TwoRanks()
    for rank_config, rank_mode in ((config, "ddp"), (other_config, mode)):
        parts, job = own_job(rank_config)
        check_ranks(group, rank_mode, rank_config, parts.dataset, parts.stores, job)


def test_what_may_differ_between_ranks(config, tmp_path):
    """Paths, caches, devices, and what only rank 0 looks at."""
    copy = tmp_path / "copy.txt"
    copy.write_bytes(Path(config.data.train).read_bytes())
    data = replace(config.data, train=str(copy), cache_dir=str(tmp_path / "cache"))
    train = replace(config.train, device="auto", threads=2, timeout=60)
    compare_ranks(config, Config(data, config.model, train, output=OutputConfig(dir="run", name="x")))


def test_another_cache_is_refused_by_its_content(config, tmp_path):
    """Not by its place: a copy is the same."""
    config = with_data(config, cache_dir=str(tmp_path / "own"))
    own_job(config)
    cache = shutil.copytree(config.data.cache_dir, tmp_path / "cache")
    moved = with_data(config, cache_dir=str(cache))
    compare_ranks(config, moved)
    (tokens,) = cache.glob("tokens-*/tokens.bin")
    content = bytearray(tokens.read_bytes())
    content[2] += 1
    tokens.write_bytes(content)
    # A file that does not fit its digest is built again; this cache was built with other tokens
    manifest = tokens.with_name(MANIFEST)
    digest = hashlib.blake2b(content).hexdigest()
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {tokens.name: digest}))
    with pytest.raises(InputError) as caught:
        compare_ranks(config, moved)
    assert f"data.cache_dir is {config.data.cache_dir} (" in str(caught.value)
    assert f") on rank 0 ({HOST}) and {cache} (" in str(caught.value)
    assert f") on rank 1 ({HOST}); copy the files of rank 0" in str(caught.value)


@pytest.mark.parametrize(
    ("group", "key", "value"),
    [
        *(("train", "seed", 7), ("train", "log_every", 3), ("data", "split_seed", 7)),
        ("output", "language", "zh"),
    ],
)
def test_another_setting_on_a_rank_is_named(config, group, key, value):
    section = getattr(config, group)
    other_config = replace(config, **{group: replace(section, **{key: value})})
    named = f"{group}.{key} is {getattr(section, key)} on rank 0 ({HOST}) and {value} on rank 1 ({HOST})"
    with pytest.raises(InputError) as caught:
        compare_ranks(config, other_config)
    assert named in str(caught.value)


def test_the_version_of_numpy_is_compared_between_ranks_and_noted_at_each_start(config):
    """The batch plan is a permutation by its generator."""
    assert code_version()["numpy"] == np.__version__
    assert describe_start("ddp", 2, "cpu")["numpy"] == np.__version__


def test_other_code_and_another_mode_are_named(config, monkeypatch):
    with pytest.raises(InputError, match=r"mode is ddp on rank 0 .* and fsdp on rank 1"):
        compare_ranks(config, config, "fsdp")
    versions = iter([{"app": "beef", "torch": "1.0"}, {"app": "beef", "torch": "2.0"}])
    monkeypatch.setattr(ranks, "code_version", lambda: next(versions))
    with pytest.raises(InputError, match=r"torch is 1.0 on rank 0 .* and 2.0 on rank 1"):
        compare_ranks(config, config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("mode", "asked"),
    [
        ("ddp", ("fp32", "bf16")),
        ("ddp", ("bf16", "fp32")),
        ("ddp", ("auto", "fp32")),
        ("ddp", ("fp32", "auto")),
        ("accelerate", ("bf16", "fp32")),
        ("fsdp", ("fp32", "bf16")),
    ],
)
def test_ranks_that_are_asked_for_other_precisions_end_with_one_error(mode, asked, data, tmp_path):
    """A mode takes the precision of rank 0, with which all ranks would train."""
    need(mode)
    for rank, precision in enumerate(asked):
        text = f"train: {{precision: {precision}}}\n"
        (tmp_path / f"settings-{rank}.yaml").write_text(text, encoding="utf-8")
    folder = tmp_path / "run"
    log = tmp_path / "log"
    words = [word for word in settings(data, folder) if "precision" not in word]
    check_run(mode, 2, ["--config", f"{tmp_path}/settings-RANK.yaml", *words], log=log, status=2)
    named = f"train.precision is {asked[0]} on rank 0 ({HOST}) and {asked[1]} on rank 1 ({HOST})"
    assert log.read_text().count(named) == 2
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "world_size"), [("ddp", 3), ("deepspeed", 2)])
def test_ranks_with_other_rows_end_with_one_error_and_leave_no_folder(mode, world_size, tmp_path):
    need(mode)
    for rank in range(world_size):
        write_tiny(tmp_path / f"rows-{rank}.tsv", 40 - (rank == 1))
    data = [f"--data.train={tmp_path}/rows-RANK.tsv", f"--data.cache_dir={tmp_path}/cache-RANK"]
    folder = tmp_path / "run"
    log = tmp_path / "log"
    check_run(mode, world_size, settings(data, folder, train__epochs=1), log=log, status=2)
    assert "rows-0.tsv (120 rows, content " in log.read_text()
    assert "rows-1.tsv (117 rows, content " in log.read_text()
    assert not folder.exists()
