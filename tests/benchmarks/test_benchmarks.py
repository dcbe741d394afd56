"""The benchmarks with a tiny model: that all programs do the same work and the results are right, not how
fast they are.

The programs run in this process, each asked for a few steps; some `slow` ones go through the command lines.
"""

import json
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from shlex import split

import numpy as np
import pytest
from accelerate.state import AcceleratorState

from benchmarks.harness.matrix_products import Shapes
from benchmarks.harness.meter import Finished, Meter
from benchmarks.harness.rounds import Program, ProgramFailed
from benchmarks.harness.summary import ratios, unsteady
from benchmarks.prediction.__main__ import compare
from benchmarks.prediction.job import PredictionJob
from benchmarks.reference_job import OURS, PEERS
from benchmarks.reference_job.__main__ import main, missing
from benchmarks.reference_job.check import check_rows, compare_losses
from benchmarks.reference_job.job import choose_rows
from benchmarks.reference_job.prepare import Prepared, prepare
from benchmarks.reference_job.report import render, summarise_rounds
from tests.processes import ROOT, finish
from tests.tiny import SIZES, write_tiny

# rows, steps
BATCH_SIZE, EPOCH = 8, 6
# steps: a warm-up, and a round after a step that is not timed
STRETCHES = [EPOCH, 1, 3]


def tiny_arguments(folder: Path, device: str = "cpu") -> list[str]:
    """Return the settings of run_single.py for a job of `EPOCH` steps; its weights are large, so that losses
    differ."""
    rows = write_tiny(folder / "rows.tsv", rows_per_label=BATCH_SIZE * EPOCH // 3)
    sizes = SIZES | {"initializer_range": 0.2}
    model = [f"--model.config.{key}={value}" for key, value in sizes.items()]
    data = ["--data.train", str(rows), "--data.cache_dir", str(folder / "cache"), "--data.max_length", "32"]
    data += ["--data.dev_size", "0", "--data.test_size", "0"]
    data += ["--train.batch_size", str(BATCH_SIZE), "--train.learning_rate", "1e-3"]
    return [*model, *data, "--train.device", device]


@pytest.fixture(scope="module", autouse=True)
def leave_no_traces():
    """Take back what programs leave in this process: Accelerate's state."""
    yield
    AcceleratorState._reset_state(reset_partial_state=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory) -> Prepared:
    """The tiny job; its check is of a whole epoch."""
    folder = tmp_path_factory.mktemp("reference-job")
    sizes = {"stretches": STRETCHES, "check_steps": EPOCH}
    return prepare(tiny_arguments(folder), "base", "fp32", **sizes, folder=folder)


def answers_of(module: str, job, *commands: dict) -> list[dict]:
    """Return what a program sends: its details, then an answer to each command."""
    waiting, sent = iter([*commands, None]), []
    with pytest.raises(Finished):
        import_module(f"benchmarks.{module}").main(job, Meter(lambda: next(waiting), sent.append, job.device))
    return sent


def train(name: str, job, steps: int, outcomes: bool = False) -> dict:
    """Return a program's answer to one command."""
    if reason := missing(name):
        pytest.skip(reason)
    return answers_of(f"reference_job.{name}", job, {"steps": steps, "outcomes": outcomes})[1]


@pytest.fixture(scope="module")
def our_answer(prepared) -> dict:
    """What we answer to the check: an epoch of fixed batches."""
    return train(OURS, prepared.check_job, EPOCH, outcomes=True)


def check_sizes(name: str, answer: dict, prepared: Prepared) -> None:
    """An epoch is every row once, and padding is counted."""
    assert answer["steps"] == EPOCH
    assert answer["rows"] == EPOCH * BATCH_SIZE == prepared.description["train_rows"]
    assert answer["real_tokens"] == round(prepared.description["tokens_per_row"] * answer["rows"])
    assert answer["seconds"] > 0
    assert answer["peak_memory"] > 1e6
    if name == OURS:
        # Packed
        assert answer["tokens"] == answer["real_tokens"]
    elif name == "example_repository":
        assert answer["tokens"] == answer["rows"] * 32
    else:
        assert answer["real_tokens"] < answer["tokens"] < answer["rows"] * 32


@pytest.mark.slow
@pytest.mark.parametrize("name", PEERS)
def test_a_peer_has_our_losses_on_the_same_batches(name, prepared, our_answer):
    answer = train(name, prepared.check_job, EPOCH, outcomes=True)
    losses = {OURS: our_answer["outcomes"], name: answer["outcomes"]}
    check = compare_losses(losses, tolerance=2e-5)
    assert check["differences"][name] <= 2e-5
    assert check["same_work"] is True
    assert len(set(answer["outcomes"])) == EPOCH
    check_sizes(name, answer, prepared)


@pytest.mark.slow
@pytest.mark.parametrize("changed", [{"learning_rate": 8e-4}, {"max_length": 6}, {"shuffle": True}])
def test_a_peer_that_does_other_work_is_caught(changed, prepared, our_answer):
    job = replace(prepared.check_job, **changed)
    theirs = train("accelerate_example", job, EPOCH, outcomes=True)["outcomes"]
    losses = {OURS: our_answer["outcomes"], "accelerate_example": theirs}
    assert compare_losses(losses, tolerance=1e-3)["same_work"] is False


def test_not_a_number_is_a_difference():
    assert compare_losses({OURS: [1.0], "trainer_tuned": [float("nan")]}, tolerance=1.0)["same_work"] is False


@pytest.mark.slow
@pytest.mark.parametrize("name", [OURS, *PEERS])
def test_every_program_trains_the_rows_that_it_is_given(name, prepared):
    if reason := missing(name):
        pytest.skip(reason)
    warmup, untimed, steps = STRETCHES
    commands = {"steps": warmup}, {"untimed": untimed, "steps": steps}
    _, an_epoch, a_round = answers_of(f"reference_job.{name}", prepared.job, *commands)
    # Its rows are all rows once
    check_sizes(name, an_epoch, prepared)
    assert "outcomes" not in an_epoch
    check_rows({name: a_round}, {name: prepared.job.stretches[-1]}, prepared.lengths)
    assert a_round["rows"] == steps * BATCH_SIZE


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


@pytest.mark.slow
def test_programs_order_the_rows_within_a_stretch_only(prepared):
    job, ends = prepared.job, np.cumsum(STRETCHES)[:-1] * BATCH_SIZE
    for order in (job.order(), job.order(lambda rows: rows[::-1])):
        parts = [sorted(part.tolist()) for part in np.split(np.array(order), ends)]
        assert parts == [sorted(stretch) for stretch in job.stretches]
    assert job.order() != job.order(lambda rows: rows) == sum(job.stretches, [])
    assert replace(job, shuffle=False).order(lambda rows: rows[::-1]) == sum(job.stretches, [])
    fewer = job.with_steps([EPOCH, 1, 1]).stretches
    assert fewer[:2] == job.stretches[:2]
    # At even distances, from the shortest to the longest
    assert fewer[2] == job.stretches[2][1::3]


def test_other_rows_than_those_of_the_round_fail_the_benchmark():
    lengths, rows = np.array([5, 6, 7, 8]), {OURS: [0, 3], "trainer_tuned": [0, 3]}
    same = {"rows": 2, "real_tokens": 13}
    check_rows({OURS: same, "trainer_tuned": same}, rows, lengths)
    with pytest.raises(
        ProgramFailed, match="trainer_tuned was given 2 rows of 13 tokens, and trained 2 rows of 11 tokens"
    ):
        check_rows({OURS: same, "trainer_tuned": {"rows": 2, "real_tokens": 11}}, rows, lengths)


def test_the_results_over_rounds():
    def answer(seconds: float, rows: int, real: int, tokens: int) -> dict:
        sizes = {"rows": rows, "real_tokens": real, "tokens": tokens}
        return sizes | {"seconds": seconds, "steps": 2, "peak_memory": 5e8}

    rounds = [
        {OURS: answer(1.0, 64, 800, 800), "trainer_tuned": answer(2.0, 64, 900, 1000)},
        {OURS: answer(2.0, 64, 1000, 1000), "trainer_tuned": answer(6.0, 64, 900, 1000)},
        {OURS: answer(1.0, 64, 800, 800), "trainer_tuned": answer(4.0, 64, 700, 1000)},
    ]
    rounds = [one_round | {"matrix_products": {"fp32": 6e6, "bf16": 9e6}} for one_round in rounds]
    job = {"encoder_weights": 1000, "train_rows": 9600, "model_type": "bert", "layers": 2, "hidden_size": 8}
    job |= {"parameters": 2000, "tokens_per_row": 13.0, "batch_size": 32, "steps_per_epoch": 300}
    job |= {"device": "cpu"}
    details = {OURS: {"precision": "bf16"}, "trainer_tuned": {"precision": "fp32"}}
    results = summarise_rounds(rounds, details, job)
    ours, peer = results["programs"][OURS], results["programs"]["trainer_tuned"]
    assert ours["rows_per_second"] == 48
    assert ours["seconds_per_step"] == pytest.approx(2 / 3)
    assert ours["padding"] == 0
    assert peer["padding"] == pytest.approx(1 - 2500 / 3000)
    assert ours["share_of_limit"] == pytest.approx(6 * 1000 * 650 / 9e6)
    assert ours["epoch_seconds"] == 200
    assert results["ratios"]["trainer_tuned"]["rounds"] == [2, 3, 4]
    assert [results["ratios"]["trainer_tuned"][name] for name in ("min", "median", "max")] == [2, 3, 4]
    table = render(results, job, {"lightning_fabric": "needs a package"})
    assert "3.00 (2.00 to 4.00)" in table
    assert results["ratios"]["trainer_tuned"]["spread"] == pytest.approx(2 / 3)
    assert "spread over 67% of their median, more than 10%: more rounds or more steps are needed" in table
    assert "in each round all trained the same rows, 192 in all" in table
    assert "skipped: lightning_fabric: needs a package" in table


def test_a_ratio_is_taken_within_a_round():
    ours, peer = (
        [{"rows": 8, "seconds": 1}, {"rows": 8, "seconds": 4}],
        [{"rows": 8, "seconds": 2}, {"rows": 8, "seconds": 8}],
    )
    assert ratios(ours, peer)["rounds"] == [2, 2]
    assert unsteady({"trainer_tuned": ratios(ours, peer)}) == []


@pytest.mark.slow
def test_our_results_are_those_of_the_pipeline(prepared, tmp_path):
    job = prepared.job
    positions = list(range(10, 30))
    lines = Path(job.rows_file).read_text(encoding="utf-8").split("\n")
    (tmp_path / "texts.jsonl").write_text(
        "\n".join(lines[position] for position in positions), encoding="utf-8"
    )
    fixed = PredictionJob(
        checkpoint=job.checkpoint,
        rows_file=str(tmp_path / "texts.jsonl"),
        positions=positions,
        max_length=job.max_length,
        device="cpu",
        bf16=False,
        fixed=True,
        probe_rows=4,
        our_arguments=job.our_arguments,
    )
    command = {"steps": 1, "outcomes": True}
    answers = {
        name: answers_of(f"prediction.{name}", fixed, command)[1]
        for name in ("predict", "evaluate", "pipeline")
    }
    assert {answer["rows"] for answer in answers.values()} == {20}
    results = {name: answer["outcomes"][0] for name, answer in answers.items()}
    assert compare(results)["same_work"] is True
    results["predict"][3][1] += 0.01
    assert compare(results)["same_work"] is False


def test_data_that_is_not_there_is_told_in_a_line(capsys, tmp_path):
    assert (
        main(["--data.train", str(tmp_path / "nowhere.tsv"), "--output", str(tmp_path / "results.json")]) == 2
    )
    (line,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert "nowhere.tsv" in line


@pytest.mark.slow
def test_a_program_that_fails_is_named(tmp_path):
    shapes = Shapes([(8, 8), (16, 8)], 4, ["fp32"], "cpu")
    with Program("products", "benchmarks.harness.matrix_products", shapes, tmp_path) as program:
        assert program.run(1, outcomes=True)["outcomes"][0]["fp32"] > 1e3
        program.process.kill()
        program.process.wait()
        with pytest.raises(ProgramFailed, match="products was killed; was the machine out of memory?"):
            program.run(1)
    broken = replace(shapes, precisions=["fp7"])
    with (
        pytest.raises(ProgramFailed, match="broken ended with status 1: KeyError: 'fp7'"),
        Program("broken", "benchmarks.harness.matrix_products", broken, tmp_path) as program,
    ):
        program.run(1)


def results_of(module: str, folder: Path, *words: str, device: str = "cpu") -> tuple[dict, str]:
    """Run the command line of a benchmark for the tiny job; return its results, and what it printed."""
    output = str(folder / "results.json")
    job = ["--config", str(ROOT / "configs" / "small_bert.yaml"), *tiny_arguments(folder, device)]
    done = finish([sys.executable, "-m", f"benchmarks.{module}", *words, *job, "--output", output])
    assert done.returncode == 0, done.stderr
    return json.loads(Path(output).read_text()), done.stdout


@pytest.mark.slow
def test_the_reference_job_on_the_command_line(tmp_path):
    words = split("--peers trainer_tuned --steps 2 --rounds 2 --warmup 1 --check-steps 2")
    report, printed = results_of("reference_job", tmp_path, *words)
    assert report["check"]["same_work"] is True
    assert set(report["programs"]) == {OURS, "trainer_tuned"}
    assert len(report["ratios"]["trainer_tuned"]["rounds"]) == 2
    assert report["programs"][OURS]["rows"] == 4 * BATCH_SIZE
    assert min(report["matrix_products"]["operations_per_second"].values()) > 0
    assert report["job"]["train_rows"] == EPOCH * BATCH_SIZE
    assert "trainer_tuned" in printed
    assert "matrix products" in printed


@pytest.mark.gpu
def test_all_programs_on_a_gpu(tmp_path):
    words = split("--peers all --steps 16 --rounds 2 --tolerance 0.01")
    report, _ = results_of("reference_job", tmp_path, *words, device="cuda")
    assert set(report["programs"]) | set(report["skipped"]) == {OURS, *PEERS}
    assert {result["precision"] for result in report["programs"].values()} == {"fp32", "bf16"}


@pytest.mark.slow
def test_every_runtime_of_prediction_on_the_command_line(tmp_path):
    pytest.importorskip("onnxruntime")
    words = split("--rows 30 --rounds 1 --probe-rows 8 --precision bf16 --runtimes")
    report, printed = results_of("prediction", tmp_path, *words)
    job, programs = report["job"], report["programs"]
    assert job["rows"] == 30
    assert set(report["ratios"]) == {"torch-fp32", "torch-bf16", "onnx-fp32", "onnx-int8"}
    assert (report["flipped"]["torch-fp32"], report["flipped"]["onnx-fp32"]) == (0, 0)
    found = programs["torch-bf16"]
    assert found["precision"] == "bf16"
    operations = 2 * job["encoder_weights"] * job["tokens_per_row"] * found["rows_per_second"]
    assert found["share_of_limit"] == pytest.approx(operations / report["matrix_products"]["bf16"])
    assert f"{found['share_of_limit']:.0%}" in printed
    assert programs["onnx-int8"]["share_of_limit"] is None, "only products in fp32 and bf16 are measured"
