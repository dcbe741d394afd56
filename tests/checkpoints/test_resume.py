"""A run that was stopped resumes: bit-identical in its own mode, within the tolerance of the modes in
another. A new mode is one more line in MODES."""

import filecmp
import json
import random
from pathlib import Path

import pytest
from safetensors.torch import load_file

from app.run import main
from tests.ranks import Disturbance, check_run, fork_under_horovod, largest_difference, need, run, settings

pytestmark = pytest.mark.slow
MODES = [("single", 1), ("dp", 1), ("ddp", 2), ("ddp", 3), ("fsdp", 3), ("accelerate", 2)]
MODES += [("deepspeed", 2)]
# 6 steps an epoch; states and evaluations fall inside epochs, and rarely together.
EXACT = {"train__epochs": 8, "train__eval_every": 5, "train__save_every": 4, "train__accumulation_steps": 2}
EXACT |= {"model__dropout": 0.2, "train__early_stopping": 3, "output__trackers": "[tensorboard]"}
WINDOWS = EXACT | {"data__long": "windows", "data__max_length": 10, "data__max_windows": 3}
WHOLE = EXACT | {"train__epochs": 4, "train__early_stopping": 99}
METHODS = WHOLE | {"model__freeze": "embeddings"}
LORA = WHOLE | {"model__lora_rank": 4}
DECODER = EXACT | {"model__architecture": "qwen3", "model__config__head_dim": 8}
DECODER |= {"model__config__num_key_value_heads": 2}
# One layer for all; a pooler that no pass uses
ALBERT = WHOLE | {"model__architecture": "albert", "model__config__embedding_size": 16}
UNUSED = WHOLE | {"model__architecture": "big_bird"}
FP16 = EXACT | {"train__precision": "fp16", "train__max_grad_norm": 0.5}
CASES = [(*mode, EXACT, "fp32") for mode in MODES]
CASES += [("deepspeed", 2, EXACT | {"deepspeed__stage": stage}, f"stage{stage}") for stage in (1, 3)]
CASES += [("single", 1, FP16, "fp16"), ("ddp", 2, FP16, "fp16"), ("ddp", 2, WINDOWS, "windows")]
CASES += [("single", 1, DECODER, "decoder"), ("single", 1, LORA, "lora"), ("ddp", 2, METHODS, "methods")]
CASES += [(*mode, METHODS, "methods") for mode in (("fsdp", 2), ("deepspeed", 2))]
CASES += [(*mode, LORA, "lora") for mode in (("fsdp", 2), ("deepspeed", 2))]
CASES += [(*mode, UNUSED, "unused") for mode in (("single", 1), ("ddp", 2), ("fsdp", 2))]
CASES += [(*mode, ALBERT, "albert") for mode in (("single", 1), ("fsdp", 2), ("deepspeed", 2))]
CASES += [("deepspeed", 2, ALBERT | {"deepspeed__stage": 3}, "albert-stage3")]
# Sums of another order stay small where little is learned from them
CALM = {"model__dropout": 0.2, "train__warmup": 0, "train__learning_rate": 1e-3}


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """Return the curves as TensorBoard shows them, without those of speed."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard"), size_guidance={"scalars": 0})
    events.Reload()
    names = [name for name in events.Tags()["scalars"] if not name.endswith("per_second")]
    return {name: [(event.step, event.value) for event in events.Scalars(name)] for name in names}


def evaluations(folder: Path) -> list[dict]:
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    speed = {"rows_per_second", "tokens_per_second", "product_speed"}
    return [{key: value for key, value in json.loads(line).items() if key not in speed} for line in lines]


def check_same_run(first: Path, second: Path, *names: str) -> None:
    """Check that two runs have the same files, curves and evaluations, those of `names` to the bit."""
    for name in ("model.safetensors", "predictions.csv", "report.json", *names):
        assert filecmp.cmp(first / name, second / name, shallow=False), name
    assert evaluations(first) == evaluations(second)
    assert curves(first) == curves(second)
    assert {path.name for path in first.iterdir()} == {path.name for path in second.iterdir()}


@pytest.mark.parametrize(
    ("mode", "world_size", "changes", "killed"),
    [
        pytest.param(*case, number % case[1], id=f"{case[0]}-{case[1]}-{name}")
        for number, (*case, name) in enumerate(CASES)
    ],
)
def test_a_run_stopped_at_random_steps_ends_bit_identical(mode, world_size, changes, killed, data, tmp_path):
    """By kill -9 of one rank, by SIGTERM to one rank, by SIGINT to all. Dropout on, accumulation, in the
    middle of an epoch; early stopping, best checkpoint, curves and predictions too."""
    need(mode)
    if changes is LORA:
        pytest.importorskip("peft")
    whole = tmp_path / "whole"
    stopped = tmp_path / "stopped"
    log = tmp_path / "log"
    argv = settings(data, stopped, **changes)
    chance = random.Random(f"{mode} {world_size} 1")
    steps = []
    for signal_name, first, last, status in (
        ("SIGKILL", 5, 11, -9),
        ("SIGTERM", 0, 6, 143),
        ("SIGINT", 0, 6, 130),
    ):
        steps.append(chance.randint(first, last))
        hits = {"SIGKILL": [killed], "SIGTERM": [chance.randrange(world_size)], "SIGINT": range(world_size)}
        hit = hits[signal_name]
        codes = run(mode, world_size, argv, [Disturbance(steps[-1], signal_name, rank) for rank in hit], log)
        assert codes[hit[0]] == status
        if signal_name == "SIGKILL":
            assert all(codes), (codes, log.read_text())
        else:
            assert codes == [status] * world_size, (codes, log.read_text())
    check_run(mode, world_size, argv, log=log)
    assert log.read_text().count("Resuming from step") == 3, steps
    check_run(mode, world_size, settings(data, whole, **changes), log=log)
    assert filecmp.cmp(tmp_path / "stopped.final", tmp_path / "whole.final", shallow=False), steps
    check_same_run(stopped, whole, "logits.safetensors")
    assert len(evaluations(whole)) >= 3


def test_the_comparison_sees_a_step_more(data, tmp_path):
    """The final state that the tests compare has weights and optimizer state, and changes with every step."""
    for steps in (4, 5):
        flat = {"train__warmup": 0, "train__schedule": "constant", "train__max_steps": steps}
        check_run("single", 1, settings(data, tmp_path / str(steps), **flat))
    shorter, longer = (load_file(tmp_path / f"{steps}.final") for steps in (4, 5))
    assert shorter.keys() == longer.keys()
    optimizer_values = {name.rpartition(".")[2] for name in shorter if "state." in name}
    assert optimizer_values == {"exp_avg", "exp_avg_sq", "step"}
    assert not any((shorter[name] == longer[name]).all() for name in shorter if "classifier.weight" in name)


@pytest.mark.parametrize(
    ("mode", "world_size", "architecture"),
    [("ddp", 2, "bert"), ("fsdp", 3, "bert"), ("deepspeed", 2, "bert"), ("fsdp", 2, "big_bird")],
)
def test_a_finished_run_that_trains_for_longer_ends_bit_identical(
    mode, world_size, architecture, data, tmp_path
):
    """Its last state has weights and optimizer, and all ranks continue from it."""
    need(mode)
    changes = {"model__dropout": 0.2, "train__schedule": "constant", "model__architecture": architecture}
    changes |= {"train__warmup": 0, "train__eval_every": 5}
    stopped = tmp_path / "stopped"
    log = tmp_path / "log"
    for folder, epochs in ((stopped, 2), (stopped, 4), (tmp_path / "whole", 4)):
        check_run(mode, world_size, settings(data, folder, **changes, train__epochs=epochs), log=log)
    assert log.read_text().count("Resuming from step 12.") == 1
    assert (tmp_path / "stopped.final").read_bytes() == (tmp_path / "whole.final").read_bytes()
    check_run(mode, world_size, settings(data, stopped, **changes, train__epochs=4), log=log, status=2)
    for rank in range(1, world_size):
        assert f"error (rank {rank}): rank 0 has ended: {stopped} holds a finished run" in log.read_text()


PLACES = [("single", 1), ("ddp", 2), ("fsdp", 3), ("accelerate", 2), ("ddp", 3), ("fsdp", 2)]
PLACES += [("dp", 1), ("mp", 2)]


def test_one_run_resumes_through_all_modes(data, tmp_path):
    """Each takes over where the one before was stopped, with other processes and the same dropout."""
    changes = CALM | {"train__epochs": 8, "train__save_every": 100, "train__eval_every": 1000}
    check_run("single", 1, settings(data, tmp_path / "whole", **changes))
    argv = settings(data, tmp_path / "stopped", **changes)
    log = tmp_path / "log"
    for mode, world_size in PLACES:
        check_run(mode, world_size, argv, [Disturbance(4, "SIGTERM")], log, status=143)
    check_run("single", 1, argv, log=log)
    resumings = [line for line in log.read_text().splitlines() if line.startswith("Resuming")]
    assert len(resumings) == len(PLACES)
    assert largest_difference(tmp_path / "whole", tmp_path / "stopped") <= 1e-5


def test_zero_resumes_as_it_was_only(data, tmp_path):
    """The shards of its optimizer fit no other stage, number of processes or mode."""
    need("deepspeed")
    argv = settings(data, tmp_path / "run")
    log = tmp_path / "log"
    check_run("deepspeed", 2, argv, [Disturbance(4, "SIGTERM")], log, status=143)
    cut = "the optimizer state was cut by DeepSpeed (ZeRO 2, 2 processes) and is "
    for mode, world_size, changes, now in (
        ("ddp", 2, [], "whole"),
        ("deepspeed", 1, [], "cut by DeepSpeed (ZeRO 2, 1 processes)"),
        ("deepspeed", 2, ["--deepspeed.stage=1"], "cut by DeepSpeed (ZeRO 1, 2 processes)"),
    ):
        check_run(mode, world_size, [*argv, *changes], log=log, status=2)
        assert f"{cut}{now}; change them back" in log.read_text()


def test_horovod_takes_over(data, tmp_path):
    """In ranks as its launcher starts them; its optimizer gets the state without a step of decay."""
    need("horovod")
    changes = CALM | {"train__weight_decay": 0.1}
    check_run("single", 1, settings(data, tmp_path / "whole", **changes))
    argv = settings(data, tmp_path / "stopped", **changes)
    check_run("single", 1, argv, [Disturbance(6, "SIGTERM")], status=143)
    log = tmp_path / "log"
    fork_under_horovod(main, ("horovod", "", argv), 2, log)
    assert "Resuming from step" in log.read_text()
    assert largest_difference(tmp_path / "whole", tmp_path / "stopped") <= 1e-5


def test_a_rank_that_ends_later_than_others_ends_as_they_do(data, tmp_path):
    """The launcher sends SIGTERM when the first has left; one whose log closes later leaves likewise."""
    log = tmp_path / "log"
    argv = settings(data, tmp_path / "run", output__trackers="[tensorboard]")
    disturbances = [Disturbance(-1, "close_late"), Disturbance(3, "SIGTERM", 1)]
    check_run("ddp", 3, argv, disturbances, log, status=143)
    assert "Stopped by SIGTERM after step" in log.read_text()
