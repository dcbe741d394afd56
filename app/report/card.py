"""Figures of a run -> its model card: Markdown with the metadata that model hubs read."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..tasks.task import Task
from ..words import _, current_language, in_language
from .metrics import BY_KEY, MAX_CLASSES, is_better, metrics_of, worst_labels
from .text import page_environment, visible

MAX_WORST, MAX_WEAK = 20, 5
FEW_ROWS = 30  # of a class; its figures say little
MAX_NAME = 60  # characters
MARKDOWN = re.compile(r"([\\`*_\[\]{}|#~$])")


@dataclass(frozen=True)
class CardContent:
    """What the card is about: `metrics` of report.json on the rows of `split`, `data` the statistics of the
    splits; `splits` have the name of their file, their number of rows, and the content of the file."""

    name: str
    task: Task
    split: str
    metrics: Mapping
    data: Mapping
    splits: Mapping[str, tuple[str, int, str]]
    model_type: str
    base_model: str | None  # None for random weights
    hub_name: str | None  # of the base model, where it is on a hub
    max_length: int
    settings: Mapping[str, object]  # of the training
    has_pairs: bool
    long: str = "cut"
    max_windows: int = 8


def render_card(content: CardContent) -> str:
    """Return the card after its first line `---`: metadata as YAML, then the card in both languages, that of
    the run first."""
    environment, task, metrics = page_environment(autoescape=False), content.task, content.metrics
    environment.filters |= {"name": plain, "said": _}
    template, cards = environment.get_template("card.md.jinja"), []
    classes, baselines, key = metrics.get("classes", {}), metrics.get("baselines", {}), task.main_metric
    worst = worst_labels(classes, len(classes))
    shown = {
        "content": content,
        "metrics": metrics,
        "task": task,
        "kind": task.label_column,
        "shown": [metric for metric in metrics_of(task) if metric.has_interval],
        "classes": worst_labels(classes, MAX_WORST, MAX_CLASSES),
        "num_classes": len(classes),
        "weak": [name for name, scores in worst.items() if scores["f1"] < metrics["macro_f1"]][:MAX_WEAK],
        "num_few": sum(scores["support"] < FEW_ROWS for scores in classes.values()),
        "few_rows": FEW_ROWS,
        "settings": [f"{name} {plain(value)}" for name, value in content.settings.items()],
        "better": [name for name, of in baselines.items() if not is_better(metrics[key], of[key], key)],
    }
    for language in ("en", "zh") if current_language() == "en" else ("zh", "en"):
        with in_language(language):
            cards.append(template.render(shown).strip())
    return f"{_metadata(content)}\n---\n\n" + "\n\n".join(cards) + "\n"


def plain(text: object) -> str:
    """Return an untrusted name for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    shown = html.escape(visible(str(text), MAX_NAME), quote=False)
    return MARKDOWN.sub(r"\\\1", shown)


def _metadata(content: CardContent) -> str:
    from huggingface_hub import EvalResult, ModelCardData

    file, results = content.splits[content.split][0], []
    for key in content.task.beside_baselines:
        low, high = content.metrics["intervals"][key]
        average, _underscore, kind = key.rpartition("_")
        results.append(
            EvalResult(
                task_type="text-classification",
                task_name="Text classification",
                dataset_type=visible(Path(file).stem),
                dataset_name=visible(file),
                dataset_split=content.split,
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
