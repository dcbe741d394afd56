"""What people read of the figures: the printed report; report.html, one file to look at; and the model card,
Markdown with the metadata that model hubs read. Texts of strangers are made visible in all of them."""

from __future__ import annotations

import html
import math
import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..data.dataset import Split
from ..data.tokens import TokenStore
from ..tasks.task import Scores, Task
from ..text_table import columns_of, padded, short_label, text_table
from ..words import N_, _, current_language, in_language, pgettext
from .confidence import NUM_BINS, calibration_error, confidence_bins, proportion_interval, risk_coverage
from .metrics import BY_KEY, MAX_CLASSES, RIGHT, best_baseline, is_better, metrics_of, worst_labels

if TYPE_CHECKING:
    from jinja2 import Environment

TEMPLATES = Path(__file__).parent / "templates"
MAX_TEXT, MAX_LABEL, MAX_NAME = 200, 40, 60  # characters of a text, of a label, and of a name on the card
MAX_SHOWN, MAX_WEAK = 20, 5  # labels, and pairs of classes, of many; labels that the card calls weak
FEW_ROWS = 30  # of a class; its figures say little
# On the page: rows and pairs of classes that are listed; classes, and labels of which a row has several
MAX_ERRORS, MAX_PAIRS, ON_PAGE = 20, 50, {"label": 40, "labels": 200, "score": 0}
ACROSS, UPWARD = (56, 348), (196, 10)  # where a chart of 360 x 230 units has its axes
SCATTER_POINTS, RISK_POINTS = 300, 150
FEW_POINTS = 15  # evaluations on dev up to which each is a point
LENGTH_BINS = 6
MIN_BIN = 30  # rows of a bin of the reliability diagram; of fewer, it would show chance
MARKDOWN = re.compile(r"([\\`*_\[\]{}|#~$])")
READINGS = {
    "whole": N_("read whole"),
    "several_windows": N_("read whole, in several windows"),
    "not_whole": N_("not read whole"),
}

Ends = tuple[float, float]  # of an axis


def visible(text: str, longest: int = MAX_TEXT) -> str:
    """Return untrusted text, cut, with control characters as code points."""

    def shown(character: str) -> str:
        if character in "\n\r\t":
            return " "
        is_hidden = unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        return f"‹U+{ord(character):04X}›" if is_hidden else character

    return "".join(map(shown, text[:longest])) + "…" * (len(text) > longest)


@cache
def page_environment(folder: Path = TEMPLATES, autoescape: bool = True) -> Environment:
    """Return the environment of the templates, which compiles each once; `folder` has more templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    options = {"undefined": StrictUndefined, "trim_blocks": True, "lstrip_blocks": True}
    loader = FileSystemLoader([TEMPLATES, folder])
    environment = Environment(loader=loader, autoescape=autoescape, **options)
    environment.globals |= {"_": _, "pgettext": pgettext, "language": current_language, "by_key": BY_KEY}
    environment.filters |= {
        "visible": visible,
        "label": lambda name: visible(name, MAX_LABEL),
        "name": plain,
        "said": _,
        "figure": "{:.4f}".format,
        "percent": lambda value: f"{value * 100:.1f} %",
        "number": "{:,}".format,
        "short": short_label,
        "padded": padded,
        "table": short_table,
    }
    return environment


def report_text(task: Task, metrics: Mapping, start: Mapping, title: str) -> str:
    """Return the report as text; `start` are the metrics before the training, where they are measured."""
    classes, matrix = metrics.get("classes", {}), metrics.get("confusion_matrix")
    # Where rows have several labels, the support of an average is a number of labels
    support = {"support": sum(scores["support"] for scores in classes.values())}
    names = {"micro": _("micro avg"), "macro": _("macro avg"), "weighted": _("weighted avg")}
    averages = {names[name]: metrics[name] | support for name in names if name in metrics}
    shown = worst_labels(classes, MAX_SHOWN, MAX_CLASSES)
    by_key = BY_KEY | {metric.key: metric for metric in metrics_of(task)}
    template = page_environment(autoescape=False).get_template("report.txt.jinja")
    text = template.render(
        task=task,
        by_key=by_key,
        metrics=metrics,
        start=start,
        title=title,
        score_table=score_table,
        classes=shown,
        rows_of_table=shown | averages,
        parents=worst_labels(metrics.get("parents", {}), MAX_SHOWN, MAX_CLASSES),
        matrix=matrix and [[name, *row] for name, row in zip(classes, matrix, strict=True)],
        labels=["", *classes],
        no_rows=sentence_on_missing(classes),
        pairs=metrics.get("confusions", ())[:MAX_SHOWN],
        width=max([17, *(columns_of(by_key[key].name) for key in metrics.get("intervals", ()))]),
        right=BY_KEY[RIGHT[task.answer_column]] if task.has_labels else None,
        readings=READINGS,
    )
    return re.sub(r"\n{3,}", "\n\n", text).strip("\n")


def short_table(header: Sequence[str], rows: Sequence[Sequence]) -> str:
    short = ([short_label(str(cell)) for cell in row] for row in [header, *rows])
    return text_table(next(short), short)


def sentence_on_missing(classes: Mapping) -> str:
    """Return a sentence on the labels that no row has, which lower the macro averages; empty without any."""
    missing = [name for name, scores in classes.items() if not scores["support"]]
    if not missing:
        return ""
    names = [short_label(name) for name in missing[:MAX_SHOWN]]
    if len(missing) > MAX_SHOWN:
        names.append("…")
    return _(
        "No row has one of these {number:,} of {all:,} labels: {names}. Their precision, recall and F1 are "
        "0, and count in the macro averages."
    ).format(number=len(missing), all=len(classes), names=", ".join(names))


def score_table(rows: Mapping) -> str:
    columns = {"precision": _("precision"), "recall": _("recall"), "f1": _("f1"), "support": _("support")}
    if any("threshold" in scores for scores in rows.values()):
        columns["threshold"] = _("threshold")

    def cells(scores: Mapping) -> list[str]:
        values = (scores.get(key, "") for key in columns)
        return [f"{value:.4f}" if isinstance(value, float) else value for value in values]

    return short_table(["", *columns.values()], [[name, *cells(of)] for name, of in rows.items()])


def calibration_effect(task: Task, labels: np.ndarray, logits: np.ndarray, measured_on: str) -> dict:
    """Return what the fitted temperature does to rows, as report.json has it; empty without one."""
    effect: dict = {"measured_on": measured_on} if task.calibration else {}
    for when, calibrated in (("before", False), ("after", True)) if task.calibration else ():
        scores = task.score(labels, logits, calibrated=calibrated)
        effect[when] = {"loss": float(scores.loss.mean()), "ece": float(calibration_error(scores))}
    return effect


def row_readings(store: TokenStore, rows: np.ndarray) -> np.ndarray:
    """Return how each of the rows, (num_rows,) ids, was read: its index in `READINGS`, (num_rows,) int64."""
    windows = store.first_windows[rows + 1] - store.first_windows[rows] if store.has_windows else 1
    return readings_of(store.cut[rows], windows)


def readings_of(cut: np.ndarray, windows: np.ndarray | int) -> np.ndarray:
    """Return `row_readings` of whether tokens were left out, `cut`, and the `windows` of each row."""
    return np.where(cut > 0, 2, np.greater(windows, 1))


def cost_of_length(readings: np.ndarray, right: np.ndarray, way: str, max_length: int) -> dict:
    """Return `right_by_group` of `row_readings`, and the settings; nothing where all rows fit."""
    if not readings.any():
        return {}
    return {"long": way, "max_length": max_length} | right_by_group(list(READINGS), readings, right)


def right_by_group(names: Sequence[str], groups: np.ndarray, right: np.ndarray) -> dict[str, dict]:
    """Return rows, accuracy and its 95 % Clopper-Pearson interval of each group that has rows, by its name;
    `groups`, (num_rows,), are positions in `names`."""
    found = {}
    for group in np.unique(groups).tolist():
        part = right[groups == group]
        interval = list(proportion_interval(int(part.sum()), len(part)))
        found[names[group]] = {"rows": len(part), "accuracy": float(part.mean()), "interval": interval}
    return found


def render_page(
    task: Task,
    scores: Scores,
    metrics: Mapping,
    lengths: np.ndarray,
    readings: np.ndarray,
    seen: np.ndarray | None = None,
    calibrated: Scores | None = None,
    **shown: Any,
) -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.

    `metrics` are those of report.json; `lengths` are in tokens, `readings` of `row_readings`, `seen` of
    `seen_in_train`, (num_rows,) each; `calibrated` are the scores after calibration. Shown are `page_title`;
    `text` and `where`, functions of the position of a row; and, where they are known, `history`, the
    evaluations of metrics.jsonl, `data`, the statistics of the splits, `advice`, and `facts` of the run.
    """
    names = {metric.key: metric.title for metric in metrics_of(task)}
    main, most = task.baseline_metrics[0], ON_PAGE[task.answer_column]
    template = page_environment().get_template("report.html.jinja")
    return template.render(
        {"data": {}, "advice": {}, "facts": {}} | shown,
        task=task,
        scores=scores,
        metrics=metrics,
        kind=task.answer_column,
        metric_names=names,
        main=main,
        best_baseline=best_baseline(metrics, main),
        right=int(scores.correct.sum()),
        classes=worst_labels(metrics.get("classes", {}), most, most),
        parents=worst_labels(metrics.get("parents", {}), most, most),
        no_rows=sentence_on_missing(metrics.get("classes", {})),
        curves=training_curves(shown.get("history", ()), task.log_metrics, metrics.get("step")),
        groups=row_groups(scores.correct, lengths, readings, seen),
        **sections(task, scores, metrics, calibrated),
    )


def sections(task: Task, scores: Scores, metrics: Mapping, calibrated: Scores | None) -> dict:
    """Return what the page shows of one kind of answer. Of several labels a row, the rows with the most wrong
    labels, of these the largest loss first; of numbers, predicted against true, and the worst rows; of one
    label, confusions, the errors of which the model was surest, the reliability diagram, before and after
    calibration, and the curve of risk and coverage."""
    if scores.num_wrong is not None:
        order = np.lexsort((-scores.loss, -scores.num_wrong))[:MAX_ERRORS]
        return {"errors": order[scores.num_wrong[order] > 0].tolist(), "rule": task.state()}
    if scores.error is not None:
        labels, predicted = scores.labels, scores.predicted
        ends, same = (around(labels), around([*predicted, *labels])), (labels.min(), labels.max())
        step = max(1, len(labels) // SCATTER_POINTS)
        return {
            "scatter": chart(labels[::step], predicted[::step], *ends),
            "same": chart(same, same, *ends),
            "errors": np.argsort(-scores.error, kind="stable")[:MAX_ERRORS].tolist(),
        }
    wrong = np.flatnonzero(~scores.correct)
    num_bins, diagrams = max(1, min(NUM_BINS, len(scores) // MIN_BIN)), {}
    for key, of in {"raw": scores, "calibrated": calibrated}.items():
        if of is not None:
            _rows, means, accuracy = confidence_bins(of.confidence, of.correct, num_bins)
            diagrams[key] = chart(means, accuracy, (0, 1), (0, 1))
    final = calibrated or scores
    _confidence, coverage, risk = risk_coverage(final.confidence, final.correct)
    shown = np.unique(np.searchsorted(coverage, np.linspace(0.02, 1, RISK_POINTS)).clip(max=len(risk) - 1))
    return {
        "matrix": metrics.get("confusion_matrix"),
        "pairs": metrics.get("confusions", [])[:MAX_PAIRS],
        "errors": wrong[np.argsort(-scores.confidence[wrong], kind="stable")[:MAX_ERRORS]].tolist(),
        "square": chart((0, 1), (0, 1), (0, 1), (0, 1)),
        "diagrams": diagrams,
        "risk": chart(coverage[shown], risk[shown], (0, 1), (0, around([0, *risk])[1])),
    }


def training_curves(history: Sequence[Mapping], names: Sequence[str], best_step: int | None) -> dict:
    """Return a chart for each metric of the evaluations on dev, with the place of the `best` checkpoint."""
    history = [line for line in history if line.get("split") == "dev"]
    steps, charts = [line["step"] for line in history], {}
    for name in names if len(history) > 1 else ():
        values = [line[name] for line in history]
        found = chart(steps, values, (min(steps), max(steps)), around(values))
        # A run that was resumed may have evaluated a step twice
        best = dict(zip(steps, found["points"], strict=True)).get(best_step)
        charts[name] = found | {"best": best, "has_dots": len(steps) <= FEW_POINTS}
    return charts


def row_groups(
    correct: np.ndarray, lengths: np.ndarray, readings: np.ndarray, seen: np.ndarray | None
) -> dict[str, dict]:
    """Return `right_by_group` of groups of rows, by what they are grouped by."""
    # About equally many rows in each
    bins = np.linspace(0, 1, LENGTH_BINS + 1)[1:]
    edges = np.unique(np.quantile(lengths, bins, method="higher")).astype(int)
    lows = [int(lengths.min()), *(edges[:-1] + 1).tolist()]
    ranges = zip(lows, edges.tolist(), strict=True)
    names = [f"{low}–{edge}" if low < edge else f"{edge}" for low, edge in ranges]
    found = {_("by length in tokens"): (names, np.searchsorted(edges, lengths))}
    found[_("by what was read of the text")] = list(map(_, READINGS.values())), readings
    if seen is not None:
        names = [_("new text"), _("near copy of a training text"), _("also in train")]
        found[_("by whether the text is a training text")] = names, seen
    groups = {by: right_by_group(*of, correct) for by, of in found.items()}
    return {by: members for by, members in groups.items() if len(members) > 1}


def rows_of_split(split: Split, train: Split, store: TokenStore) -> dict[str, Any]:
    """Return what a page knows of the rows of a split, by the names of `render_page`; `store` has tokens."""
    rows, table = np.asarray(split.rows), split.table

    def text(position: int) -> str:
        row = table.row(rows[position])
        return row.text + ("" if row.pair is None else f" ⟷ {row.pair}")

    return {
        "text": text,
        "where": lambda position: table.where(rows[position]).removeprefix(f"{Path.cwd()}{os.sep}"),
        "lengths": store.offsets[rows + 1] - store.offsets[rows],
        "seen": None if split.name == train.name else seen_in_train(split, train),
        "readings": row_readings(store, rows),
    }


def seen_in_train(split: Split, train: Split) -> np.ndarray:
    """Return whether the text of each row is in train: 0 no, 1 nearly, 2 exactly, (num_rows,) int64."""
    is_same = np.isin(split.table.hashes[np.asarray(split.rows)], train.table.hashes[train.rows])
    is_near = 0 if split.copies is None else np.asarray(split.copies) >= 0
    return np.where(is_same, 2, is_near)


def chart(xs: Sequence[float], ys: Sequence[float], x_ends: Ends, y_ends: Ends) -> dict:
    """Return what is drawn of points between the ends of the axes, in units of a chart: their places,
    `points`, and the numbers beside the axes with their places."""

    def places(values: Sequence[float], ends: Ends, axis: Ends) -> list[float]:
        shares = (np.asarray(values, np.float64) - ends[0]) / (ends[1] - ends[0] or 1)
        return np.round(axis[0] + shares * (axis[1] - axis[0]), 1).tolist()

    x_ticks, y_ticks = ticks(*x_ends), ticks(*y_ends)
    return {
        "x_ticks": list(zip(places(x_ticks, x_ends, ACROSS), x_ticks, strict=True)),
        "y_ticks": list(zip(places(y_ticks, y_ends, UPWARD), y_ticks, strict=True)),
        "points": list(zip(places(xs, x_ends, ACROSS), places(ys, y_ends, UPWARD), strict=True)),
    }


def ticks(low: float, high: float) -> list[float]:
    """Return about 5 round numbers from `low` to `high`."""
    if not high > low:
        return [low]
    unit = 10 ** math.floor(math.log10((high - low) / 5))
    step = next(unit * factor for factor in (1, 2, 5, 10) if unit * factor * 5.005 >= high - low)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(number * step, 10) for number in range(first, last + 1)]


def around(values: Sequence[float] | np.ndarray) -> Ends:
    """Return the ends of an axis for values: a little more than they need."""
    finite = [float(value) for value in values if math.isfinite(value)] or [0.0]
    low, high = min(finite), max(finite)
    margin = (high - low) * 0.06 or max(abs(high), 1) * 0.1
    return low - margin, high + margin


def render_card(content: Mapping) -> str:
    """Return the card after its first line `---`: metadata as YAML, then the card in both languages, that of
    the run first. `content` is that of `card_content`: `metrics` are those of report.json on the rows of
    `split`, `data` the statistics of the splits; `splits` have the name of their file, their number of rows,
    and the content of the file."""
    from huggingface_hub import EvalResult, ModelCardData

    task, split, metrics = content["task"], content["split"], content["metrics"]
    file, results = content["splits"][split][0], []
    for key in task.baseline_metrics:
        low, high = metrics["intervals"][key]
        average, _underscore, kind = key.rpartition("_")
        results.append(
            EvalResult(
                task_type="text-classification",
                task_name="Text classification",
                dataset_type=visible(Path(file).stem),
                dataset_name=visible(file),
                dataset_split=split,
                metric_type=kind,
                metric_value=round(metrics[key], 4),
                metric_name=f"{BY_KEY[key].english}, 95 % interval {low:.4f} to {high:.4f}",
                metric_args={"average": average} if average else None,
            )
        )
    metadata = ModelCardData(
        language=["zh"],
        library_name="transformers",
        pipeline_tag="text-classification",
        base_model=content["hub_name"],
        tags=["text-classification", content["model_type"], "chinese"],
        metrics=list(dict.fromkeys(result.metric_type for result in results)),
        model_name=visible(content["name"]),
        eval_results=results,
    ).to_yaml()
    template, cards = page_environment(autoescape=False).get_template("card.md.jinja"), []
    classes, baselines, key = metrics.get("classes", {}), metrics.get("baselines", {}), task.main_metric
    worst = worst_labels(classes, len(classes))
    shown = {
        "content": content,
        "metrics": metrics,
        "task": task,
        "kind": task.answer_column,
        "shown": [metric for metric in metrics_of(task) if metric.has_interval],
        "classes": worst_labels(classes, MAX_SHOWN, MAX_CLASSES),
        "num_classes": len(classes),
        "weak": [name for name, scores in worst.items() if scores["f1"] < metrics["macro_f1"]][:MAX_WEAK],
        "num_few": sum(scores["support"] < FEW_ROWS for scores in classes.values()),
        "few_rows": FEW_ROWS,
        "settings": [f"{name} {plain(value)}" for name, value in content["settings"].items()],
        "better": [name for name, of in baselines.items() if not is_better(metrics[key], of[key], key)],
    }
    for language in ("en", "zh") if current_language() == "en" else ("zh", "en"):
        with in_language(language):
            cards.append(template.render(shown).strip())
    return f"{metadata}\n---\n\n" + "\n\n".join(cards) + "\n"


def plain(text: object) -> str:
    """Return an untrusted name for Markdown: it is shown as it is, and is neither Markdown nor HTML."""
    return MARKDOWN.sub(r"\\\1", html.escape(visible(str(text), MAX_NAME), quote=False))
