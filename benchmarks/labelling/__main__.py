"""What labelling with a model in the loop is worth, by people who are simulated: they know all labels.

python -m benchmarks.labelling
python -m benchmarks.labelling --jobs tnews --runs 10 --answers 600

Of each job: how many answers reach the macro F1 of a linear head on 300 random rows; how often the interval
of the accuracy holds the accuracy on all texts that were not labelled; and how far the accuracy is below its
plateau where the session says that more answers bring hardly anything. The vectors of e5-small-zh are
computed once. Exit status: 0; 2 for bad input.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.metrics import f1_score

from app.errors import say
from app.labelling.pool import open_pool
from app.labelling.session import LabelSession, SessionOptions
from app.text_table import text_table
from app.vectors.encoder import open_encoder
from app.vectors.head import centre_and_scale, fit_head
from app.vectors.store import VectorStore
from benchmarks.harness.command import POSITIVE, command_parser, run_benchmark
from benchmarks.quality.texts import open_job, rows_by_part

JOBS = ["waimai_10k", "csl13", "tnews", "smp2020_ewect_usual"]
NUM_TEXTS = 2000  # of each job, with vectors
POOL = 1400  # of them are the pool of a run, drawn at random; the others are never labelled
RANDOM_ROWS = 300
STEP = 10  # answers between two looks at the model


class VectorsOfTexts:
    """Vectors that are there, by text."""

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        self.vectors = vectors

    def chunks(self, texts, should_stop=lambda: False):
        yield np.arange(len(texts)), np.stack([self.vectors[text] for [text] in texts])


class Job:
    """The texts of a job, with their labels and vectors. Each text is there once."""

    def __init__(self, name: str) -> None:
        settings, dataset = open_job(f"configs/{name}.yaml")
        rows = pd.concat(rows_by_part(dataset).values()).drop_duplicates("text")
        rows = rows.iloc[np.random.default_rng(0).permutation(len(rows))[:NUM_TEXTS]]
        self.texts = rows.text.tolist()
        self.labels = rows.label.to_numpy()
        self.label_names = dataset.label_names
        store = VectorStore(open_encoder(cache_dir=settings.cache_dir), settings.cache_dir)
        self.vectors = store.vectors([(text,) for text in self.texts])

    def scores(self, head, rows: np.ndarray) -> tuple[float, float]:
        """Return the accuracy and the macro F1 of a head on some rows."""
        predicted = head.probabilities(self.vectors[rows]).argmax(axis=1)
        labels = self.labels[rows]
        macro_f1 = f1_score(labels, predicted, average="macro", zero_division=0)
        return float((predicted == labels).mean()), float(macro_f1)

    def random_rows(self, seed: int, count: int) -> float:
        """Return the macro F1 of a head on random rows of the pool of a run, on the other rows."""
        order = self.order(seed)
        rows = np.random.default_rng(seed + 1).permutation(order[:POOL])[:count]
        centre, scale = centre_and_scale(self.vectors[order[:POOL]])
        targets = np.eye(len(self.label_names))[self.labels[rows]]
        head = fit_head(self.vectors[rows], targets, centre, scale, has_several=False)
        return self.scores(head, order[POOL:])[1]

    def order(self, seed: int) -> np.ndarray:
        return np.random.default_rng(seed).permutation(len(self.texts))

    def sitting(self, seed: int, num_answers: int, folder: Path) -> dict:
        """Label a pool, and return what the session said and what was true, every `STEP` answers."""
        order = self.order(seed)
        folder = folder / f"{seed}"
        folder.mkdir()
        pd.DataFrame({"text": [self.texts[row] for row in order[:POOL]]}).to_csv(
            folder / "pool.csv", index=False
        )
        row_of_text = {text: row for row, text in enumerate(self.texts)}
        vectors = VectorsOfTexts(dict(zip(self.texts, self.vectors, strict=True)))
        options = SessionOptions(vectors=vectors, cache_dir=str(folder / "cache"), seed=seed)
        records = []
        seconds = []
        is_left = np.zeros(len(self.texts), bool)
        is_left[order[:POOL]] = True
        with LabelSession(
            open_pool(folder / "pool.csv"), self.label_names, folder / "labels.csv", options
        ) as session:
            while session.status()["vectors"]["done"] < POOL:
                time.sleep(0.05)
            text = session.next_text("")
            count = 0
            while count < num_answers:
                row = row_of_text[text.text]
                is_left[row] = False
                started = time.perf_counter()
                session.answer("", text.number, [self.label_names[self.labels[row]]])
                text = session.next_text("")
                seconds.append(time.perf_counter() - started)
                count = len(session._answers)
                is_new = not records or records[-1]["answers"] != count
                head = session._learner.head
                if count % STEP == 0 and is_new and head is not None:
                    status = session.status()
                    accuracy, macro_f1 = self.scores(head, order[POOL:])
                    accuracy_left, _macro_f1 = self.scores(head, np.flatnonzero(is_left))
                    records.append(
                        {
                            "answers": count,
                            "accuracy": accuracy,
                            "accuracy_left": accuracy_left,
                            "macro_f1": macro_f1,
                            "shown": status["kept"],
                            "gain": status["gain"],
                            "enough": status["enough"],
                        }
                    )
        return {"records": records, "seconds": seconds}


def answers_needed(curves: np.ndarray, answers: np.ndarray, goal: float) -> float:
    """Return at how many answers the mean of curves reaches a goal; not a number where it does not."""
    best = np.maximum.accumulate(curves.mean(axis=0))
    if best[-1] < goal:
        return float("nan")
    return float(np.interp(goal, best, answers))


def covered(records: list[dict], key: str) -> float:
    """Return how often the interval of the accuracy holds the one under `key`."""
    inside = []
    for record in records:
        accuracy = record["shown"]["accuracy"]
        inside.append(accuracy["low"] <= record[key] <= accuracy["high"])
    return float(np.mean(inside))


def summary(job: Job, sittings: list[dict]) -> dict:
    """Return the figures of a job."""
    goals = [job.random_rows(seed, RANDOM_ROWS) for seed in range(len(sittings))]
    answers = np.array([record["answers"] for record in sittings[0]["records"]])
    num_points = min(len(sitting["records"]) for sitting in sittings)
    curves = []
    last_records = []
    below_plateau = []
    stops = []
    gains = []
    for sitting in sittings:
        records = sitting["records"][-num_points:]
        curves.append([record["macro_f1"] for record in records])
        last_records.append(records[-1])
        plateau = np.mean([record["accuracy"] for record in records[-5:]])
        first_stop = next((record for record in records if record["enough"]), None)
        if first_stop is not None:
            stops.append(first_stop["answers"])
            below_plateau.append(plateau - first_stop["accuracy"])
        for early, late in zip(records[:-5], records[5:], strict=True):
            if early["gain"] is not None:
                actual = late["accuracy"] - early["accuracy"]
                gains.append(early["gain"]["low"] <= actual <= early["gain"]["high"])
    curves = np.array(curves)
    seconds = np.concatenate([sitting["seconds"] for sitting in sittings])
    needed = answers_needed(curves, answers[-num_points:], float(np.mean(goals)))
    return {
        "random_macro_f1": float(np.mean(goals)),
        "macro_f1": curves.mean(axis=0).tolist(),
        "answers_needed": needed,
        "share_needed": needed / RANDOM_ROWS,
        "covered_outside": covered(last_records, "accuracy"),
        "covered_left": covered(last_records, "accuracy_left"),
        "gains_covered": float(np.mean(gains)) if gains else None,
        "stops": stops,
        "below_plateau": below_plateau,
        "seconds_median": float(np.median(seconds)),
        "seconds_99": float(np.quantile(seconds, 0.99)),
    }


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Measure each job and print its line."""
    lines = []
    for name in options.jobs:
        job = Job(name)
        say(f"{name} ...")
        (folder / name).mkdir()
        sittings = []
        for seed in range(options.runs):
            sittings.append(job.sitting(seed, options.answers, folder / name))
        report[name] = summary(job, sittings)
        report[f"{name}_sittings"] = sittings
        figures = report[name]
        below = figures["below_plateau"]
        needed = f"over {options.answers}"
        if np.isfinite(figures["answers_needed"]):
            needed = f"{figures['answers_needed']:.0f} ({figures['share_needed']:.0%})"
        lines.append(
            [
                name,
                needed,
                f"{figures['covered_outside']:.1%}, {figures['covered_left']:.1%}",
                f"{len(below)} of {options.runs}",
                f"{np.mean(below):.4f}" if below else "",
                f"{figures['seconds_median']:.3f}, {figures['seconds_99']:.3f}",
            ]
        )
    heads = ["job", "answers", "covered outside, left", "stopped", "below plateau", "seconds: median, 99 %"]
    print(f"\n{text_table(heads, lines)}", flush=True)
    return True


if __name__ == "__main__":
    parser = command_parser("labelling", __doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="jobs (default: all)")
    parser.add_argument("--runs", type=POSITIVE, default=50, help="sittings of each job (default: 50)")
    parser.add_argument("--answers", type=POSITIVE, default=300, help="answers of a sitting (default: 300)")
    sys.exit(run_benchmark(parser, measure))
