"""Classify the rows of the reference job with this project and with transformers' pipeline, side by side.

python -m benchmarks.prediction --rows 2048 --rounds 5 --output results.json
python -m benchmarks.prediction --model small --rows 200 --rounds 2
python -m benchmarks.prediction --runtimes --rows 1024 --rounds 3

`predict` is predict.py's way from texts to labels, `pipeline` is transformers'. Each uses the settings that
it finds fastest. First both must give the same labels and probabilities in fp32. `--runtimes` times every
runtime and precision of predict.py (torch fp32 and bf16, ONNX fp32 and int8) against the pipeline in fp32,
and counts the labels that differ from its labels. Exit status: 0; 1 where they do not, or one failed; 2 for
bad input.
"""

import argparse
import sys
from dataclasses import replace
from pathlib import Path

from app.commands.parser import Parser
from benchmarks.harness.command import POSITIVE, add_job_options, command_parser, run_benchmark
from benchmarks.harness.program import Program, run_rounds
from benchmarks.harness.summary import ratios, render, summarise

PEER = "pipeline"
TOLERANCE = 1e-4
COLUMNS = ["precision", "settings", "rows/s", "memory", "of limit"]


def build_parser() -> Parser:
    """Return the parser of the command line."""
    parser = command_parser("prediction", __doc__)
    add = parser.add_argument
    add("--rows", type=POSITIVE, default=2048, help="texts, drawn from the training rows (default: 2048)")
    add("--rounds", type=POSITIVE, default=5, help="times that each program classifies all (default: 5)")
    add("--probe-rows", type=POSITIVE, default=512, help="texts to try settings with (default: 512)")
    runtimes = "time every runtime and precision against the pipeline in fp32"
    add("--runtimes", action="store_true", help=runtimes)
    add_job_options(parser, "auto: bf16 is tried where its matrix products are faster")
    return parser


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Check and time the programs, putting the results into `report`; return whether all give the same
    results."""
    # Imports torch, which --help does without
    from benchmarks.prediction.job import prepare

    job, shapes, report["job"] = prepare(options, folder)
    fp32 = replace(job, precisions=["fp32"])
    programs = runtime_programs(job, folder) if options.runtimes else {"predict": ("ours:predict", job)}
    programs[PEER] = ("pipeline:main", fp32 if options.runtimes else job)
    programs = {name: (f"prediction.{main}", own) for name, (main, own) in programs.items()}
    predicted = {}
    for name, (main, own) in programs.items():
        fixed = replace(own if options.runtimes else fp32, probe_rows=0)
        with Program(name, main, fixed, folder) as program:
            predicted[name] = program.run(1, outcomes=True)["outcomes"][0]
    report["check"] = check = compare(predicted)
    for name, count in check["other_labels"].items():
        labels = f"{count:,} of {len(job.texts):,} labels are not {PEER}'s"
        print(f"{name}: {labels}; probabilities differ by {check['differences'][name]:.1e}", flush=True)
    if not options.runtimes and not check["same_work"]:
        print("NOT THE SAME RESULTS")
        return False
    rounds = list(run_rounds(programs, shapes, folder, options.rounds, dict.fromkeys(programs, 1)))
    # Of a token: a multiplication and an addition for each weight
    report |= summarise(rounds, 2 * report["job"]["encoder_weights"])
    answers = {name: result["rounds"] for name, result in report["programs"].items()}
    report["ratios"] = {name: ratios(answers[name], answers[PEER]) for name in programs if name != PEER}
    print(f"{report['job']['rows']:,} texts of {report['job']['tokens_per_row']:.1f} tokens")
    print(render(report, COLUMNS, f"times {PEER}"))
    return True


def runtime_programs(job, folder: Path) -> dict[str, tuple]:
    """Return the function and the job of each runtime and precision that `predict` has; writes the exported
    models to `folder`."""
    from app.export.export import export

    programs = {}
    for precision in job.precisions:
        programs[f"torch-{precision}"] = ("ours:predict", replace(job, precisions=[precision]))
    texts = folder / "texts_to_compare.txt"
    texts.write_text("\n".join(" ".join(text.split()) for text in job.texts), encoding="utf-8")
    for precision in ("fp32", "int8"):
        output = folder / f"onnx-{precision}"
        # What changes is reported here, so no export is refused.
        export(Path(job.checkpoint), output, precision, 1.0, str(texts))
        programs[output.name] = ("ours:onnx", replace(job, checkpoint=str(output)))
    return programs


def compare(predicted: dict[str, list]) -> dict:
    """Return by how much our probabilities differ from the peer's, at most, and how many labels do; and
    whether all is within `TOLERANCE`.

    Two labels may change places where their probabilities are equal to within it.
    """
    differences, other_labels = {}, {}
    for name, mine in predicted.items():
        if name != PEER:
            pairs = list(zip(mine, predicted[PEER], strict=True))
            differences[name] = max(abs(ours[1] - theirs[1]) for ours, theirs in pairs)
            other_labels[name] = sum(ours[0] != theirs[0] for ours, theirs in pairs)
    # False for not-a-number
    same = all(difference <= TOLERANCE for difference in differences.values())
    same = same and max(other_labels.values()) < 0.01 * len(predicted[PEER])
    return {"differences": differences, "other_labels": other_labels, "same_work": same}


if __name__ == "__main__":
    sys.exit(run_benchmark(build_parser(), measure))
