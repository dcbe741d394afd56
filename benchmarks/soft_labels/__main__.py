"""Whether the probabilities of a teacher teach more than its labels: students of both, on the same test rows.

python -m benchmarks.soft_labels
python -m benchmarks.soft_labels --jobs csl13 --teachers votes --seeds 3

Of each job, a teacher labels rows that are no person's: character n-grams or a run, trained on other rows and
calibrated on dev, or five people who each mistake a label for the next one three times in ten (votes). One
student is trained on the probabilities or the shares of votes, the other on the most probable label; dev and
test rows have the labels of people. Exit status: 0; 1 where a run failed; 2 for bad input.
"""

import argparse
import sys
from copy import copy
from pathlib import Path
from typing import Self

import numpy as np
import pandas as pd

from app.commands import run_verb
from app.errors import say
from app.ngrams.fit import fit_characters
from app.tasks.probabilities import log_softmax
from app.tasks.temperature import fit_temperature
from app.text_table import text_table
from benchmarks.harness.command import POSITIVE, command_parser, run_benchmark
from benchmarks.harness.program import ProgramFailed
from benchmarks.quality.__main__ import METRICS, differences, scores
from benchmarks.quality.networks import run_single
from benchmarks.quality.texts import open_job, rows_by_part

JOBS = ["waimai_10k", "smp2020_ewect_usual", "csl13", "tnews"]
TEACHERS = ["ngrams", "run", "votes"]
TEACHER_ROWS = 400  # that n-grams or a run are trained on
STUDENT_ROWS = 400
DEV_ROWS = 100
TEST_ROWS = 800
VOTES = 5  # of each row
WRONG_VOTES = 0.3
SETTINGS = ["--data.max_length", "48", "--model.head", "linear", "--model.prefix", "query: "]
HEADER = ["job", "teacher", "right", "metric", "labels", "probabilities", "difference", "95 % interval"]


class Job:
    """The rows of a job, drawn once: those of teacher and student, dev and test."""

    def __init__(self, name: str) -> None:
        _settings, dataset = open_job(f"configs/{name}.yaml")
        rows = pd.concat(rows_by_part(dataset).values()).drop_duplicates("text")
        order = np.random.default_rng(0).permutation(len(rows))
        ends = np.cumsum([TEACHER_ROWS, STUDENT_ROWS, DEV_ROWS, TEST_ROWS])
        parts = np.split(order[: ends[-1]], ends[:-1])
        self.teacher, self.student, self.dev, self.test = (rows.iloc[part] for part in parts)
        self.label_names = dataset.label_names

    def labelled(self, probabilities: np.ndarray) -> tuple[Self, np.ndarray]:
        """Return the job with the answers of a teacher as the labels of the student's rows, and its
        `probabilities`, (num_rows, num_labels). A rare label that the teacher never gives cannot be learned
        from its labels, so there are no rows of it in dev and test, and no probabilities."""
        answers = probabilities.argmax(axis=1)
        given = np.unique(answers)
        job = copy(self)
        job.label_names = [self.label_names[label] for label in given]
        job.student = self.student.assign(label=np.searchsorted(given, answers))
        for part in ("dev", "test"):
            rows = getattr(self, part)
            rows = rows[rows.label.isin(given)]
            setattr(job, part, rows.assign(label=np.searchsorted(given, rows.label)))
        kept = probabilities[:, given]
        return job, kept / kept.sum(axis=1, keepdims=True)

    def probabilities(self, teacher: str, folder: Path) -> np.ndarray:
        """Return the probabilities that a teacher has for the rows of the student, (num_rows, num_labels)."""
        num_labels = len(self.label_names)
        if teacher == "ngrams":
            model = fit_characters(self.teacher.text.tolist(), self.teacher.label.to_numpy(), num_labels)
            dev_logits = model.outputs(self.dev.text.tolist())
            temperature = fit_temperature(self.dev.label.to_numpy(), dev_logits)
            return np.exp(log_softmax(model.outputs(self.student.text.tolist()), temperature))
        if teacher == "votes":
            generator = np.random.default_rng(1)
            is_wrong = generator.random((len(self.student), VOTES)) < WRONG_VOTES
            votes = (self.student.label.to_numpy()[:, None] + is_wrong) % num_labels
            return np.stack([(votes == label).mean(axis=1) for label in range(num_labels)], axis=1)
        run = folder / "teacher"
        self.train(self.teacher, run, seed=1, settings=[])
        self.write(self.student, folder / "pool.csv")
        words = ["--checkpoint", run, "--input", folder / "pool.csv", "--output", folder / "soft.csv"]
        if run_verb("predict", list(map(str, words))):
            raise ProgramFailed(f"the teacher in {run} did not label {folder / 'pool.csv'}")
        answers = pd.read_csv(folder / "soft.csv", dtype=str, keep_default_na=False)
        return answers[[f"p_{name}" for name in self.label_names]].astype(float).to_numpy()

    def write(self, rows: pd.DataFrame, file: Path, probabilities: np.ndarray | None = None) -> Path:
        """Write rows with their labels, or with probabilities and the most probable label."""
        columns = {"text": rows.text.to_numpy(), "label": np.take(self.label_names, rows.label)}
        if probabilities is not None:
            columns |= {f"p_{name}": probabilities[:, label] for label, name in enumerate(self.label_names)}
        pd.DataFrame(columns).to_csv(file, index=False)
        return file

    def train(
        self,
        rows: pd.DataFrame,
        run: Path,
        seed: int,
        settings: list[str],
        probabilities: np.ndarray | None = None,
    ) -> pd.DataFrame:
        """Train on rows and return predictions.csv of the test rows."""
        files = {
            "train": self.write(rows, run.with_name(f"{run.name}-train.csv"), probabilities),
            "dev": self.write(self.dev, run.with_name("dev.csv")),
            "test": self.write(self.test, run.with_name("test.csv")),
        }
        words = []
        for name, file in files.items():
            words += [f"--data.{name}", str(file)]
        run_single([*words, *SETTINGS, "--train.seed", str(seed), *settings], run)
        return pd.read_csv(run / "predictions.csv", dtype=str, keep_default_na=False)

    def student_of(self, probabilities: np.ndarray, is_soft: bool, folder: Path, seed: int) -> dict:
        """Return the scores of a student on the test rows."""
        name = "probabilities"
        settings = []
        if not is_soft:
            name = "labels"
            settings = ["--data.label_column", "label"]
        answers = self.train(self.student, folder / f"{name}-{seed}", seed, settings, probabilities)
        predicted = pd.Index(self.label_names).get_indexer(answers["predicted"])
        return scores(self.test.label.to_numpy(), predicted, len(self.label_names))


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Train the students of each job and teacher, and print the table."""
    lines = []
    gains = []
    for name in options.jobs:
        all_labels = Job(name)
        for teacher in options.teachers:
            say(f"{name}, {teacher} ...")
            place = folder / f"{name}-{teacher}"
            place.mkdir()
            probabilities = all_labels.probabilities(teacher, place)
            right = float((probabilities.argmax(axis=1) == all_labels.student.label).mean())
            job, probabilities = all_labels.labelled(probabilities)
            students = {}
            for is_soft in (False, True):
                students[is_soft] = [
                    job.student_of(probabilities, is_soft, place, seed + 1) for seed in range(options.seeds)
                ]
            labels = job.test.label.to_numpy()
            found = differences(labels, students[True], students[False], len(job.label_names))
            report[f"{name}, {teacher}"] = {"right": right, "students": students, "differences": found}
            gains.append(found["macro_f1"][0])
            for metric in METRICS:
                means = [np.mean([cell[metric] for cell in students[is_soft]]) for is_soft in (False, True)]
                value, (low, high) = found[metric]
                words = [f"{right:.3f}", metric, *(f"{mean:.3f}" for mean in means)]
                lines.append([name, teacher, *words, f"{value:+.3f}", f"{low:+.3f} to {high:+.3f}"])
            print(f"\n{text_table(HEADER, lines[-2:])}", flush=True)
    print(f"\n{text_table(HEADER, lines)}", flush=True)
    print(f"\nmacro F1, mean of the differences: {np.mean(gains):+.4f}", flush=True)
    return True


if __name__ == "__main__":
    parser = command_parser("soft_labels", __doc__)
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=JOBS, help="jobs (default: all)")
    teachers = f"teachers (default: {' '.join(TEACHERS)})"
    parser.add_argument("--teachers", nargs="+", choices=TEACHERS, default=TEACHERS, help=teachers)
    parser.add_argument("--seeds", type=POSITIVE, default=1, help="number of seeds, from 1 on (default: 1)")
    sys.exit(run_benchmark(parser, measure))
