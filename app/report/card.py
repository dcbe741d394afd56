"""The model card: Markdown in both languages, with the metadata that model hubs read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ..words import current_language, in_language
from .class_tables import MAX_LISTED, MAX_TABLE_CLASSES, worst_classes
from .metrics import BY_KEY, is_better, metrics_with_interval
from .paired_differences import verdict_on
from .template_environment import template_environment
from .untrusted_text import markdown_name, visible

if TYPE_CHECKING:
    from huggingface_hub import EvalResult

MAX_WEAK = 5  # classes that the card calls weak
FEW_CLASS_ROWS = 30  # rows of a class whose figures say little


def render_card(content: Mapping) -> str:
    """Return the card after its first line `---`: metadata as YAML, then the card in both languages, that of
    the run first. `content` is that of `card_content`: `metrics` are those of report.json on the rows of
    `split`, `data` the statistics of the splits; `splits` have the name of their file, their number of rows,
    and the content of the file."""
    template = template_environment(autoescape=False).get_template("card.md.jinja")
    values = card_values(content)
    languages = ["en", "zh"]
    if current_language() != "en":
        languages.reverse()
    cards = []
    for language in languages:
        with in_language(language):
            cards.append(template.render(values).strip())
    return f"{card_metadata(content)}\n---\n\n" + "\n\n".join(cards) + "\n"


def card_values(content: Mapping) -> dict:
    """Return the values of the card's template."""
    task = content["task"]
    metrics = content["metrics"]
    classes = metrics.get("classes", {})
    weak = []
    for name, figures in worst_classes(classes, len(classes)).items():
        if figures["f1"] < metrics["macro_f1"]:
            weak.append(name)
    better = better_baselines(metrics, task.main_metric)
    unsure_verdict = None
    verdict = verdict_on(metrics, task.main_metric)
    if verdict is not None and not verdict.is_sure and not better:
        unsure_verdict = verdict
    return {
        "content": content,
        "metrics": metrics,
        "task": task,
        "answer_column": task.answer_column,
        "with_interval": metrics_with_interval(task),
        "classes": worst_classes(classes, MAX_LISTED, MAX_TABLE_CLASSES),
        "num_classes": len(classes),
        "weak": weak[:MAX_WEAK],
        "num_small_classes": sum(figures["support"] < FEW_CLASS_ROWS for figures in classes.values()),
        "few_class_rows": FEW_CLASS_ROWS,
        "settings": [f"{name} {markdown_name(value)}" for name, value in content["settings"].items()],
        "better_baselines": better,
        "unsure_verdict": unsure_verdict,
    }


def better_baselines(metrics: Mapping, key: str) -> list[str]:
    """Return the names of the baselines that are at least as good by the metric `key`."""
    names = []
    for name, figures in metrics.get("baselines", {}).items():
        if not is_better(metrics[key], figures[key], key):
            names.append(name)
    return names


def card_metadata(content: Mapping) -> str:
    """Return what hubs read of the model, as YAML."""
    from huggingface_hub import ModelCardData

    results = []
    metric_types = []
    for key in content["task"].baseline_metrics:
        result = card_result(content, key)
        results.append(result)
        if result.metric_type not in metric_types:
            metric_types.append(result.metric_type)
    metadata = ModelCardData(
        language=["zh"],
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=content["hub_name"],
        tags=["text-classification", content["model_type"], "chinese"],
        metrics=metric_types,
        model_name=visible(content["name"]),
        eval_results=results,
    )
    return metadata.to_yaml()


def card_result(content: Mapping, key: str) -> EvalResult:
    """Return a metric as hubs read it: "macro_f1" is the metric "f1" with the average "macro"."""
    from huggingface_hub import EvalResult

    metrics = content["metrics"]
    file, _num_rows, _digest = content["splits"][content["split"]]
    low, high = metrics["intervals"][key]
    average, _underscore, metric_type = key.rpartition("_")
    return EvalResult(
        task_type="text-classification",
        task_name="Text classification",
        dataset_type=visible(Path(file).stem),
        dataset_name=visible(file),
        dataset_split=content["split"],
        metric_type=metric_type,
        metric_value=round(metrics[key], 4),
        metric_name=f"{BY_KEY[key].english}, 95 % interval {low:.4f} to {high:.4f}",
        metric_args={"average": average} if average else None,
    )
