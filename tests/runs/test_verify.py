"""Whether a result is that of one process, and the verb. That modes agree in float64, and broken ones do not:
tests/modes/test_contract.py"""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from app.commands import run_verb
from app.config.command_line import load_config
from app.runs.verify_comparison import FLOAT64_LIMIT, QUANTITIES, Comparison, check_control, compare
from app.runs.verify_training import run_trainings
from tests.processes import REAL_DATA, ROOT, finish
from tests.ranks import fork
from tests.runs.test_folds import TINY
from tests.tiny import SIZES, write_tiny


@pytest.fixture
def result(tmp_path):
    """Return a function that writes what rank 0 of a mode writes into a folder."""

    def write(
        name: str,
        rows: str = "4 of 4",
        dtypes: str = "torch.float64",
        states: str = "torch.float64",
        **changes: torch.Tensor,
    ) -> Path:
        ones = dict.fromkeys(("losses", "logits", "gradients/a", "weights/a"), torch.ones(4, 4))
        tensors = ones | {name.replace("__", "/"): values for name, values in changes.items()}
        tensors = {name: values.double().contiguous() for name, values in tensors.items()}
        metadata = {"rows": rows, "dtypes": dtypes, "states": json.dumps({"out of layer.0": [states]})}
        (tmp_path / name).mkdir()
        for training in ("float64", "bf16", "bf16-control"):
            file = tmp_path / name / f"{training}.safetensors"
            save_file(tensors, file, metadata=metadata)
        return tmp_path / name

    return write


CONFIGS = sorted(path.name for path in (ROOT / "configs").glob("*.yaml"))
DDP = Comparison("ddp", 2, "float64")


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
        (
            {"states": "torch.bfloat16"},
            "states out of layer.0 are torch.bfloat16, and torch.float64 in one process",
        ),
        ({"weights__b": torch.ones(4)}, "the names of the parameters differ"),
    ],
)
def test_equal_results_pass_and_differences_fail(result, changes, reason):
    row = compare(DDP, result("a"), result("b"))
    assert (row.verdict, row.rows, row.control_ratio) == ("PASS", "4 of 4", None)
    assert row.differences == dict.fromkeys(QUANTITIES, 0.0)
    row = compare(DDP, result("c"), result("d", **changes))
    assert row.verdict == "FAIL"
    assert reason in row.reason


@pytest.mark.parametrize(("difference", "verdict"), [(0.05, "PASS"), (0.2, "FAIL")])
def test_below_float64_a_mode_may_differ_ten_times_as_much_as_the_control(result, difference, verdict):
    reference = result("a")
    control = result("control", gradients__a=torch.full((4, 4), 1.01))
    (control / "bf16-control.safetensors").replace(reference / "bf16-control.safetensors")
    far = torch.full((4, 4), 1 + difference)
    mode = result("mode", gradients__a=far, dtypes="torch.bfloat16")
    row = compare(Comparison("ddp", 2, "bf16"), reference, mode)
    assert row.verdict == verdict
    assert row.control_ratio == pytest.approx(difference / 0.01, rel=1e-5)


@pytest.mark.parametrize(("difference", "verdict"), [(0.003, "PASS"), (0.005, "FAIL")])
def test_in_bf16_logits_may_differ_by_half_the_distance_of_two_numbers(result, difference, verdict):
    """The control may happen to round alike; gradients and weights have no such limit."""
    far = torch.full((4, 4), 1 + difference)
    reference = result("a", dtypes="torch.bfloat16")
    mode = result("mode", logits=far, losses=far, dtypes="torch.bfloat16")
    assert compare(Comparison("ddp", 2, "bf16"), reference, mode).verdict == verdict
    mode = result("other", weights__a=far, dtypes="torch.bfloat16")
    assert compare(Comparison("ddp", 2, "bf16"), reference, mode).verdict == "FAIL"


@pytest.mark.parametrize(
    ("gradient", "verdict"), [(1.0, "no dropout"), (1.001, "FAIL"), (1.5, "differs, as it must")]
)
def test_other_masks_of_dropout_must_be_seen(result, gradient, verdict):
    reference = result("a")
    control = result("control", gradients__a=torch.full((4, 4), gradient))
    (control / "float64.safetensors").rename(control / "float64-other-masks.safetensors")
    assert check_control(Comparison("other masks", 1, "float64"), reference, control).verdict == verdict


@pytest.mark.slow
@pytest.mark.parametrize("name", ["text pairs", *CONFIGS])
def test_every_configuration_is_the_same_job_in_float64(name, monkeypatch, tmp_path):
    """With small layers of random weights: pretrained ones are the same code."""
    for link, place in (("public", REAL_DATA), ("composed", ROOT / "data" / "composed")):
        (tmp_path / "data").mkdir(exist_ok=True)
        (tmp_path / "data" / link).symlink_to(place)
    monkeypatch.chdir(tmp_path)
    words = ["--config", str(ROOT / "configs" / name), "--data.limit=5000"]
    if name == "text pairs":
        words = [f"--data.train={write_tiny(tmp_path / 'rows.tsv', 15, pairs=True)}"]
        words += ["--data.text_pair_column=other"]
    if name == "pretrain.yaml":
        words += ["--data.train=data/composed/posts.jsonl"]
    words += [f"--model.config.{key}={size}" for key, size in SIZES.items()]
    words += ["--train.device=cpu", "--train.threads=1", "--train.precision=fp32", "--data.max_length=32"]
    config = load_config([*words, f"--data.cache_dir={tmp_path / 'cache'}"])
    config = replace(config, model=replace(config.model, name="random"))
    for file in (config.data.train, config.model.vocab_file):
        if file and not Path(file).is_file():
            pytest.skip(f"{file} is not here")
    for mode, world_size in (("single", 1), ("ddp", 2)):
        (tmp_path / mode).mkdir()
        arguments = (config, 2, mode, str(tmp_path / mode), "float64")
        fork(run_trainings, arguments, world_size, tmp_path / "log")
    row = compare(DDP, tmp_path / "single", tmp_path / "ddp")
    assert row.verdict == "PASS", row
    # Far from the limit: only rounding is left
    assert max(row.differences.values()) < FLOAT64_LIMIT / 100


@pytest.mark.slow
def test_modes_agree_on_the_sample_set_in_any_folder(tmp_path):
    """Each process runs this package, and not what the working folder has under its name."""
    pytest.importorskip("deepspeed")
    (tmp_path / "app.py").write_text("raise SystemExit('the wrong app')")
    with_dropout = list(TINY)
    with_dropout[TINY.index("--model.dropout") + 1] = "0.2"
    command = [sys.executable, str(ROOT / "verify_modes.py"), "--modes", "deepspeed", "ddp", *with_dropout]
    done = finish(command, tmp_path, timeout=600, status=0)
    trained = [line.split(",")[0] for line in done.stderr.splitlines()]
    assert trained == ["single", "single", "ddp", "deepspeed"]
    _heading, single, other_masks, ddp, deepspeed = (line.split() for line in done.stdout.splitlines())
    assert single == ["single", "1", *["-"] * 7, "reference"]
    assert other_masks[:4] == ["other", "masks", "1", "float64"]
    assert other_masks[9:] == ["33", "of", "33", "differs,", "as", "it", "must"]
    assert min(map(float, other_masks[4:8])) > 1e-6
    assert (ddp[:3], ddp[7:]) == (["ddp", "2", "float64"], ["-", "33", "of", "33", "PASS"])
    assert (deepspeed[:3], deepspeed[8:]) == (["deepspeed", "2", "fp32"], ["33", "of", "33", "PASS"])
    assert max(map(float, ddp[3:7])) < 1e-9 < max(map(float, deepspeed[3:7]))
    assert float(deepspeed[7]) < 10


@pytest.mark.slow
def test_a_job_that_fails_says_why(capfd):
    words = ["--steps", "2", "--modes", "ddp", "--train.class_weights", "[1,2]"]
    assert run_verb("verify", [*words, *TINY]) == 2
    assert "train.class_weights must be 6 numbers" in capfd.readouterr().err
