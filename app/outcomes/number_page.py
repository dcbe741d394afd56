"""What report.html and the model card show of one number a row: predicted against true, worst rows."""

from collections.abc import Callable

import numpy as np

from ..evaluation.page.charts import MAX_POINTS, Axes, around
from ..evaluation.page.report_page import PageContent

MAX_ERRORS = 20
# In English and Chinese
WORDS = {
    "card_what": ("A model that gives Chinese {texts} a score", "给中文{texts}打分的模型"),
    "card_label": ("score", "分数"),
    "card_labels": ("Scores", "分数"),
    "card_conflicting": ("different scores", "不同的分数"),
    "card_scale": (
        "**Unit.** The model's output is in standard deviations: a score is {0:.6g} + {1:.6g} × output, with "
        "the numbers of `scale.json` and `config.json`. `predict.py` does this; the pipeline above does not.",
        "**单位。** 模型的输出以标准差为单位：分数 = {0:.6g} + {1:.6g} × 输出，这两个数在 `scale.json` 和 "
        "`config.json` 里。`predict.py` 会换算；transformers 的 pipeline 不换算。",
    ),
    "summary": (
        "Of the {0:,} texts of this report, {1:,} get a number that is at most half a standard deviation "
        "off; {2} is {3:.3f}, with other texts likely between {4:.3f} and {5:.3f}.",
        "在这份报告的 {0:,} 条文本中，{1:,} 条的误差不超过半个标准差；{2}是 {3:.3f}，换一批文本时大约在 "
        "{4:.3f} 到 {5:.3f} 之间。",
    ),
    "groups": ("Where it is at most half a standard deviation off", "哪些样本的误差不超过半个标准差"),
    "mean": ("Always the mean", "总是预测平均值"),
    "TF-IDF + ridge": ("Character TF-IDF + ridge regression", "字符 TF-IDF + 岭回归"),
    "shared TF-IDF + ridge": (
        "TF-IDF of what both texts share + ridge regression",
        "两段文本共有部分的 TF-IDF + 岭回归",
    ),
    "scatter": ("Predicted against true", "预测与真实"),
    "scatter_note": (
        "Each point is a row; on the dashed line prediction and truth are the same.",
        "每个点是一行；虚线上预测与真实相同。",
    ),
    "errors": ("The rows that are furthest off", "误差最大的样本"),
    "off": ("off by", "误差"),
    "issues_found": (
        "{ranked:,} rows are more than half a standard deviation off, {flagged:,} of them are flagged, whose "
        "error is far from the usual ones: label_issues.csv",
        "{ranked:,} 行的误差超过半个标准差，其中 {flagged:,} 行误差远离常见范围，已标记：label_issues.csv",
    ),
    "cannot_judge": (
        "The models are at most half a standard deviation off in {accuracy:.1%} of the rows, and so is the "
        "mean in {majority:.1%}.",
        "模型在 {accuracy:.1%} 的行上误差不超过半个标准差，总是预测平均值时是 {majority:.1%}。",
    ),
}


def page_sections(content: PageContent, cell: Callable[[float], str]) -> dict:
    """Return what the template regression.html.jinja shows; `cell` writes a number."""
    rows, scores = content.rows, content.rows.scores
    axes = Axes(*around([*scores.labels]), *around([*scores.predicted, *scores.labels]))
    step = max(1, len(scores) // MAX_POINTS)
    points = [
        (axes.x(float(label)), axes.y(float(predicted)))
        for label, predicted in zip(scores.labels[::step], scores.predicted[::step], strict=True)
    ]
    worst = np.argsort(-scores.error, kind="stable")[:MAX_ERRORS]
    errors = [
        {
            "text": rows.text(at),
            "where": rows.where(at),
            "true": cell(scores.labels[at]),
            "predicted": cell(scores.predicted[at]),
            "off": cell(scores.error[at]),
        }
        for at in worst.tolist()
    ]
    ends = [float(value) for value in (scores.labels.min(), scores.labels.max())]
    return {"num_classes": 0, "axes": axes, "points": points, "same": axes.line(ends, ends), "errors": errors}
