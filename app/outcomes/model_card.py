"""Figures of a run -> its model card: Markdown with the metadata that model hubs read."""

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..evaluation.page.report_page import visible
from ..words import _, current_language, in_language, pgettext
from .label_metrics import worst_labels
from .labelled_outcome import LabelledOutcome
from .metrics import BY_KEY, is_better

MAX_CLASSES, MAX_WORST, MAX_CONFUSIONS = 50, 20, 5
MAX_WEAK = 5
# Of a class; its figures say little
FEW_ROWS = 30
# Characters
MAX_NAME = 60
MARKDOWN = re.compile(r"([\\`*_\[\]{}|#~$])")


@dataclass(frozen=True)
class SplitFacts:
    """One split: the name of its file, its number of rows, the content of the file, and that of the split."""

    file: str
    rows: int
    file_content: str
    split_content: str


@dataclass(frozen=True)
class CardContent:
    """What the card is about: `metrics` of report.json on the rows of `split`, `data` the statistics of the
    splits.

    `base_model` is None for random weights; `hub_name` is its name on a hub, where it has one. `settings` are
    named values of the training. `has_pairs` is whether the model takes pairs of texts, `long` is what it
    reads of long ones, as in `data.long`.
    """

    name: str
    outcome: LabelledOutcome
    split: str
    metrics: Mapping
    data: Mapping
    splits: dict[str, SplitFacts]
    model_type: str
    base_model: str | None
    hub_name: str | None
    max_length: int
    settings: dict[str, object]
    has_pairs: bool
    long: str = "cut"
    max_windows: int = 8


def split_content(hashes: np.ndarray, labels: np.ndarray) -> str:
    """Return 32 hexadecimal digits (SHA-256) of a split, in any order of its rows: `hashes` (num_rows,) of
    texts, and `labels` (num_rows, ...)."""
    labels = np.asarray(labels)
    order = np.lexsort((*labels.reshape(len(labels), -1).T, hashes))
    digest = hashlib.sha256(np.asarray(hashes)[order].astype("<u8").tobytes())
    digest.update(labels[order].astype({"i": "<i8", "u": "u1", "f": "<f8"}[labels.dtype.kind]).tobytes())
    return digest.hexdigest()[:32]


def render_card(content: CardContent) -> str:
    """Return the card after its first line `---`: metadata as YAML, then the card in both languages, that of
    the run first."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        # The filter `name` does it, for Markdown too
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language}
    environment.filters |= {"name": plain, "figure": "{:.4f}".format, "number": "{:,}".format}
    template, cards = environment.get_template("card.md.jinja"), []
    for language in ("en", "zh") if current_language() == "en" else ("zh", "en"):
        with in_language(language):
            cards.append(template.render(_context(content)).strip())
    return f"{_metadata(content)}---\n\n" + "\n\n".join(cards) + "\n"


def _context(content: CardContent) -> dict:
    """Return what the template shows, in the current language."""
    outcome = content.outcome
    context = {"content": content, "metrics": content.metrics, "outcome": outcome}
    context |= {"words": outcome.card_words(), "main": BY_KEY[outcome.main_metric]}
    context |= {"shown": [metric for metric in outcome.metrics if metric.has_interval]}
    context |= {"settings": [f"{key} {plain(value)}" for key, value in content.settings.items()]}
    return context | _classes(content) | _limits(content)


def plain(text: object) -> str:
    """Return an untrusted name for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    shown = html.escape(visible(str(text), MAX_NAME), quote=False)
    return MARKDOWN.sub(r"\\\1", shown)


def _metadata(content: CardContent) -> str:
    import yaml

    values: dict = {"language": ["zh"], "library_name": "transformers", "pipeline_tag": "text-classification"}
    if content.hub_name:
        values["base_model"] = content.hub_name
    values["tags"] = ["text-classification", content.model_type, "chinese"]
    results = [_result(content, key) for key in content.outcome.beside_baselines]
    values["metrics"] = list(dict.fromkeys(result["type"] for result in results))
    facts = content.splits[content.split]
    dataset = {"type": Path(facts.file).stem, "name": facts.file, "split": content.split}
    dataset["revision"] = facts.split_content
    evaluation = {
        "task": {"type": "text-classification", "name": "Text classification"},
        "dataset": {key: visible(value) for key, value in dataset.items()},
        "metrics": results,
    }
    values["model-index"] = [{"name": visible(content.name), "results": [evaluation]}]
    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False)


def _result(content: CardContent, key: str) -> dict:
    """Return a metric as model hubs read it."""
    low, high = content.metrics["intervals"][key]
    average, _underscore, kind = key.rpartition("_")
    entry = {"type": kind, "value": round(content.metrics[key], 4)}
    entry["name"] = f"{BY_KEY[key].english}, 95 % interval {low:.4f} to {high:.4f}"
    return entry | ({"args": {"average": average}} if average else {})


def _classes(content: CardContent) -> dict:
    """Return the classes to list, the weak ones, those of few rows, and the most frequent confusions."""
    classes = content.metrics.get("classes", {})
    worst = worst_labels(classes, len(classes))
    shown = classes if len(classes) <= MAX_CLASSES else worst_labels(classes, MAX_WORST)
    below = [name for name, scores in worst.items() if scores["f1"] < content.metrics["macro_f1"]]
    return {
        "classes": shown,
        "has_thresholds": any("threshold" in scores for scores in classes.values()),
        "num_classes": len(classes),
        "weak": [
            pgettext("card", "{label} (F1 {f1:.4f})").format(label=plain(name), f1=worst[name]["f1"])
            for name in below[:MAX_WEAK]
        ],
        "num_few": sum(scores["support"] < FEW_ROWS for scores in classes.values()),
        "few_rows": FEW_ROWS,
        "confusions": [
            _("{label} taken for {predicted} ({rows:,})").format(
                label=plain(label), predicted=plain(predicted), rows=rows
            )
            for label, predicted, rows in _confusions(content.metrics)
        ],
    }


def _confusions(metrics: Mapping) -> list[tuple[str, str, int]]:
    """Return the most frequent confusions; of several labels a row none is taken for another."""
    if "confusion_matrix" not in metrics:
        return [tuple(pair) for pair in metrics.get("confusions", ())[:MAX_CONFUSIONS]]
    names, matrix = list(metrics["classes"]), np.array(metrics["confusion_matrix"])
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:MAX_CONFUSIONS]
    cells = (divmod(int(at), len(names)) for at in order if matrix.flat[at])
    return [(names[label], names[predicted], int(matrix[label, predicted])) for label, predicted in cells]


def _limits(content: CardContent) -> dict:
    """Return what the figures and the data say against the model."""
    data = content.data.get(content.split, {})
    baselines = content.metrics.get("baselines", {})
    key = content.outcome.main_metric
    better = [
        _(name) for name, values in baselines.items() if not is_better(content.metrics[key], values[key], key)
    ]
    return {
        "better_baselines": better,
        "in_train": data.get("also_in", {}).get("train", 0),
        "conflicting": content.data.get("train", {}).get("conflicting", 0),
    }
