"""Rows with label sets and their metrics -> report.html."""

from __future__ import annotations

from ..page.page import PageContent, page_environment, row_groups, training_curves
from ..page.words import words
from .decisions import LabelRule
from .row_sets import OF_BASELINES, list_of

CURVES = ("loss", "micro_f1", "macro_f1", "subset_accuracy")
HEADLINE = ("micro_f1", "macro_f1", "samples_f1", "subset_accuracy", "hamming_loss", "loss")
MAX_LABELS, MAX_ERRORS = 200, 20
WORDS = {
    "micro_f1": ("Micro F1", "微平均 F1"),
    "samples_f1": ("F1 by row", "按行平均的 F1"),
    "subset_accuracy": ("All labels right", "标签全部正确的行"),
    "hamming_loss": ("Hamming loss", "汉明损失"),
    "labels": ("Labels", "各标签"),
    "label": ("label", "标签"),
    "support": ("rows with it", "有该标签的行"),
    "threshold": ("threshold", "阈值"),
    "average": ("{0} average", "{0} 平均"),
    "worst": ("The {0} labels with the lowest F1, of {1}", "F1 最低的 {0} 个标签（共 {1} 个）"),
    "chosen": (
        "Each threshold has the best F1 of its label on {0} rows of {1}.",
        "每个阈值在 {1} 的 {0} 行上使该标签的 F1 最好。",
    ),
    "not_chosen": ("There are no dev rows to choose thresholds on.", "没有可以用来选阈值的验证集。"),
    "groups": ("Where all labels of a row are right", "哪些样本的标签容易全对"),
    "errors": ("The rows with the most wrong labels", "错误标签最多的样本"),
    "wrong": ("wrong labels: {0}", "错误的标签数：{0}"),
    "no_label": ("no label", "没有标签"),
}


def render_label_set_page(content: PageContent, rule: LabelRule, language: str = "en") -> str:
    """Return the page as HTML, complete in itself: no script, and nothing is loaded from elsewhere.
    `language` is en or zh.

    The scores of the rows of `content` are `RowSets`.
    """
    classes = content.metrics["classes"]
    shown = classes
    if len(classes) > MAX_LABELS:
        by_f1 = sorted(classes, key=lambda name: (classes[name]["f1"], -classes[name]["support"]))
        shown = {name: classes[name] for name in by_f1[:MAX_LABELS]}
    text = words(language) | {key: pair[language == "zh"] for key, pair in WORDS.items()}
    context = {"language": language, "t": text, "content": content, "page_title": content.title, "rule": rule}
    context |= {"metrics": content.metrics, "classes": shown, "num_classes": len(classes)}
    context |= {"headline": HEADLINE, "beside_baselines": OF_BASELINES, "errors": most_wrong_rows(content)}
    context |= {"curves": training_curves(content.history, content.metrics.get("step"), CURVES)}
    return (
        page_environment()
        .get_template("label_sets.html.jinja")
        .render(context | row_groups(content.rows, text))
    )


def most_wrong_rows(content: PageContent) -> list[dict]:
    """Return the rows with the most wrong labels: `text`, `where`, `num_wrong`, and the `true` and
    `predicted` labels."""
    rows, names = content.rows, content.rows.label_names
    return [
        {
            "text": rows.text(position),
            "where": rows.where(position),
            "num_wrong": int(rows.scores.num_wrong[position]),
            "true": list_of(rows.scores.labels[position], names),
            "predicted": list_of(rows.scores.predicted[position], names),
        }
        for position in rows.scores.most_wrong(MAX_ERRORS).tolist()
    ]
