"""What report.html shows of one number a row: predicted against true, worst rows."""

from collections.abc import Callable

import numpy as np

from ..evaluation.page.charts import MAX_POINTS, Axes, around
from ..evaluation.page.report_page import PageContent

MAX_ERRORS = 20


def page_sections(content: PageContent, cell: Callable[[float], str]) -> dict:
    """Return what the template regression.html.jinja shows; `cell` writes a number."""
    rows, scores = content.rows, content.rows.scores
    axes = Axes(*around([*scores.labels]), *around([*scores.predicted, *scores.labels]))
    step = max(1, len(scores) // MAX_POINTS)
    points = [
        (axes.x(float(label)), axes.y(float(predicted)))
        for label, predicted in zip(scores.labels[::step], scores.predicted[::step], strict=True)
    ]
    worst = np.argsort(-scores.error, kind="stable")[:MAX_ERRORS]
    errors = [
        {
            "text": rows.text(at),
            "where": rows.where(at),
            "true": cell(scores.labels[at]),
            "predicted": cell(scores.predicted[at]),
            "off": cell(scores.error[at]),
        }
        for at in worst.tolist()
    ]
    ends = [float(value) for value in (scores.labels.min(), scores.labels.max())]
    return {"num_classes": 0, "axes": axes, "points": points, "same": axes.line(ends, ends), "errors": errors}
