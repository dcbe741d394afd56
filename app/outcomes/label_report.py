"""Metrics of labels -> the printed report."""

from ..evaluation.text_table import columns_of, short_label, text_table
from .label_metrics import MAX_CLASSES, MULTI_LABEL_AVERAGES, SCORES, worst_labels
from .metrics import BY_KEY
from .report_words import say

# Labels, and pairs of classes, in the report of many
MAX_SHOWN = 20


def label_table(
    metrics: dict, noun: str, averages: tuple[str, ...], support: int, language: str = "en"
) -> list[str]:
    """Return a table of labels and averages; of more than `MAX_CLASSES` labels a heading and those with the
    lowest F1. `noun` is what labels are called, `support` the rows of the averages."""
    classes = metrics["classes"]
    is_long = len(classes) > MAX_CLASSES
    shown = worst_labels(classes, MAX_SHOWN) if is_long else classes
    has_thresholds = any("threshold" in scores for scores in classes.values())
    rows = shown | {say(language, f"{name} avg"): metrics[name] | {"support": support} for name in averages}
    lines = [
        [
            short_label(name),
            *(f"{scores[key]:.4f}" for key in SCORES),
            str(scores["support"]),
            *([f"{scores['threshold']:.4f}" if "threshold" in scores else ""] if has_thresholds else []),
        ]
        for name, scores in rows.items()
    ]
    keys = [*SCORES, "support", *(["threshold"] if has_thresholds else [])]
    header = ["", *(say(language, key) for key in keys)]
    heading = say(language, "worst", len(shown), len(classes), say(language, noun))
    return [*([heading] if is_long else []), text_table(header, lines)]


def multi_label_lines(metrics: dict, rule: str, language: str = "en") -> list[str]:
    """Return the table of labels, the metrics of rows, and the `rule` by which labels are chosen."""
    support = sum(scores["support"] for scores in metrics["classes"].values())
    shown = ("subset_accuracy", "samples_f1", "hamming_loss", "loss")
    values = [f"{BY_KEY[key].name(language)} {metrics[key]:.4f}" for key in shown]
    return [
        *label_table(metrics, "labels", MULTI_LABEL_AVERAGES, support, language),
        "",
        "   ".join([*values, say(language, "rows", metrics["rows"])]),
        say(language, "labels a row", metrics["labels_per_row"], metrics["predicted_per_row"]),
        "",
        rule,
    ]


def confusion_lines(metrics: dict, language: str = "en") -> list[str]:
    """Return the confusion matrix, or of many classes the pairs that are confused most."""
    if "confusion_matrix" in metrics:
        labels = list(map(short_label, metrics["classes"]))
        cells = (
            [label, *map(str, row)] for label, row in zip(labels, metrics["confusion_matrix"], strict=True)
        )
        return [say(language, "matrix"), text_table(["", *labels], cells)]
    pairs = metrics["confusions"]
    if not pairs:
        return [say(language, "no confusions")]
    shown = [[short_label(label), short_label(other), str(rows)] for label, other, rows in pairs[:MAX_SHOWN]]
    heading = say(language, "confusions", len(shown), len(pairs))
    names = [say(language, key) for key in ("true class", "predicted", "row count")]
    return [heading, text_table(names, shown)]


def interval_lines(metrics: dict, beside_baselines: tuple[str, ...], language: str = "en") -> str:
    """Return each metric with its interval, and the baselines with the metrics `beside_baselines`."""
    lines = [say(language, "intervals")]
    names = {key: BY_KEY[key].name(language) for key in metrics["intervals"]}
    width = max([17, *map(columns_of, names.values())])
    for key, ends in metrics["intervals"].items():
        name = names[key] + " " * (width - columns_of(names[key]))
        lines.append(f"  {name} {metrics[key]:.4f}   {say(language, 'to', *ends)}")
    for baseline, values in metrics.get("baselines", {}).items():
        of_rows = "" if values["rows"] == metrics["rows"] else say(language, "of rows", values["rows"])
        shown = ", ".join(f"{BY_KEY[key].name(language)} {values[key]:.4f}" for key in beside_baselines)
        lines.append(f"  {say(language, baseline)}: {shown}{of_rows}")
    return "\n".join(lines)
