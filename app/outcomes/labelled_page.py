"""The page of a report, for any outcome with labels."""

from pathlib import Path

from ..evaluation.page.report_page import PageContent, render_report_page
from ..words import _
from .labelled_outcome import LabelledOutcome
from .metrics import BASELINES, BY_KEY, best_baseline

TEMPLATES = Path(__file__).parent / "templates"


def render_page(outcome: LabelledOutcome, content: PageContent) -> str:
    """Return report.html; the scores of `content.rows` are those of the outcome."""
    shown = [metric for metric in outcome.metrics if metric.headline]
    names = {metric.key: metric.title for metric in shown}
    context = {
        "metric_names": names,
        "titles": outcome.page_titles(),
        "summary": summary(outcome, content),
        "baseline_names": {name: _(title) for name, title in BASELINES.items()},
        "beside_baselines": outcome.beside_baselines,
        "curves": [key for key in outcome.log_metrics if key in names],
    }
    template = TEMPLATES / f"{outcome.task}.html.jinja"
    return render_report_page(content, template, context | outcome.page_sections(content))


def summary(outcome: LabelledOutcome, content: PageContent) -> str:
    """Return how good the model is in one sentence, beside the best baseline."""
    metrics, right = content.metrics, content.rows.scores.correct
    main = BY_KEY[outcome.beside_baselines[0]]
    low, high = metrics["intervals"][main.key]
    values = {"rows": len(right), "right": int(right.sum()), "low": low, "high": high}
    values |= {"metric": main.name, "value": metrics[main.key]}
    text = outcome.page_summary().format(**values)
    if best := best_baseline(metrics, main.key):
        name, measured = best
        beside = _(" For comparison, {baseline}: {value:.3f}.")
        text += beside.format(baseline=_(BASELINES[name]), value=measured[main.key])
    return text
