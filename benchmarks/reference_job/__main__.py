"""Train the reference job with this project and with what people use instead, side by side.

python -m benchmarks.reference_job --peers all --steps 48 --rounds 6         an epoch of the reference job
python -m benchmarks.reference_job --peers trainer_tuned --steps 10 --output results.json
python -m benchmarks.reference_job --peers all --check                       only that all do the same work
python -m benchmarks.reference_job --model small --data.train reviews.csv    settings change the job

Exit status: 0; 1 where the programs do not do the same work, or one failed; 2 for bad input.
"""

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from app.commands.parser import Parser
from benchmarks.harness.command import POSITIVE, add_job_options, command_parser, run_benchmark
from benchmarks.harness.program import Program, ProgramFailed, run_rounds
from benchmarks.harness.summary import ratios, render, summarise
from benchmarks.reference_job import OURS, PEERS

COLUMNS = ["precision", "s/step", "rows/s", "tokens/s", "padding", "memory", "of limit"]
# Padded to a fixed length, so that its steps all cost the same and a few of them are enough
FEWER_STEPS = {"example_repository": 8}
# Steps before those of each round: after waiting, caches are cold and free memory has been given back
UNTIMED = 1


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = command_parser("reference_job", __doc__)
    add = parser.add_argument
    add("--peers", nargs="+", default=["all"], choices=["all", *PEERS], metavar="PEER", help=", ".join(PEERS))
    steps = "optimizer steps in a round (default: 48); example_repository makes an eighth"
    add("--steps", type=POSITIVE, default=48, help=steps)
    add("--rounds", type=POSITIVE, default=6, help="rounds, in each of which all run (default: 6)")
    add("--warmup", type=POSITIVE, default=5, help="steps before the first round (default: 5)")
    add_job_options(parser, "of the programs that choose; auto: bf16 where its matrix products are faster")
    add("--check", action="store_true", help="only check that all do the same work")
    add("--no-check", action="store_true", help="skip that check")
    add("--check-steps", type=POSITIVE, default=3, help="steps of the check (default: 3)")
    tolerance = "largest difference of two losses that counts as equal (default: 0.001)"
    add("--tolerance", type=float, default=1e-3, help=tolerance)
    return parser


def missing(peer: str) -> str | None:
    """Return what has to be installed for a peer, or None."""
    if peer == "lightning_fabric" and not find_spec("lightning_fabric"):
        return "needs Lightning Fabric: pip install -r requirements/benchmarks.txt -c constraints.txt"
    return None


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Check and time the programs, putting the results into `report`; return whether all do the same work."""
    # Imports torch, which --help does without
    from benchmarks.reference_job.prepare import prepare

    wanted = PEERS if "all" in options.peers else options.peers
    skipped = report["skipped"] = {name: reason for name in wanted if (reason := missing(name))}
    names = [OURS, *(name for name in dict.fromkeys(wanted) if name not in skipped)]
    # The warm-up, then for each round its untimed and its timed steps
    stretches = {
        name: [options.warmup, *[UNTIMED, max(1, options.steps // FEWER_STEPS.get(name, 1))] * options.rounds]
        for name in names
    }
    arguments = ["--config", options.config, *options.settings]
    shape = options.model, options.precision
    prepared = prepare(arguments, *shape, stretches[OURS], options.check_steps, folder)
    report["job"] = job = prepared.description
    print(*(f"{name} {value};" for name, value in job.items()), flush=True)

    def program_of(name: str, job) -> tuple:
        return f"reference_job.{name}:main", job

    if not options.no_check:
        losses = {}
        for name in names:
            with Program(name, *program_of(name, prepared.check_job), folder) as program:
                losses[name] = program.run(options.check_steps, outcomes=True)["outcomes"]
        report["check"] = check = compare_losses(losses, options.tolerance)
        for name, difference in check["differences"].items():
            verdict = "same" if difference <= options.tolerance else "NOT THE SAME"
            print(f"check, {name}: losses differ by {difference:.1e}, {verdict}", flush=True)
        if options.check or not check["same_work"]:
            return check["same_work"]
    jobs = {name: prepared.job.with_steps(stretches[name]) for name in names}
    programs, rounds = {name: program_of(name, jobs[name]) for name in names}, []
    steps = {name: stretches[name][-1] for name in names}
    turns = run_rounds(programs, prepared.shapes, folder, options.rounds, steps, UNTIMED, options.warmup)
    for number, answers in enumerate(turns, 1):
        check_rows(answers, {name: jobs[name].stretches[2 * number] for name in names}, prepared.lengths)
        rounds.append(answers)
    report |= summarise_rounds(rounds, job)
    print(render(report, COLUMNS, "ours / it"))
    print("in each round all trained the same rows; their number and real tokens are checked")
    for name, reason in skipped.items():
        print(f"skipped: {name}: {reason}")
    return True


def summarise_rounds(rounds: list[dict[str, dict]], job: dict) -> dict:
    """Return each program's results, and the ratio of ours to each peer."""
    results = summarise(rounds, 6 * job["encoder_weights"])
    answers = {name: result["rounds"] for name, result in results["programs"].items()}
    results["ratios"] = {name: ratios(answers[OURS], answers[name]) for name in answers if name != OURS}
    return results


def compare_losses(losses: dict[str, list[float]], tolerance: float) -> dict:
    """Return each peer's largest difference to our losses, and whether all are within `tolerance`.

    They are of the same batches: fp32, dropout off, the same checkpoint to start from. The second loss and
    those after it also depend on the optimizer, its settings and the gradients. A program that draws other
    rows, pads wrongly or steps otherwise is caught.
    """
    differences = {
        name: max(abs(one - other) for one, other in zip(losses[OURS], theirs, strict=True))
        for name, theirs in losses.items()
        if name != OURS
    }
    # False for not-a-number
    same = all(difference <= tolerance for difference in differences.values())
    return {"losses": losses, "differences": differences, "tolerance": tolerance, "same_work": same}


def check_rows(answers: dict[str, dict], rows: dict[str, list[int]], lengths) -> None:
    """Raise ProgramFailed unless each program has trained its `rows`, by their number and their tokens
    without padding.

    `answers` are those of one round, `lengths` (num_rows,) the tokens of each row.
    """
    for name, some in rows.items():
        given = len(some), int(lengths[some].sum())
        trained = answers[name]["rows"], answers[name]["real_tokens"]
        if trained != given:
            raise ProgramFailed(
                f"all programs must train the same rows; {name} was given {given[0]:,} rows of {given[1]:,} "
                f"tokens, and trained {trained[0]:,} rows of {trained[1]:,} tokens; its time cannot be "
                "compared"
            )


if __name__ == "__main__":
    sys.exit(run_benchmark(build_parser(), measure))
