"""Figures of a run -> its model card: Markdown with the metadata that model hubs read."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..page.page import visible
from ..page.words import words

LANGUAGES = ("en", "zh")
MAX_CLASSES, MAX_WORST, MAX_CONFUSIONS = 50, 20, 5
MAX_WEAK = 5
# Of a class; its figures say little
FEW_ROWS = 30
# Characters
MAX_NAME = 60
FIGURES = (
    ("accuracy", "accuracy", "准确率"),
    ("macro_f1", "macro F1", "宏平均 F1"),
    ("loss", "loss", "损失"),
    ("brier", "Brier score", "Brier 分数"),
    ("ece", "calibration error", "校准误差"),
)
SET_FIGURES = (
    ("micro_f1", "micro F1", "微平均 F1"),
    ("macro_f1", "macro F1", "宏平均 F1"),
    ("samples_f1", "samples F1", "按行平均的 F1"),
    ("subset_accuracy", "rows with all labels right", "标签全部正确的行"),
)
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
    """Return 32 hexadecimal digits (SHA-256) of the texts and labels of a split, in whatever order its rows
    are.

    `hashes` are those of the texts, (num_rows,); `labels` class ids (num_rows,), or 0 and 1 (num_rows,
    num_labels).
    """
    labels = np.asarray(labels)
    order = np.lexsort((*labels.reshape(len(labels), -1).T, hashes))
    digest = hashlib.sha256(np.asarray(hashes)[order].astype("<u8").tobytes())
    digest.update(labels[order].astype("<i8" if labels.ndim == 1 else "u1").tobytes())
    return digest.hexdigest()[:32]


def render_card(content: CardContent, language: str = "en") -> str:
    """Return the card without its first line `---`: metadata as YAML, then both languages, `language` (en or
    zh) first."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        # The filter `name` does it, for Markdown too
        autoescape=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"name": plain, "figure": "{:.4f}".format, "number": "{:,}".format}
    sets = _has_sets(content)
    context = {"content": content, "metrics": content.metrics, "chinese": words("zh"), "sets": sets}
    context |= {"figures": SET_FIGURES if sets else FIGURES, "chosen_by": _main_figure(content)}
    context |= _classes(content) | _limits(content)
    first = LANGUAGES if language == "en" else LANGUAGES[::-1]
    parts = [environment.get_template(f"card.{name}.md.jinja").render(context).strip() for name in first]
    return f"{_metadata(content)}---\n\n" + "\n\n".join(parts) + "\n"


def _has_sets(content: CardContent) -> bool:
    """Return whether rows have any number of labels."""
    return "micro_f1" in content.metrics


def _main_figure(content: CardContent) -> tuple[str, str, str]:
    """Return the figure by which the model is compared with baselines: its key, and its names in English and
    Chinese."""
    return SET_FIGURES[0] if _has_sets(content) else FIGURES[1]


def plain(text: object) -> str:
    """Return a name of a stranger for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    shown = html.escape(visible(str(text), MAX_NAME), quote=False)
    return MARKDOWN.sub(r"\\\1", shown)


def _metadata(content: CardContent) -> str:
    import yaml

    values: dict = {"language": ["zh"], "library_name": "transformers", "pipeline_tag": "text-classification"}
    if content.hub_name:
        values["base_model"] = content.hub_name
    values["tags"] = ["text-classification", content.model_type, "chinese"]
    values["metrics"] = ["f1"] if _has_sets(content) else ["accuracy", "f1"]
    facts, sets = content.splits[content.split], _has_sets(content)
    dataset = {"type": Path(facts.file).stem, "name": facts.file, "split": content.split}
    dataset["revision"] = facts.split_content
    results = {
        "task": {"type": "text-classification", "name": "Text classification"},
        "dataset": {key: visible(value) for key, value in dataset.items()},
        "metrics": [_metric(content, key, name) for key, name, _ in (SET_FIGURES if sets else FIGURES)[:2]],
    }
    values["model-index"] = [{"name": visible(content.name), "results": [results]}]
    return yaml.safe_dump(values, allow_unicode=True, sort_keys=False)


def _metric(content: CardContent, key: str, name: str) -> dict:
    low, high = content.metrics["intervals"][key]
    average, _, kind = key.rpartition("_")
    entry = {"type": kind, "value": round(content.metrics[key], 4)}
    entry["name"] = f"{name}, 95 % interval {low:.4f} to {high:.4f}"
    return entry | ({"args": {"average": average}} if average else {})


def _classes(content: CardContent) -> dict:
    """Return the classes to list, the weak ones, those of few rows, and the most frequent confusions."""
    classes = content.metrics["classes"]
    with_rows = [
        (scores["f1"], -scores["support"], name) for name, scores in classes.items() if scores["support"]
    ]
    worst = [name for _, _, name in sorted(with_rows)]
    shown = classes if len(classes) <= MAX_CLASSES else {name: classes[name] for name in worst[:MAX_WORST]}
    below = [name for name in worst if classes[name]["f1"] < content.metrics["macro_f1"]]
    return {
        "classes": shown,
        "num_classes": len(classes),
        "weak": below[:MAX_WEAK],
        "num_few": sum(scores["support"] < FEW_ROWS for scores in classes.values()),
        "few_rows": FEW_ROWS,
        "confusions": _confusions(content.metrics),
    }


def _confusions(metrics: Mapping) -> list[tuple[str, str, int]]:
    # A row has any number of labels, so none is taken for another
    if "micro_f1" in metrics:
        return []
    # Of many classes
    if "confusions" in metrics:
        return [tuple(found) for found in metrics["confusions"][:MAX_CONFUSIONS]]
    names, matrix = list(metrics["classes"]), np.array(metrics["confusion_matrix"])
    np.fill_diagonal(matrix, 0)
    order = np.argsort(-matrix, axis=None, kind="stable")[:MAX_CONFUSIONS]
    cells = (divmod(int(at), len(names)) for at in order if matrix.flat[at])
    return [(names[label], names[predicted], int(matrix[label, predicted])) for label, predicted in cells]


def _limits(content: CardContent) -> dict:
    """Return what the figures and the data say against the model."""
    data = content.data.get(content.split, {})
    baselines = content.metrics.get("baselines", {})
    figure = _main_figure(content)[0]
    better = [name for name, figures in baselines.items() if figures[figure] >= content.metrics[figure]]
    return {
        "better_baselines": better,
        "in_train": data.get("also_in", {}).get("train", 0),
        "conflicting": content.data.get("train", {}).get("conflicting", 0),
    }
