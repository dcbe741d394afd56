"""Train the reference job with this project and with what people use instead, side by side.

python -m benchmarks.reference_job --peers all --steps 48 --rounds 6         an epoch of the reference job
python -m benchmarks.reference_job --peers trainer_tuned --steps 10 --output results.json
python -m benchmarks.reference_job --peers all --check                       only that all do the same work
python -m benchmarks.reference_job --model small --data.train reviews.csv    settings change the job

Exit status: 0; 1 where the programs do not do the same work, or one failed; 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

from benchmarks.harness.command import add_job_options, command_parser, run_benchmark, say
from benchmarks.harness.rounds import Program, ProgramFailed, run_round
from benchmarks.reference_job import OURS, PEERS
from benchmarks.reference_job.check import check_losses, check_rows, compare_losses
from benchmarks.reference_job.report import describe, render, summarise_rounds

FABRIC = ("lightning_fabric", "lightning")
INSTALL = "pip install -r requirements/benchmarks.txt -c constraints.txt"
# Padded to a fixed length, so that its steps all cost the same and a few of them are enough.
FEWER_STEPS = {"example_repository": 8}
# Steps before those of each round: after waiting, caches are cold and free memory has been given back
UNTIMED = 1


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = command_parser("reference_job", __doc__)
    add = parser.add_argument
    add("--peers", nargs="+", default=["all"], metavar="PEER", help=f"all, or some of {', '.join(PEERS)}")
    add(
        "--steps",
        type=int,
        default=48,
        help="optimizer steps in a round (default: 48); example_repository makes an eighth",
    )
    add("--rounds", type=int, default=6, help="rounds, in each of which every program runs (default: 6)")
    add("--warmup", type=int, default=5, help="steps before the first round (default: 5)")
    add_job_options(
        parser, auto="of the programs that choose; auto: bf16 where its matrix products are faster"
    )
    add("--check", action="store_true", help="only check that all do the same work")
    add("--no-check", action="store_true", help="skip that check")
    add("--check-steps", type=int, default=3, help="steps of the check (default: 3)")
    add(
        "--tolerance",
        type=float,
        default=1e-3,
        help="largest difference of two losses that counts as equal (default: 0.001)",
    )
    return parser


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values; `settings` are the words that are left, for run_single.py."""
    parser = build_parser()
    args, args.settings = parser.parse_known_args(argv)
    for name in ("steps", "rounds", "warmup", "check_steps"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, found {getattr(args, name)}")
    unknown = [name for name in args.peers if name not in ("all", *PEERS)]
    if unknown:
        parser.error(f"--peers must be all, or some of {', '.join(PEERS)}; found {unknown[0]}")
    args.peers = list(PEERS) if "all" in args.peers else list(dict.fromkeys(args.peers))
    return args


def missing(peer: str) -> str | None:
    """Return what has to be installed for a peer, or None."""
    if peer == "lightning_fabric" and not any(map(find_spec, FABRIC)):
        return f"needs Lightning Fabric: {INSTALL}"
    return None


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parse(argv)
    return run_benchmark(
        "reference-job", argv, lambda folder, report: measure(args, folder, report), args.output
    )


def measure(args: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Check and time the programs, putting the results into `report`; return whether all do the same work."""
    # Imports torch, which --help does without
    from benchmarks.reference_job.prepare import prepare

    report["skipped"] = {name: reason for name in args.peers if (reason := missing(name))}
    names = [OURS, *(name for name in args.peers if name not in report["skipped"])]
    arguments = ["--config", args.config, *args.settings]
    stretches = stretches_of(args, OURS)
    prepared = prepare(arguments, args.model, args.precision, stretches, args.check_steps, folder)
    report["job"] = prepared.description
    print(describe(prepared.description), flush=True)
    if not args.no_check:
        losses = check_losses(names, prepared.check_job, args.check_steps, folder, say)
        report["check"] = check = compare_losses(losses, args.tolerance)
        for name, difference in check["differences"].items():
            verdict = "same" if difference <= args.tolerance else "NOT THE SAME"
            print(f"check, {name}: losses differ by {difference:.1e}, {verdict}", flush=True)
        if args.check or not check["same_work"]:
            return check["same_work"]
    rounds, details = run_rounds(args, names, prepared, folder, report)
    report |= (results := summarise_rounds(rounds, details, prepared.description))
    print("\n" + render(results, prepared.description, report["skipped"]))
    return "stopped" not in report


def steps_of(args: argparse.Namespace, name: str) -> int:
    """Return the timed steps of a program in a round."""
    return max(1, args.steps // FEWER_STEPS.get(name, 1))


def stretches_of(args: argparse.Namespace, name: str) -> list[int]:
    """Return the steps that a program is asked for: the warm-up, then those of each round, first the untimed
    ones."""
    return [args.warmup, *[UNTIMED, steps_of(args, name)] * args.rounds]


def run_rounds(
    args: argparse.Namespace, names: list[str], prepared, folder: Path, report: dict
) -> tuple[list[dict[str, dict]], dict[str, dict]]:
    """Start every program, warm it up, and run the rounds; return each round's answers, and each program's
    description of itself.

    When it is interrupted or a program fails, the rounds so far are returned, and `report` says why.
    """
    rounds: list[dict[str, dict]] = []
    with ExitStack() as stack:

        def start(name: str, module: str, job) -> Program:
            return stack.enter_context(Program(name, f"benchmarks.{module}", job, folder))

        products = start("matrix_products", "harness.matrix_products", prepared.shapes)
        programs = []
        jobs = {name: prepared.job.with_steps(stretches_of(args, name)) for name in names}
        for name, job in jobs.items():
            programs.append(start(name, f"reference_job.{name}", job))
            seconds = programs[-1].run(args.warmup)["seconds"]
            say(f"{name}: ready, {args.warmup} steps of warm-up in {seconds:.1f} s")
        steps = {name: steps_of(args, name) for name in names}
        try:
            for number in range(1, args.rounds + 1):
                rates = products.run(1, outcomes=True)["outcomes"][0]
                answers = run_round(
                    programs, steps, UNTIMED, lambda line, number=number: say(f"round {number}, {line}")
                )
                check_rows(
                    answers, {name: job.stretches[2 * number] for name, job in jobs.items()}, prepared.lengths
                )
                rounds.append(answers | {"matrix_products": rates})
        except (ProgramFailed, KeyboardInterrupt) as reason:
            if not rounds:
                raise
            report["stopped"] = f"after {len(rounds)} of {args.rounds} rounds: {reason or 'interrupted'}"
            print(f"stopped {report['stopped']}", flush=True)
    return rounds, {program.name: program.details for program in programs}


if __name__ == "__main__":
    sys.exit(main())
