"""What suggest is worth, by a linear head on vectors that are computed once.

python -m benchmarks.few_labels

Of each strategy, the labels that it needs for the macro F1 of random rows, as a share of theirs; 25 rows a
round, five seeds. The jobs are csl13, tnews and waimai_10k. Exit status: 0; 2 for bad input.
"""

import argparse
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score
from transformers import AutoModel, AutoTokenizer

from app.config.schema import ModelConfig
from app.errors import say
from app.model.checkpoint import checkpoint_config, checkpoint_place, load_weights
from app.model.linear_start import C
from app.model.tokenizer import set_prefix
from app.prediction import STRATEGIES
from app.prediction.suggested_rows import choose_rows
from app.text_table import text_table
from benchmarks.harness.command import command_parser, run_benchmark
from benchmarks.quality.texts import open_job, rows_by_part

JOBS, SEEDS = ("csl13", "tnews", "waimai_10k"), 5
# The last is for rows that keep the guess as their label
OTHERS = [name for name in STRATEGIES if name not in ("random", "highest_confidence")]
ENCODER, PREFIX, MAX_LENGTH = "e5-small-zh", "query: ", 128
POOL, TEST, STEP, LAST, GOALS = 2500, 1000, 25, 300, (150, 300)
BATCH_ROWS = 64


def curve(strategy: str, pool: np.ndarray, labels: np.ndarray, test: tuple, seed: int) -> list[float]:
    """Return the macro F1 after each round; the first one has random rows."""
    left, scores = np.random.default_rng(seed).permutation(len(pool)), []
    chosen, left = left[:STEP], left[STEP:]
    while True:
        # The head that `model.head linear` starts with
        head = LogisticRegression(C=C, max_iter=300).fit(pool[chosen], labels[chosen])
        scores.append(f1_score(test[1], head.predict(test[0]), average="macro", zero_division=0))
        if len(chosen) >= LAST:
            return scores
        probabilities = head.predict_proba(pool[left])
        places = choose_rows(
            strategy,
            STEP,
            probabilities,
            confidence=probabilities.max(axis=1),
            answers=probabilities.argmax(axis=1),
            seed=seed + 1000 * len(scores),
        )
        chosen, left = np.append(chosen, left[places]), np.delete(left, places)


def share_needed(of_random: np.ndarray, of_strategy: np.ndarray, goal: int) -> str:
    """Return how many labels reach the score of `goal` random ones, as a share of these."""
    counts = np.arange(STEP, LAST + 1, STEP)
    wanted, best = of_random[goal // STEP - 1], np.maximum.accumulate(of_strategy)
    return "never" if best[-1] < wanted else f"{float(np.interp(wanted, best, counts)) / goal:.0%}"


def suggest(strategies: list[str], seeds: int, *data) -> dict:
    """Return the mean curve of each strategy, and its shares."""
    curves, shares = {}, {}
    for name in ("random", *strategies):
        curves[name] = np.mean([curve(name, *data, seed) for seed in range(seeds)], axis=0)
        shares[name] = [share_needed(curves["random"], curves[name], goal) for goal in GOALS]
    return {"curves": {name: mean.tolist() for name, mean in curves.items()}, "shares": shares}


def vectors_of(rows: pd.DataFrame, count: int, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors and labels of up to `count` rows, chosen with seed 0."""
    chosen = rows.iloc[np.random.default_rng(0).permutation(len(rows))[:count]]
    place = checkpoint_place(ModelConfig(ENCODER), folder)
    config = checkpoint_config(place)
    tokenizer = AutoTokenizer.from_pretrained(place, config=config)
    set_prefix(tokenizer.backend_tokenizer, PREFIX)
    model, _ = load_weights(place, config, AutoModel)
    texts, means = chosen.text.tolist(), []
    for start in range(0, len(texts), BATCH_ROWS):
        options = {"padding": True, "truncation": True, "max_length": MAX_LENGTH, "return_tensors": "pt"}
        inputs = tokenizer(texts[start : start + BATCH_ROWS], **options)
        mask = inputs["attention_mask"][..., None]
        with torch.inference_mode():
            means.append((model.eval()(**inputs).last_hidden_state * mask).sum(1) / mask.sum(1))
    vectors = torch.nn.functional.normalize(torch.cat(means)).numpy()
    return vectors, chosen.label.to_numpy()


def measure(options: argparse.Namespace, folder: Path, report: dict) -> bool:
    """Measure each job and print its table."""
    # That 300 iterations are not always enough
    warnings.simplefilter("ignore")
    for job in JOBS:
        settings, dataset = open_job(f"configs/{job}.yaml")
        rows = rows_by_part(dataset)
        say(f"{job} ...")
        pool, labels = vectors_of(rows["train"], POOL, settings.cache_dir)
        inputs, answers = vectors_of(rows["test"], TEST, settings.cache_dir)
        centre = pool.mean(axis=0)
        report[job] = suggest(OTHERS, SEEDS, pool - centre, labels, (inputs - centre, answers))
        lines = [[name, *shares] for name, shares in report[job]["shares"].items()]
        print(f"\n{text_table([job, *(f'{goal} random rows' for goal in GOALS)], lines)}", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(run_benchmark(command_parser("few_labels", __doc__), measure))
