"""Rows with random logits, and the page about them."""

import numpy as np

from app.evaluation.calibration import calibrate
from app.evaluation.logits_file import SplitLogits
from app.evaluation.measures.row_scores import score_rows
from app.evaluation.measures.summary import summarize
from app.evaluation.metrics import compute_metrics
from app.evaluation.page.page import PageContent, render_page
from app.evaluation.page.rows import EvaluatedRows


def page_content(num_rows: int, names: list[str], text=lambda at: f"文本 {at}", seed: int = 0) -> PageContent:
    """Return a page about `num_rows` rows of classes `names`, most of them right; `text` gives the text of
    each."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, len(names), num_rows)
    logits = generator.normal(0, 1, (num_rows, len(names))).astype(np.float32)
    logits[np.arange(num_rows), labels] += 3
    scores = score_rows(labels, logits)
    of_split = SplitLogits(np.arange(num_rows), labels, np.arange(num_rows), logits)
    metrics = compute_metrics(labels, logits, names) | summarize(scores, len(names)) | {"step": 20}
    metrics["calibration"] = calibrate(of_split, of_split, "test")
    figures = {"accuracy": 0.5, "macro_f1": 0.4, "rows": num_rows}
    figures["intervals"] = {"accuracy": [0.4, 0.6], "macro_f1": [0.3, 0.5]}
    metrics["baselines"] = {"majority class": figures, "TF-IDF + logistic regression": figures}
    lengths, unknown = generator.integers(3, 60, num_rows), generator.choice([0, 0.01, 0.05, 0.5], num_rows)
    rows = EvaluatedRows(scores, names, text, "test.tsv, line {}".format, lengths, unknown, unknown > 0.02)
    history = [
        {"step": step, "split": "dev", "loss": 2 / step, "accuracy": 1 - 1 / step, "macro_f1": 1 - 2 / step}
        for step in range(10, 60, 10)
    ]
    classes = dict.fromkeys(names, 1)
    data = {
        "test": {
            "rows": num_rows,
            "repeated": 3,
            "conflicting": 1,
            "also_in": {"train": 2},
            "classes": classes,
        }
    }
    temperature = metrics["calibration"]["temperature"]
    return PageContent(
        "run-001 · Report", rows, metrics, score_rows(labels, logits, temperature), history, data
    )


__all__ = ["page_content", "render_page"]
