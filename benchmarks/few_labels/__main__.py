"""What suggest and add-class are worth, by a linear head on vectors that are computed once.

python -m benchmarks.few_labels                                       csl13, tnews and waimai_10k
python -m benchmarks.few_labels --jobs configs/tnews.yaml --strategies breaking_ties --seeds 2

suggest: labels that a strategy needs for the macro F1 of random rows, as a share of theirs; 25 rows a round.
add-class: each class is left out and added from five texts; how many of its test rows are found, and what the
others lose, against a head that is trained again with these texts. A job is as in benchmarks.quality. Exit
status: 0; 2 for bad input; 130 when interrupted.
"""

from __future__ import annotations

import argparse
import sys
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

from app.export.added_class import row_of_class
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
TEXTS, DRAWS, MAY_LOSE = 5, 2, 0.05


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


def add_class(pool: np.ndarray, labels: np.ndarray, test: tuple) -> dict:
    """Return of both ways, by class and draw, the share of its test rows found, and what others lose."""
    ways, (inputs, answers) = {"add-class": [], "trained again": []}, test
    for new in np.unique(labels):
        own, is_new = np.flatnonzero(labels == new), answers == new
        known = np.flatnonzero(labels != new)
        # The last fifth chooses the bias, as dev rows do
        train, dev = np.split(known, [int(0.8 * len(known))])
        head = fitted(pool[train], labels[train])
        before, scores = head.predict(inputs), head.decision_function(inputs).max(axis=1)
        length = float(np.linalg.norm(head.coef_, axis=1).mean())
        of_dev = pool[dev], head.decision_function(pool[dev]), np.searchsorted(head.classes_, labels[dev])
        for seed in range(DRAWS if len(own) >= TEXTS and is_new.any() else 0):
            five = np.random.default_rng(seed).permutation(own)[:TEXTS]
            of_texts = pool[five], head.decision_function(pool[five])
            weights, bias, _ = row_of_class(*of_texts, *of_dev, length, MAY_LOSE)
            rows = np.append(train, five)
            again = fitted(pool[rows], labels[rows]).predict(inputs)
            added = np.where(inputs @ weights + bias > scores, new, before)
            for way, predicted in zip(ways, (added, again), strict=True):
                lost = (before == answers)[~is_new].mean() - (predicted == answers)[~is_new].mean()
                ways[way].append([float((predicted == answers)[is_new].mean()), float(lost)])
    return ways


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
        report[job] = {"suggest": suggest(args.strategies, args.seeds, *data)}
        cells = [[name, *shares] for name, shares in report[job]["suggest"]["shares"].items()]
        print(f"\n{render_table([job, *(f'{goal} random rows' for goal in GOALS)], cells)}", flush=True)
        if len(dataset.label_names) > 2:
            ways = report[job]["add-class"] = add_class(*data)
            cells = [
                [way, *(f"{mean:.3f}" for mean in np.mean(of_way, axis=0))] for way, of_way in ways.items()
            ]
            print(f"\n{render_table([job, 'class found', 'others lose'], cells)}", flush=True)
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
