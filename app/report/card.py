"""Figures of a run -> its model card: Markdown with the metadata that model hubs read."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..tasks.task import Task
from ..words import _, current_language, in_language, pgettext
from .metrics import BY_KEY, MAX_CLASSES, confusions, is_better, metrics_of, worst_labels
from .text import page_environment, visible

MAX_WORST, MAX_CONFUSIONS, MAX_WEAK = 20, 5, 5
FEW_ROWS = 30  # of a class; its figures say little
MAX_NAME = 60  # characters
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
    task: Task
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
    # The filter `name` escapes for HTML and Markdown
    environment = page_environment(autoescape=False)
    environment.filters["name"] = plain
    template, cards = environment.get_template("card.md.jinja"), []
    for language in ("en", "zh") if current_language() == "en" else ("zh", "en"):
        with in_language(language):
            cards.append(template.render(_context(content)).strip())
    return f"{_metadata(content)}\n---\n\n" + "\n\n".join(cards) + "\n"


def plain(text: object) -> str:
    """Return an untrusted name for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    shown = html.escape(visible(str(text), MAX_NAME), quote=False)
    return MARKDOWN.sub(r"\\\1", shown)


def _context(content: CardContent) -> dict:
    """Return what the template shows, in the current language: the classes to list, the weak ones, those of
    few rows, the most frequent confusions, and what the figures and the data say against the model."""
    task, metrics = content.task, content.metrics
    classes, baselines, key = metrics.get("classes", {}), metrics.get("baselines", {}), task.main_metric
    worst = worst_labels(classes, len(classes))
    below = [name for name, scores in worst.items() if scores["f1"] < metrics["macro_f1"]][:MAX_WEAK]
    weak, confused = pgettext("card", "{label} (F1 {f1:.4f})"), _("{label} taken for {predicted} ({rows:,})")
    return {
        "content": content,
        "metrics": metrics,
        "task": task,
        "kind": task.label_column,
        "shown": [metric for metric in metrics_of(task) if metric.has_interval],
        "settings": [f"{name} {plain(value)}" for name, value in content.settings.items()],
        "classes": worst_labels(classes, MAX_WORST, MAX_CLASSES),
        "num_classes": len(classes),
        "weak": [weak.format(label=plain(name), f1=worst[name]["f1"]) for name in below],
        "num_few": sum(scores["support"] < FEW_ROWS for scores in classes.values()),
        "few_rows": FEW_ROWS,
        "confusions": [
            confused.format(label=plain(label), predicted=plain(predicted), rows=rows)
            for label, predicted, rows in confusions(metrics)[:MAX_CONFUSIONS]
        ],
        "better_baselines": [
            _(name) for name, values in baselines.items() if not is_better(metrics[key], values[key], key)
        ],
    }


def _metadata(content: CardContent) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    facts, results = content.splits[content.split], []
    for key in content.task.beside_baselines:
        low, high = content.metrics["intervals"][key]
        average, _underscore, kind = key.rpartition("_")
        results.append(
            EvalResult(
                task_type="text-classification",
                task_name="Text classification",
                dataset_type=visible(Path(facts.file).stem),
                dataset_name=visible(facts.file),
                dataset_split=content.split,
                dataset_revision=facts.split_content,
                metric_type=kind,
                metric_value=round(content.metrics[key], 4),
                metric_name=f"{BY_KEY[key].english}, 95 % interval {low:.4f} to {high:.4f}",
                metric_args={"average": average} if average else None,
            )
        )
    return ModelCardData(
        language=["zh"],
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=content.hub_name,
        tags=["text-classification", content.model_type, "chinese"],
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=visible(content.name),
        eval_results=results,
    ).to_yaml()
