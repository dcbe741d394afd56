"""The page of a report, for any outcome with labels."""

from pathlib import Path

from ..evaluation.page.report_page import PageContent, render_report_page
from .labelled_outcome import LabelledOutcome
from .metrics import BY_KEY, best_baseline

TEMPLATES = Path(__file__).parent / "templates"


def render_page(outcome: LabelledOutcome, content: PageContent, language: str) -> str:
    """Return report.html in a language, en or zh; the scores of `content.rows` are those of the outcome."""
    shown = [metric for metric in outcome.metrics if metric.headline]
    names = {metric.key: metric.title(language) for metric in shown}
    context = {
        "words": names | outcome.words(language),
        "headline": list(names),
        "links": ["what_next", "headline", *outcome.page_links, "curves", "groups", "data", "facts"],
        "beside_baselines": outcome.beside_baselines,
        "curves": [key for key in outcome.log_metrics if key in names],
    }
    main = outcome.beside_baselines[0]
    context |= {"main": (BY_KEY[main], best_baseline(content.metrics, main))}
    template = TEMPLATES / f"{outcome.task}.html.jinja"
    return render_report_page(content, template, language, context | outcome.page_sections(content))
