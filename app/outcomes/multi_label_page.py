"""What report.html shows of several labels a row: the labels with their thresholds, and the worst rows."""

from collections.abc import Callable

import numpy as np

from ..evaluation.page.report_page import PageContent
from .label_metrics import worst_labels

MAX_LABELS, MAX_ERRORS = 200, 20


def page_sections(content: PageContent, answer: Callable[[np.ndarray], list[str]]) -> dict:
    """Return what the template multi_label.html.jinja shows; `answer` names the labels of a row."""
    classes, scores = content.metrics["classes"], content.rows.scores
    shown = classes if len(classes) <= MAX_LABELS else worst_labels(classes, MAX_LABELS)
    errors = worst_rows(content, answer)
    return {"classes": shown, "num_classes": len(classes), "rule": scores.rule, "errors": errors}


def worst_rows(content: PageContent, answer: Callable[[np.ndarray], list[str]]) -> list[dict]:
    """Return the rows with the most wrong labels: `text`, `where`, `num_wrong`, the `true` and
    `predicted` labels, and its nearest training rows, `evidence`."""
    rows, scores = content.rows, content.rows.scores
    return [
        {
            "text": rows.text(at),
            "where": rows.where(at),
            "num_wrong": int(scores.num_wrong[at]),
            "true": answer(scores.labels[at]),
            "predicted": answer(scores.predicted[at]),
            "evidence": rows.evidence(at),
        }
        for at in scores.most_wrong(MAX_ERRORS).tolist()
    ]
