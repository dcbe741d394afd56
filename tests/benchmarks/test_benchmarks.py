"""With a tiny model, all programs do the same work."""

import asyncio
import json
import sys
from contextlib import redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path
from pkgutil import resolve_name
from shlex import split
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from accelerate.state import AcceleratorState

from app.prediction.open_model import ComputeOptions, open_model
from benchmarks.harness.command import run_benchmark
from benchmarks.harness.meter import Finished, Meter
from benchmarks.harness.program import COPIES, ProgramFailed
from benchmarks.harness.summary import render
from benchmarks.prediction import __main__ as prediction
from benchmarks.reference_job import OURS, PEERS
from benchmarks.reference_job import __main__ as reference_job
from benchmarks.reference_job.job import choose_rows
from benchmarks.reference_job.prepare import Prepared, prepare
from tests.processes import ROOT, finish
from tests.ranks import context, start_server
from tests.saved_classifier import as_rows, random_texts, save_checkpoint
from tests.tiny import SIZES, write_tiny

BATCH_SIZE, EPOCH = 8, 6  # rows, steps
STRETCHES = [EPOCH, 1, 3]  # steps: a warm-up, and a round after a step that is not timed


def tiny_arguments(folder: Path, device: str = "cpu") -> list[str]:
    """Return settings for a job of `EPOCH` steps; its weights are large, so that losses differ."""
    rows = write_tiny(folder / "rows.tsv", rows_per_label=BATCH_SIZE * EPOCH // 3)
    sizes = SIZES | {"initializer_range": 0.2}
    data = f"--data.train {rows} --data.cache_dir {folder / 'cache'} --data.max_length 32 --data.dev_size 0 "
    data += f"--data.test_size 0 --train.batch_size {BATCH_SIZE} --train.learning_rate 1e-3"
    model = [f"--model.config.{key}={value}" for key, value in sizes.items()]
    return ["--model.name=random", *model, *split(data), "--train.device", device]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Prepared:
    """The tiny job; its check is of a whole epoch. The state that Accelerate leaves is taken back."""
    folder = tmp_path_factory.mktemp("reference-job")
    yield prepare(tiny_arguments(folder), "base", "fp32", STRETCHES, EPOCH, folder)
    AcceleratorState._reset_state(reset_partial_state=True)


def train(name: str, job, *commands: dict) -> list[dict]:
    """Return a program's answer to each command, after its details."""
    if reason := reference_job.missing(name):
        pytest.skip(reason)
    waiting = iter(commands)
    sent = []

    def receive() -> dict:
        command = next(waiting, None)
        if command is None:
            raise EOFError
        return {"untimed": 0, "outcomes": False} | command

    with pytest.raises(Finished):
        resolve_name(f"benchmarks.reference_job.{name}:main")(job, Meter(receive, sent.append, job.device))
    return sent[1:]


@pytest.fixture(scope="module")
def our_losses(prepared) -> list[float]:
    [answer] = train(OURS, prepared.check_job, {"steps": EPOCH, "outcomes": True})
    return answer["outcomes"]


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"learning_rate": 8e-4}, {"max_length": 6}, {"shuffle": True}])
def test_a_peer_that_does_other_work_is_caught(changed, prepared, our_losses):
    job = replace(prepared.check_job, **changed)
    [answer] = train("accelerate_example", job, {"steps": EPOCH, "outcomes": True})
    for losses in (answer["outcomes"], [float("nan")] * EPOCH):
        check = reference_job.compare_losses({OURS: our_losses, "accelerate_example": losses}, tolerance=1e-3)
        assert check["same_work"] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", [OURS, *PEERS])
def test_every_program_has_our_losses_and_trains_the_rows_that_it_is_given(name, prepared, our_losses):
    """Its warm-up is an epoch: every row once; padding is counted."""
    if name != OURS:
        [checked] = train(name, prepared.check_job, {"steps": EPOCH, "outcomes": True})
        check = reference_job.compare_losses({OURS: our_losses, name: checked["outcomes"]}, tolerance=2e-5)
        assert check["same_work"] is True
        assert len(set(checked["outcomes"])) == EPOCH
    warmup, untimed, steps = STRETCHES
    an_epoch, a_round = train(name, prepared.job, {"steps": warmup}, {"untimed": untimed, "steps": steps})
    for stretch, answer in ((0, an_epoch), (2, a_round)):
        reference_job.check_rows({name: answer}, {name: prepared.job.stretches[stretch]}, prepared.lengths)
        assert answer["steps"] == STRETCHES[stretch]
        assert answer["rows"] == STRETCHES[stretch] * BATCH_SIZE
        assert answer["seconds"] > 0
        assert answer["peak_memory"] > 1e6
        assert answer["outcomes"] == []
    assert an_epoch["rows"] == prepared.description["train_rows"]
    assert an_epoch["real_tokens"] == round(prepared.description["tokens_per_row"] * an_epoch["rows"])
    if name == OURS:
        # Packed
        assert an_epoch["tokens"] == an_epoch["real_tokens"]
    elif name == "example_repository":
        assert an_epoch["tokens"] == an_epoch["rows"] * 32
    else:
        assert an_epoch["real_tokens"] < an_epoch["tokens"] < an_epoch["rows"] * 32


def test_the_rows_of_a_round_follow_from_its_seed():
    lengths = np.random.default_rng(0).integers(3, 40, 100)
    stretches = choose_rows(lengths, batch_size=10, steps=[3, 3, 12], seed=1)
    assert stretches == choose_rows(lengths, batch_size=10, steps=[3, 3, 12], seed=1)
    assert stretches != choose_rows(lengths, batch_size=10, steps=[3, 3, 12], seed=2)
    assert set(stretches[0]) != set(stretches[1])
    assert [len(stretch) for stretch in stretches] == [30, 30, 120]
    # Twice only what there is too little of
    assert [len(set(stretch)) for stretch in stretches] == [30, 30, 100]
    assert all((np.diff(lengths[stretch]) >= 0).all() for stretch in stretches)


def test_other_rows_than_those_of_the_round_fail_the_benchmark():
    lengths = np.array([5, 6, 7, 8])
    rows = {OURS: [0, 3], "trainer_tuned": [0, 3]}
    same = {"rows": 2, "real_tokens": 13}
    reference_job.check_rows({OURS: same, "trainer_tuned": same}, rows, lengths)
    message = "trainer_tuned was given 2 rows of 13 tokens, and trained 2 rows of 11 tokens"
    with pytest.raises(ProgramFailed, match=message):
        reference_job.check_rows({OURS: same, "trainer_tuned": {"rows": 2, "real_tokens": 11}}, rows, lengths)


def test_the_results_over_rounds():
    """Rates are of all rounds together; a ratio is taken within a round."""

    def answer(precision: str, seconds: float, real: int, tokens: int) -> dict:
        sizes = {"rows": 64, "real_tokens": real, "tokens": tokens, "steps": 2, "peak_memory": 5e8}
        return sizes | {"precision": precision, "seconds": seconds}

    rounds = [
        {OURS: answer("bf16", 1.0, 800, 800), "trainer_tuned": answer("fp32", 2.0, 900, 1000)},
        {OURS: answer("bf16", 2.0, 1000, 1000), "trainer_tuned": answer("fp32", 6.0, 900, 1000)},
        {OURS: answer("bf16", 1.0, 800, 800), "trainer_tuned": answer("fp32", 4.0, 700, 1000)},
    ]
    rates = {"fp32": 6e6, "bf16": 9e6, COPIES: 2e9}
    rounds = [one_round | {"matrix_products": rates} for one_round in rounds]
    results = reference_job.summarise_rounds(rounds, {"encoder_weights": 1000})
    ours = results["programs"][OURS]
    peer = results["programs"]["trainer_tuned"]
    assert ours["rows_per_second"] == 48
    assert ours["seconds_per_step"] == pytest.approx(2 / 3)
    assert ours["padding"] == 0
    assert peer["padding"] == pytest.approx(1 - 2500 / 3000)
    assert ours["share_of_limit"] == pytest.approx(6 * 1000 * 650 / 9e6)
    ratio = results["ratios"]["trainer_tuned"]
    assert ratio == {"rounds": [2, 3, 4], "min": 2, "median": 3, "max": 4, "spread": pytest.approx(2 / 3)}
    table = render(results, reference_job.COLUMNS, "ours / it")
    assert "3.00 (2.00 to 4.00)" in table
    assert "copies 2 GB/s" in table
    assert "spread over 67% of their median, more than 10%: more rounds or more steps are needed" in table
    steady = reference_job.summarise_rounds(rounds[:1] * 2, {"encoder_weights": 1000})
    assert "are needed" not in render(steady, reference_job.COLUMNS, "ours / it")


def results_of(
    benchmark: ModuleType, folder: Path, words: str, spawned: int, device: str = "cpu"
) -> tuple[dict, str]:
    """Run a benchmark of the tiny job in this process; return its results, and what it printed. Its first
    programs are `spawned` as people's are, the others are forked."""
    output = folder / "results.json"
    job = ["--config", str(ROOT / "configs" / "small_bert.yaml"), *tiny_arguments(folder, device)]
    argv = [*split(words), *job, "--output", str(output)]
    start_server()
    helped = finish([sys.executable, "-m", benchmark.__package__, "--help"], status=0)
    assert "--output" in helped.stdout
    contexts = iter([context.get_context("spawn")] * spawned)
    started = SimpleNamespace(get_context=lambda method: next(contexts, context))
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr("benchmarks.harness.program.multiprocessing", started)
        assert run_benchmark(benchmark.build_parser(), benchmark.measure, argv) == 0
    return json.loads(output.read_text()), printed.getvalue()


@pytest.mark.slow
def test_the_reference_job_on_the_command_line(tmp_path):
    words = "--peers trainer_tuned --steps 2 --rounds 2 --warmup 1 --check-steps 2"
    report, printed = results_of(reference_job, tmp_path, words, spawned=1)
    assert report["check"]["same_work"] is True
    assert set(report["programs"]) == {OURS, "trainer_tuned"}
    assert len(report["ratios"]["trainer_tuned"]["rounds"]) == 2
    assert report["programs"][OURS]["rows"] == 4 * BATCH_SIZE
    rates = report["matrix_products"]
    assert min(rates.values()) > 0
    assert f"{rates[COPIES] / 1e9:,.0f} GB/s" in printed
    assert report["job"]["train_rows"] == EPOCH * BATCH_SIZE
    assert "trainer_tuned" in printed
    assert "matrix products" in printed


@pytest.mark.gpu
def test_all_programs_on_a_gpu(tmp_path):
    words = "--peers all --steps 16 --rounds 2 --tolerance 0.01"
    report, _ = results_of(reference_job, tmp_path, words, spawned=99, device="cuda")
    assert set(report["programs"]) | set(report["skipped"]) == {OURS, *PEERS}
    assert {result["precision"] for result in report["programs"].values()} == {"fp32", "bf16"}


@pytest.mark.slow
def test_every_runtime_of_prediction_on_the_command_line(tmp_path):
    pytest.importorskip("onnxruntime")
    words = "--rows 30 --rounds 1 --probe-rows 8 --precision bf16 --runtimes"
    report, printed = results_of(prediction, tmp_path, words, spawned=0)
    job = report["job"]
    programs = report["programs"]
    assert job["rows"] == 30
    assert set(report["ratios"]) == {"torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8"}
    other_labels = report["check"]["other_labels"]
    assert (other_labels["torch-fp32"], other_labels["onnx-fp32"]) == (0, 0)
    program = programs["torch-bf16"]
    assert program["precision"] == "bf16"
    operations = 2 * job["encoder_weights"] * job["tokens_per_row"] * program["rows_per_second"]
    assert program["share_of_limit"] == pytest.approx(operations / report["matrix_products"]["bf16"])
    assert f"{program['share_of_limit']:.0%}" in printed
    assert programs["onnx-int8"]["share_of_limit"] is None, "only products in fp32 and bf16 are measured"


@pytest.mark.slow
def test_the_client_of_the_server_counts_answers_that_are_of_another_text(tmp_path):
    for package in ("fastapi", "aiohttp", "onnxruntime"):
        pytest.importorskip(package)
    from app.serving.options import ServeOptions
    from benchmarks.serving.client import ask
    from tests.serving.running_server import running

    opened = open_model(save_checkpoint(tmp_path), ComputeOptions("cpu"))
    texts = random_texts(12)
    names = opened.predictor.task.label_names
    predictions = opened.predictor.predict(as_rows(texts))
    wanted = [dict(zip(names, prediction.probabilities.tolist(), strict=True)) for prediction in predictions]
    job = {"clients": 3, "seconds": 0.5, "texts": texts, "wanted": wanted, "tolerance": 1e-4}
    with running(opened, ServeOptions()) as address:
        job["port"] = int(address.rpartition(":")[2])
        right = asyncio.run(ask(job))
        swapped = asyncio.run(ask(job | {"wanted": wanted[1:] + wanted[:1]}))
    assert right["requests"] >= 3
    assert (right["wrong"], right["refused"]) == (0, 0)
    assert swapped["wrong"] > swapped["requests"] / 2
