"""The words of the printed report, in English and Chinese."""

from ..config import language as texts

WORDS = {
    "precision": ("precision", "精确率"),
    "recall": ("recall", "召回率"),
    "f1": ("f1", "F1"),
    "support": ("support", "样本数"),
    "threshold": ("threshold", "阈值"),
    "macro avg": ("macro avg", "宏平均"),
    "micro avg": ("micro avg", "微平均"),
    "weighted avg": ("weighted avg", "加权平均"),
    "samples avg": ("samples avg", "按样本平均"),
    "classes": ("classes", "个类别"),
    "labels": ("labels", "个标签"),
    "worst": (
        "The {0} worst of {1:,} {2}; all are in report.json",
        "{1:,} {2}中最差的 {0} 个；全部在 report.json 里",
    ),
    "rows": ("rows {0:,}", "样本数 {0:,}"),
    "labels a row": (
        "labels a row: {0:.2f} true, {1:.2f} predicted",
        "每行标签数：真实 {0:.2f}，预测 {1:.2f}",
    ),
    "matrix": (
        "Confusion matrix (rows: true class, columns: predicted)",
        "混淆矩阵（行：真实类别，列：预测类别）",
    ),
    "no confusions": ("No class was taken for another.", "没有把任何类别当成别的类别。"),
    "confusions": (
        "The {0} most frequent of {1:,} confusions; all are in report.json",
        "{1:,} 种混淆中最常见的 {0} 种；全部在 report.json 里",
    ),
    "true class": ("true class", "真实类别"),
    "predicted": ("predicted", "预测"),
    "row count": ("rows", "样本数"),
    "intervals": ("95 % intervals (bootstrap over the rows)", "95% 置信区间（对样本做自助法）"),
    "to": ("{0:.4f} to {1:.4f}", "{0:.4f} 到 {1:.4f}"),
    "of rows": (" (on {0:,} rows)", "（{0:,} 行）"),
    "majority class": ("majority class", "总是预测最多的类别"),
    "most frequent set": ("most frequent set", "总是预测最多的标签组合"),
    "calibration": (
        "Calibration: temperature {0:.3f}, fitted on {1:,} rows of {2}; on {3}{4}: loss {5:.4f} to {6:.4f}, "
        "calibration error {7:.4f} to {8:.4f}",
        "校准：温度 {0:.3f}，在 {2} 的 {1:,} 行上拟合；在 {3} 上{4}：损失 {5:.4f} 变为 {6:.4f}，"
        "校准误差 {7:.4f} 变为 {8:.4f}",
    ),
    "near": (
        "rows {0:,}; {1:.1%} at most {2:.4g} off, half a standard deviation",
        "样本数 {0:,}；{1:.1%} 的误差不超过 {2:.4g}（半个标准差）",
    ),
    "default threshold": (
        "Threshold {0} for every label; none was chosen on dev rows",
        "所有标签的阈值都是 {0}；没有在验证集上选阈值",
    ),
    "best thresholds": (
        "Threshold of each label: the best F1 on {0:,} rows of {1}",
        "每个标签的阈值：在 {1} 的 {0:,} 行上 F1 最好",
    ),
    "absent labels": (
        "; {0:,} labels without a row there have {1}",
        "；{0:,} 个标签在那里没有样本，阈值为 {1}",
    ),
    "at least": ("; at least {0} labels a row", "；每行至少 {0} 个标签"),
    "at most": ("; at most {0} labels a row", "；每行最多 {0} 个标签"),
    "masked tokens": (
        "{0:,} masked tokens of {1:,} rows, the same before and after",
        "{1:,} 行中的 {0:,} 个被掩盖的 token，训练前后相同",
    ),
    "before": ("{0:10.4f} before ", "训练前 {0:10.4f} "),
    "after": ("{0:10.4f} after", "训练后 {0:10.4f}"),
    "copies": (
        "{0:,} rows are copies or near copies of training texts; {1} without them {2}, with them {3:.4f}",
        "{0:,} 行与训练文本相同或几乎相同；不算它们，{1}是 {2}，算上是 {3:.4f}",
    ),
    "unknown": ("unknown", "未知"),
    "same rows": (", the rows it was fitted on", "（就是拟合用的样本）"),
}


def say(language: str, key: str, *values: object) -> str:
    """Return a text with its values, or `key` itself: some names are the same in both languages."""
    return texts.say(WORDS, language, key, *values) if key in WORDS else key
