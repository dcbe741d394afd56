"""Draw the losses and the dev metrics of a run. Needs matplotlib: pip install -r requirements-benchmarks.txt -c constraints.txt

python docs/pictures/training.py checkpoints/sample-001 docs/pictures/training.png
"""

import argparse
import json
import re
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot


def main() -> None:
    """Read the logs of a run folder and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="run folder, with train.log and metrics.jsonl")
    parser.add_argument("output", type=Path, help="picture to write (.png, .svg)")
    args = parser.parse_args()
    log = (args.run / "train.log").read_text(encoding="utf-8")
    steps, losses = zip(*re.findall(r"step (\d+)/\d+ +loss ([\d.]+)", log), strict=True)
    evaluations = [json.loads(line) for line in (args.run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]

    figure, (left, right) = pyplot.subplots(1, 2, figsize=(9, 2.8), layout="constrained")
    left.plot([int(step) for step in steps], [float(loss) for loss in losses], label="train")
    left.set(xlabel="step", ylabel="loss", title="loss")
    dev_steps = [entry["step"] for entry in evaluations]
    left.plot(dev_steps, [entry["loss"] for entry in evaluations], marker="o", markersize=3, label="dev")
    for name in ("macro_f1", "accuracy"):
        right.plot(dev_steps, [entry[name] for entry in evaluations], marker="o", markersize=3, label=f"dev {name}")
    best = [entry for entry in evaluations if entry["best"]][-1]
    right.axvline(best["step"], color="grey", linestyle=":", label=f"best checkpoint, step {best['step']}")
    right.set(xlabel="step", title="dev")
    for axes in (left, right):
        axes.legend(frameon=False)
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(args.output, dpi=110)


if __name__ == "__main__":
    main()
