"""What report.html shows of one label a row: classes, confusions, how sure the model is, and its errors."""

import numpy as np

from ..evaluation.measures.calibration_error import NUM_BINS, confidence_bins
from ..evaluation.measures.selective import risk_coverage
from ..evaluation.page.charts import Axes, around
from ..evaluation.page.evaluated_rows import EvaluatedRows
from ..evaluation.page.report_page import PageContent
from .class_scores import ClassScores
from .label_metrics import confused_pairs, worst_labels

# Classes
MAX_IN_MATRIX = 30
# Bars
MAX_BARS = 40
# Of confusions, with examples and without
MAX_PAIRS, MAX_LISTED = 20, 50
MAX_EXAMPLES = 3
# Rows of a bin of the reliability diagram; of fewer, it would show chance
MIN_BIN = 30


def page_sections(content: PageContent) -> dict:
    """Return what the template single_label.html.jinja shows."""
    classes = content.metrics["classes"]
    shown = classes if len(classes) <= MAX_BARS else worst_labels(classes, MAX_BARS)
    context = {"classes": shown, "num_classes": len(classes), "examples": surest_errors(content.rows)}
    return context | confusion_section(content.rows) | certainty_section(content)


def confusion_section(rows: EvaluatedRows) -> dict:
    """Return the confusion matrix, or of many classes the pairs that are confused most."""
    names, scores = rows.label_names, rows.scores
    num_labels = len(names)
    if num_labels <= MAX_IN_MATRIX:
        cells = np.bincount(scores.labels * num_labels + scores.predicted, minlength=num_labels**2)
        return {"names": names, "matrix": cells.reshape(num_labels, num_labels).tolist(), "pairs": []}
    pairs = confused_pairs(scores.labels, scores.predicted, num_labels)[:MAX_LISTED]
    return {
        "names": names,
        "matrix": None,
        "pairs": [
            {"label": label, "predicted": predicted, "rows": count} for label, predicted, count in pairs
        ],
    }


def surest_errors(rows: EvaluatedRows) -> list[dict]:
    """Return, for each of the most confused pairs of classes, both names, the number of rows, and the errors
    with the largest confidence: text, place, confidence, nearest training rows."""
    names, scores = rows.label_names, rows.scores
    pairs = confused_pairs(scores.labels, scores.predicted, len(names))[:MAX_PAIRS]
    return [
        {
            "label": names[label],
            "predicted": names[predicted],
            "rows": count,
            "examples": [
                {"text": rows.text(at), "where": rows.where(at), "confidence": float(scores.confidence[at])}
                | {"evidence": rows.evidence(at)}
                for at in _surest(scores, label, predicted)
            ],
        }
        for label, predicted, count in pairs
    ]


def _surest(scores: ClassScores, label: int, predicted: int) -> list[int]:
    """Return the positions of rows of a class that were predicted as another, the surest first."""
    positions = np.flatnonzero((scores.labels == label) & (scores.predicted == predicted))
    return positions[np.argsort(-scores.confidence[positions], kind="stable")[:MAX_EXAMPLES]].tolist()


def certainty_section(content: PageContent) -> dict:
    """Return the reliability diagram, before and after calibration, and the curve of risk and coverage."""
    scores = content.rows.scores
    final = content.calibrated or scores
    num_bins = max(1, min(NUM_BINS, len(scores.correct) // MIN_BIN))
    bins = {"raw": confidence_bins(scores.confidence, scores.correct, num_bins)}
    if content.calibrated:
        bins["calibrated"] = confidence_bins(final.confidence, final.correct, num_bins)
    _, coverage, risk = risk_coverage(final)
    axes = Axes(0, 1, *around(risk, from_zero=True))
    places = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, 150)).clip(max=len(coverage) - 1))
    return {
        "square": Axes(0, 1, 0, 1),
        "bins": bins,
        "risk_axes": axes,
        "risk": axes.line(coverage[places], risk[places]),
    }
