"""Whether modes do the same job: what agrees passes, with every configuration and on every task, and what is
broken fails by far. The command line: tests/commands/test_verify_verb.py"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app.config.command_line import load_config
from app.config.schema import Config
from app.runs.verify import FLOAT64_LIMIT, KINDS, MAX_CONTROL_RATIO, Comparison, compare
from tests.multi_label_runs import write_posts
from tests.ranks import ROOT, SMALL
from tests.real_data import REAL_DATA
from tests.runs.mode_ranks import train
from tests.tiny import write_tiny

SETTINGS = [f"--model.config.{key}={size}" for key, size in SMALL.items()]
SETTINGS += ["--train.device=cpu", "--train.threads=1", "--train.precision=fp32", "--data.max_length=32"]


@pytest.fixture
def result(tmp_path):
    """Return a function that writes what rank 0 of a mode writes into a folder."""

    def write(
        name: str, rows: str = "4 of 4", dtypes: str = "torch.float64", **changes: torch.Tensor
    ) -> Path:
        ones = dict.fromkeys(("losses", "logits", "gradients/a", "weights/a"), torch.ones(4, 4))
        tensors = ones | {name.replace("__", "/"): values for name, values in changes.items()}
        tensors = {name: values.double().contiguous() for name, values in tensors.items()}
        (tmp_path / name).mkdir()
        for training in ("float64", "bf16", "bf16-control"):
            file = tmp_path / name / f"{training}.safetensors"
            save_file(tensors, file, metadata={"rows": rows, "dtypes": dtypes})
        return tmp_path / name

    return write


DDP = Comparison("ddp", 2, "float64")


def test_equal_results_pass(result):
    row = compare(DDP, result("a"), result("b"))
    assert (row.verdict, row.rows, row.control_ratio) == ("PASS", "4 of 4", None)
    assert row.differences == dict.fromkeys(KINDS, 0.0)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"weights__a": torch.full((4, 4), 1 + 3e-9, dtype=torch.float64)}, "weights differ by more"),
        ({"gradients__a": torch.full((4, 4), 1.001)}, "gradients differ by more than 1e-09"),
        ({"losses": torch.full((4, 4), float("nan"))}, "losses differ by more"),
        ({"logits": torch.full((4, 4), float("inf"))}, "logits differ by more"),
        ({"logits": torch.ones(3, 4)}, "logits differ by more"),
        ({"rows": "8 of 4"}, "not every row was counted once"),
        ({"dtypes": "torch.float32"}, "it computed in torch.float32, and torch.float64 was asked for"),
        ({"weights__b": torch.ones(4)}, "the names of the parameters differ"),
    ],
)
def test_differences_fail(result, changes, reason):
    row = compare(DDP, result("a"), result("b", **changes))
    assert row.verdict == "FAIL"
    assert reason in row.reason


@pytest.mark.parametrize(("difference", "verdict"), [(0.05, "PASS"), (0.2, "FAIL")])
def test_below_float64_a_mode_may_differ_ten_times_as_much_as_the_control(result, difference, verdict):
    reference, control = result("a"), result("control", gradients__a=torch.full((4, 4), 1.01))
    (control / "bf16-control.safetensors").replace(reference / "bf16-control.safetensors")
    far = torch.full((4, 4), 1 + difference)
    mode = result("mode", gradients__a=far, dtypes="torch.bfloat16")
    row = compare(Comparison("ddp", 2, "bf16"), reference, mode)
    assert row.verdict == verdict
    assert row.control_ratio == pytest.approx(difference / 0.01, rel=1e-5)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Callable[[list[str]], Config]:
    """Return a function that reads the settings of a small job; all jobs share a cache."""
    cache = str(tmp_path_factory.mktemp("cache"))
    return lambda arguments: load_config([*SETTINGS, *arguments, "--data.cache_dir", cache])


def assert_ddp_is_one_process(config: Config, folder: Path) -> None:
    """Assert that two processes do the same job as one in float64, also in the smaller last batch."""
    one_process = train(config, "single", folder, "float64", world_size=1)
    row = compare(DDP, one_process, train(config, "ddp", folder, "float64"))
    assert row.verdict == "PASS", row
    # Far from the limit: only rounding is left
    assert max(row.differences.values()) < FLOAT64_LIMIT / 100


@pytest.fixture(scope="module")
def posts(tmp_path_factory) -> Path:
    """A folder with files of each kind of task."""
    folder = tmp_path_factory.mktemp("posts")
    write_tiny(folder / "rows.tsv", 15), write_tiny(folder / "pairs.tsv", 15, pairs=True)
    write_posts(folder / "posts.jsonl")
    return folder


TASKS = {
    "single_label": "rows.tsv",
    "class_weights": "rows.tsv --train.class_weights=[0.5,2,1] --train.loss=focal",
    "logit_adjusted": "rows.tsv --train.loss=logit_adjusted --train.accumulation_steps=3",
    "pairs": "pairs.tsv --data.text_pair_column=other",
    "windows": "rows.tsv --data.long=windows --data.max_length=10",
    "multi_label": "posts.jsonl --data.task=multi_label --data.limit=45 --train.class_weights=balanced",
    "pretraining": "rows.tsv --data.task=masked_language_modelling --data.format=text "
    "--train.accumulation_steps=2",
}


@pytest.mark.slow
@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_the_same_job_in_float64(task, posts, small, tmp_path):
    file, *settings = TASKS[task].split()
    config = small([f"--data.train={posts / file}", *settings, "--train.epochs=2"])
    assert_ddp_is_one_process(config, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configuration_is_the_same_job_in_float64(path, small, monkeypatch, tmp_path):
    """With two small layers of random weights: pretrained ones are the same code."""
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "public").symlink_to(REAL_DATA)
    (tmp_path / "data" / "composed").symlink_to(ROOT / "data" / "composed")
    monkeypatch.chdir(tmp_path)
    own = ["--data.train=data/composed/posts.jsonl"] if path.stem == "pretrain" else []
    config = small(["--config", str(path), "--data.limit=5000", *own])
    config = replace(config, model=replace(config.model, name=None))
    for file in (config.data.train, config.model.vocab_file):
        if file and not Path(file).is_file():
            pytest.skip(f"{file} is not here")
    assert_ddp_is_one_process(config, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("broken", "settings"),
    [
        ("MeanOfMeans", ["--train.accumulation_steps=3", "--train.batch_size=16"]),
        ("ForgottenZeroGrad", []),
        ("MissingUnscale", ["--train.max_grad_norm=0.05"]),
        ("UnsynchronisedGradients", []),
    ],
)
def test_broken_modes_fail_by_more_than_a_thousand_times_the_limit(broken, settings, posts, small, tmp_path):
    config = small([f"--data.train={posts / 'rows.tsv'}", *settings])
    one_process = train(config, "single", tmp_path, "float64", world_size=1)
    row = compare(DDP, one_process, train(config, broken, tmp_path, "float64"))
    assert row.verdict == "FAIL"
    assert max(row.differences.values()) > 1000 * FLOAT64_LIMIT, row


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_below_float64_rounding_passes_and_a_broken_mode_fails(precision, posts, small, tmp_path):
    config = small([f"--data.train={posts / 'rows.tsv'}"])
    trainings = (precision, f"{precision}-control")
    one_process, ddp = (
        train(config, "single", tmp_path, *trainings, world_size=1),
        replace(DDP, precision=precision),
    )
    row = compare(ddp, one_process, train(config, "ddp", tmp_path, precision))
    assert (row.verdict, row.control_ratio < MAX_CONTROL_RATIO) == ("PASS", True), row
    broken = train(config, "UnsynchronisedGradients", tmp_path, precision)
    assert compare(ddp, one_process, broken).verdict == "FAIL"


@pytest.mark.slow
@pytest.mark.parametrize(("broken", "dtype"), [("WrongPrecision", "float16"), ("NoPrecision", "float32")])
def test_a_mode_that_computes_in_another_precision_is_found(broken, dtype, posts, small, tmp_path):
    """By the dtype: numbers alone do not tell, because fp16 is nearer to fp32 than bf16 is."""
    config = small([f"--data.train={posts / 'rows.tsv'}"])
    one_process = train(config, "single", tmp_path, "bf16", "bf16-control", world_size=1)
    result = train(config, broken, tmp_path, "bf16", world_size=1)
    row = compare(Comparison(broken, 1, "bf16"), one_process, result)
    assert row.verdict == "FAIL"
    assert row.reason.endswith(f"it computed in torch.{dtype}, and torch.bfloat16 was asked for")
