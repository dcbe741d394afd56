"""Metrics of labels -> the printed report."""

from ..errors import listed
from ..evaluation.text_table import columns_of, short_label, text_table
from ..words import _
from .label_metrics import MAX_CLASSES, MULTI_LABEL_AVERAGES, SCORES, worst_labels
from .metrics import BY_KEY

# Labels, and pairs of classes, in the report of many
MAX_SHOWN = 20


def label_table(metrics: dict, worst: str, averages: tuple[str, ...], support: int) -> list[str]:
    """Return a table of labels and averages; of more than `MAX_CLASSES` labels a heading and those with the
    lowest F1. `worst` is the heading, with fields `shown` and `all`, `support` the rows of the averages."""
    classes = metrics["classes"]
    is_long = len(classes) > MAX_CLASSES
    shown = worst_labels(classes, MAX_SHOWN) if is_long else classes
    has_thresholds = any("threshold" in scores for scores in classes.values())
    names = {
        "micro": _("micro avg"),
        "macro": _("macro avg"),
        "weighted": _("weighted avg"),
        "samples": _("samples avg"),
    }
    rows = shown | {names[name]: metrics[name] | {"support": support} for name in averages}
    lines = [
        [
            short_label(name),
            *(f"{scores[key]:.4f}" for key in SCORES),
            str(scores["support"]),
            *([f"{scores['threshold']:.4f}" if "threshold" in scores else ""] if has_thresholds else []),
        ]
        for name, scores in rows.items()
    ]
    header = ["", _("precision"), _("recall"), _("f1"), _("support")]
    header += [_("threshold")] if has_thresholds else []
    heading = worst.format(shown=len(shown), all=len(classes))
    return [*([heading] if is_long else []), text_table(header, lines)]


def classes_table(metrics: dict, averages: tuple[str, ...], support: int) -> list[str]:
    """Return a table of classes, of which a row has one."""
    worst = _("The {shown} worst of {all:,} classes; all are in report.json")
    return label_table(metrics, worst, averages, support)


def multi_label_lines(metrics: dict, rule: str) -> list[str]:
    """Return the table of labels, the metrics of rows, and the `rule` by which labels are chosen."""
    support = sum(scores["support"] for scores in metrics["classes"].values())
    worst = _("The {shown} worst of {all:,} labels; all are in report.json")
    shown = ("subset_accuracy", "samples_f1", "hamming_loss", "loss")
    values = [f"{BY_KEY[key].name} {metrics[key]:.4f}" for key in shown]
    return [
        *label_table(metrics, worst, MULTI_LABEL_AVERAGES, support),
        "",
        "   ".join([*values, _("rows {rows:,}").format(rows=metrics["rows"])]),
        _("labels a row: {true:.2f} true, {predicted:.2f} predicted").format(
            true=metrics["labels_per_row"], predicted=metrics["predicted_per_row"]
        ),
        "",
        rule,
    ]


def confusion_lines(metrics: dict) -> list[str]:
    """Return the confusion matrix, or of many classes the pairs that are confused most."""
    if "confusion_matrix" in metrics:
        labels = list(map(short_label, metrics["classes"]))
        cells = (
            [label, *map(str, row)] for label, row in zip(labels, metrics["confusion_matrix"], strict=True)
        )
        heading = _("Confusion matrix (rows: true class, columns: predicted)")
        return [heading, text_table(["", *labels], cells)]
    pairs = metrics["confusions"]
    if not pairs:
        return [_("No class was taken for another.")]
    shown = [[short_label(label), short_label(other), str(rows)] for label, other, rows in pairs[:MAX_SHOWN]]
    heading = _("The {shown} most frequent of {all:,} confusions; all are in report.json")
    names = [_("true class"), _("predicted"), _("rows")]
    return [heading.format(shown=len(shown), all=len(pairs)), text_table(names, shown)]


def never_predicted(metrics: dict) -> list[str]:
    """Return a line that names the classes of rows that no row is predicted as, if there are any."""
    classes = metrics["classes"]
    predicted = {name for name, scores in classes.items() if scores["recall"]}
    predicted |= {other for _label, other, _rows in metrics.get("confusions", ())}
    for line in metrics.get("confusion_matrix", ()):
        predicted |= {name for name, rows in zip(classes, line, strict=True) if rows}
    never = [name for name, scores in classes.items() if scores["support"] and name not in predicted]
    return ["", _("Never predicted: {names}").format(names=listed(never))] if never else []


def interval_lines(metrics: dict, beside_baselines: tuple[str, ...]) -> str:
    """Return each metric with its interval, and the baselines with the metrics `beside_baselines`."""
    lines = [_("95 % intervals (bootstrap over the rows)")]
    names = {key: BY_KEY[key].name for key in metrics["intervals"]}
    width = max([17, *map(columns_of, names.values())])
    for key, (low, high) in metrics["intervals"].items():
        name = names[key] + " " * (width - columns_of(names[key]))
        ends = _("{low:.4f} to {high:.4f}").format(low=low, high=high)
        lines.append(f"  {name} {metrics[key]:.4f}   {ends}")
    for baseline, values in metrics.get("baselines", {}).items():
        is_same = values["rows"] == metrics["rows"]
        of_rows = "" if is_same else _(" (on {rows:,} rows)").format(rows=values["rows"])
        shown = ", ".join(f"{BY_KEY[key].name} {values[key]:.4f}" for key in beside_baselines)
        lines.append(f"  {_(baseline)}: {shown}{of_rows}")
    return "\n".join(lines)
