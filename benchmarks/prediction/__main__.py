"""Classify the rows of the reference job with this project and with transformers' pipeline, side by side.

python -m benchmarks.prediction --rows 2048 --rounds 5 --output results.json
python -m benchmarks.prediction --model small --rows 200 --rounds 2
python -m benchmarks.prediction --runtimes --checkpoint checkpoints/weibo-001 --rows 1024 --rounds 3

`predict` is predict.py's way from texts to labels, `evaluate` that of a run's evaluation, whose rows are
tokenised already; `pipeline` is transformers'. Each uses the settings that it finds fastest. First all must
give the same labels and probabilities in fp32. `--runtimes` times every runtime and precision of predict.py
(torch fp32 and bf16, ONNX fp32 and int8) against the pipeline in fp32, and counts the labels that differ from
its labels; `--checkpoint` takes a trained model for that. Exit status: 0; 1 where they do not, or one failed;
2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.harness.command import add_job_options, command_parser, run_benchmark, say
from benchmarks.harness.rounds import Program, run_round
from benchmarks.harness.summary import median_rates, ratios, render_rates, render_table, spread
from benchmarks.prediction import OURS, PEER

TOLERANCE = 1e-4


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Return the command line's values; `settings` are the words that are left, for run_single.py."""
    parser = command_parser("prediction", __doc__)
    add = parser.add_argument
    add("--rows", type=int, default=2048, help="texts, drawn from the training rows (default: 2048)")
    add("--rounds", type=int, default=5, help="times that each program classifies them all (default: 5)")
    add("--probe-rows", type=int, default=512, help="texts that settings are tried with (default: 512)")
    add(
        "--runtimes",
        action="store_true",
        help="time every runtime and precision against the pipeline in fp32",
    )
    add("--checkpoint", metavar="FOLDER", help="the model, for --runtimes (default: random weights)")
    add_job_options(parser, auto="auto: bf16 is tried where its matrix products are faster")
    args, args.settings = parser.parse_known_args(argv)
    for name in ("rows", "rounds", "probe_rows"):
        if getattr(args, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1, found {getattr(args, name)}")
    if args.checkpoint and not args.runtimes:
        parser.error("--checkpoint needs --runtimes")
    return args


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    args = parse(argv)
    return run_benchmark(
        "prediction", argv, lambda folder, report: measure(args, folder, report), args.output
    )


def measure(args: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Check and time the programs, putting the results into `report`; return whether all give the same
    results."""
    # Imports torch, which --help does without
    from benchmarks.prediction.prepare import prepare

    job, shapes, description = prepare(args, folder)
    job = replace(job, checkpoint=args.checkpoint or job.checkpoint)
    report["job"] = description
    if args.runtimes:
        return measure_runtimes(args, job, shapes, folder, report)
    names = (*OURS, PEER)
    predicted = {}
    for name in names:
        fixed = replace(job, fixed=True, bf16=False, probe_rows=1)
        with Program(name, f"benchmarks.prediction.{name}", fixed, folder) as program:
            predicted[name] = program.run(1, outcomes=True)["outcomes"][0]
    report["check"] = check = compare(predicted)
    for name, difference in check["differences"].items():
        print(f"check, {name}: probabilities differ by {difference:.1e} from {PEER}'s", flush=True)
    if not check["same_work"]:
        print("NOT THE SAME RESULTS")
        return False
    put_results(report, *run_rounds(args, {name: (name, job) for name in names}, shapes, folder))
    print("\n" + render(report))
    return True


def measure_runtimes(args: argparse.Namespace, job, shapes, folder: Path, report: dict) -> bool:
    """Time every runtime and precision, and count the labels that differ from those of the pipeline in
    fp32."""
    from benchmarks.prediction.runtimes import flipped_labels, runtime_programs

    programs = runtime_programs(job, folder)
    predicted = {}
    for name, (module, one_job) in programs.items():
        one_job = replace(one_job, fixed=one_job.only is None)
        with Program(name, f"benchmarks.prediction.{module}", one_job, folder) as program:
            predicted[name] = program.run(1, outcomes=True)["outcomes"][0]
    report["flipped"] = flipped_labels(predicted, PEER)
    put_results(report, *run_rounds(args, programs, None if args.checkpoint else shapes, folder))
    print("\n" + render(report))
    for name, count in report["flipped"].items():
        print(f"{name}: {count:,} of {len(job.texts):,} labels differ from {PEER}'s")
    return True


def put_results(
    report: dict, rounds: list[dict], details: dict[str, dict], rates: list[dict[str, float]]
) -> None:
    """Put the results of the rounds into the report; `rates` of matrix products, by precision,
    of each round."""
    names = list(details)
    answers = {name: [one_round[name] for one_round in rounds] for name in names}
    report["programs"] = {
        name: details[name]
        | {
            "rows_per_second": sum(one["rows"] for one in answers[name])
            / sum(one["seconds"] for one in answers[name]),
            "peak_memory": max(one["peak_memory"] for one in answers[name]),
            "rounds": answers[name],
        }
        for name in names
    }
    report["ratios"] = {name: ratios(answers[name], answers[PEER]) for name in names if name != PEER}
    report["matrix_products"] = median_rates(rates)
    # Of a row: a multiplication and an addition for each weight and each token.
    operations = 2 * report["job"]["encoder_weights"] * report["job"]["tokens_per_row"]
    for result in report["programs"].values():
        rate = report["matrix_products"].get(result["precision"])
        result["share_of_limit"] = result["rows_per_second"] * operations / rate if rate else None


def compare(predicted: dict[str, list]) -> dict:
    """Return by how much ours differ from the peer's probabilities, at most, and whether all is within
    `TOLERANCE`.

    Two labels may change places where their probabilities are equal to within it.
    """
    theirs = predicted[PEER]
    differences = {
        name: max(abs(mine[1] - other[1]) for mine, other in zip(predicted[name], theirs, strict=True))
        for name in OURS
    }
    same_labels = {
        name: sum(mine[0] == other[0] for mine, other in zip(predicted[name], theirs, strict=True))
        / len(theirs)
        for name in OURS
    }
    same = all(value <= TOLERANCE for value in differences.values()) and min(same_labels.values()) > 0.99
    return {"differences": differences, "same_labels": same_labels, "tolerance": TOLERANCE, "same_work": same}


def run_rounds(
    args: argparse.Namespace, programs_by_name: dict, shapes, folder: Path
) -> tuple[list, dict, list]:
    """Start every program and run the rounds.

    Returns each round's answers, each program's description of itself, and the rates of matrix products on
    the shapes of the encoder in each round (none without `shapes`).
    """
    rounds, rates = [], []
    with ExitStack() as stack:
        programs = []
        if shapes:
            products = Program("matrix_products", "benchmarks.harness.matrix_products", shapes, folder)
            stack.enter_context(products)
        for name, (module, job) in programs_by_name.items():
            program = stack.enter_context(Program(name, f"benchmarks.prediction.{module}", job, folder))
            say(f"{name}: ready, {program.details['precision']}, {program.details['settings']}")
            programs.append(program)
        steps = dict.fromkeys(programs_by_name, 1)
        for number in range(1, args.rounds + 1):
            rates += products.run(1, outcomes=True)["outcomes"] if shapes else []
            rounds.append(
                run_round(programs, steps, 0, lambda line, number=number: say(f"round {number}, {line}"))
            )
    return rounds, {program.name: program.details for program in programs}, rates


def render(report: dict) -> str:
    """Return the table of the results."""
    rows = []
    for name, result in report["programs"].items():
        memory = f"{result['peak_memory'] / 1e6:,.0f} MB"
        ratio = spread(report["ratios"][name]) if name != PEER else ""
        share = f"{result['share_of_limit']:.0%}" if result["share_of_limit"] else ""
        rows.append(
            [
                name,
                result["precision"],
                result["settings"],
                f"{result['rows_per_second']:.1f}",
                memory,
                share,
                ratio,
            ]
        )
    table = render_table(["", "precision", "settings", "rows/s", "memory", "of limit", f"times {PEER}"], rows)
    rates = render_rates(report["matrix_products"])
    texts = f"{report['job']['rows']:,} texts of {report['job']['tokens_per_row']:.1f} tokens"
    return f"{texts}\n\n{table}" + (f"\n\nmatrix products: {rates}" if rates else "")


if __name__ == "__main__":
    sys.exit(main())
