"""What suggest is worth, by a linear head on vectors that are computed once.

python -m benchmarks.few_labels                                       csl13, tnews and waimai_10k
python -m benchmarks.few_labels --jobs configs/tnews.yaml --strategies breaking_ties --seeds 2

Of each strategy, the labels that it needs for the macro F1 of random rows, as a share of theirs; 25 rows a
round. A job is as in benchmarks.quality. Exit status: 0; 2 for bad input; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from app.model.linear_start import C
from app.vectors import STRATEGIES
from app.vectors.strategies import choose_rows
from app.vectors.text_vectors import open_vectors
from benchmarks.harness.command import command_parser, run_benchmark, say
from benchmarks.harness.summary import render_table
from benchmarks.quality.texts import Rows, open_job, rows_by_part

JOBS = [f"configs/{name}.yaml" for name in ("csl13", "tnews", "waimai_10k")]
ENCODER, PREFIX, MAX_LENGTH = "e5-small-zh", "query: ", 128
POOL, TEST, STEP, LAST, GOALS = 2500, 1000, 25, 300, (150, 300)


def fitted(vectors: np.ndarray, labels: np.ndarray) -> LogisticRegression:
    """Return the head that `model.head linear` starts with."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return LogisticRegression(C=C, max_iter=300).fit(vectors, labels)


def curve(strategy: str, pool: np.ndarray, labels: np.ndarray, test: tuple, seed: int) -> list[float]:
    """Return the macro F1 after each round; the first one has random rows."""
    left, scores = np.random.default_rng(seed).permutation(len(pool)), []
    chosen, left = left[:STEP], left[STEP:]
    while True:
        head = fitted(pool[chosen], labels[chosen])
        scores.append(f1_score(test[1], head.predict(test[0]), average="macro", zero_division=0))
        if len(chosen) >= LAST:
            return scores
        probabilities = head.predict_proba(pool[left])
        of_pool = (probabilities, probabilities.max(axis=1), pool[left], pool[chosen])
        places = choose_rows(strategy, STEP, *of_pool, seed + 1000 * len(scores))
        chosen, left = np.append(chosen, left[places]), np.delete(left, places)


def share_needed(of_random: np.ndarray, of_strategy: np.ndarray, goal: int) -> str:
    """Return how many labels reach the score of `goal` random ones, as a share of these."""
    counts = np.arange(STEP, LAST + 1, STEP)
    wanted, best = of_random[goal // STEP - 1], np.maximum.accumulate(of_strategy)
    return "never" if best[-1] < wanted else f"{float(np.interp(wanted, best, counts)) / goal:.0%}"


def suggest(strategies: list[str], seeds: int, *data) -> dict:
    """Return the mean curve of each strategy, and its shares."""
    curves = {
        name: np.mean([curve(name, *data, seed) for seed in range(seeds)], axis=0)
        for name in ("random", *strategies)
    }
    shares = {
        name: [share_needed(curves["random"], curves[name], goal) for goal in GOALS] for name in strategies
    }
    return {"curves": {name: mean.tolist() for name, mean in curves.items()}, "shares": shares}


def vectors_of(rows: Rows, count: int, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors and labels of up to `count` rows, chosen with seed 0."""
    chosen = rows.part(np.random.default_rng(0).permutation(len(rows.texts))[:count])
    encoder = open_vectors(ENCODER, folder, MAX_LENGTH, prefix=PREFIX)
    return np.array(encoder.stored(chosen.texts, folder)), chosen.labels


def measure(args: argparse.Namespace, report: dict) -> bool:
    """Measure each job and print its tables."""
    for job in args.jobs:
        settings, dataset = open_job(job)
        rows = rows_by_part(dataset)
        say(f"{job} ...")
        pool, labels = vectors_of(rows["train"], POOL, settings.cache_dir)
        inputs, answers = vectors_of(rows["test"], TEST, settings.cache_dir)
        centre = pool.mean(axis=0)
        data = pool - centre, labels, (inputs - centre, answers)
        report[job] = suggest(args.strategies, args.seeds, *data)
        cells = [[name, *shares] for name, shares in report[job]["shares"].items()]
        print(f"\n{render_table([job, *(f'{goal} random rows' for goal in GOALS)], cells)}", flush=True)
    return True


def main(argv: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = command_parser("few_labels", __doc__)
    # The last is for rows that keep the guess as their label
    others = [name for name in STRATEGIES if name not in ("random", "highest_confidence")]
    add = parser.add_argument
    add("--jobs", nargs="+", default=JOBS, metavar="JOB", help="(default: csl13, tnews, waimai_10k)")
    add("--strategies", nargs="+", choices=others, default=others, help="(default: all)")
    add("--seeds", type=int, default=5, help="first rows of suggest (default: 5)")
    args = parser.parse_args(argv)
    return run_benchmark("few_labels", argv, lambda _, report: measure(args, report), args.output)


if __name__ == "__main__":
    sys.exit(main())
