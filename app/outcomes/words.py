"""Words of single kinds of answers on the page of a report and on a model card, in English and Chinese."""

SINGLE_LABEL = {
    "card_what": (
        "A classifier of Chinese {texts} with {labels:,} labels",
        "中文{texts}分类模型，共 {labels:,} 个标签",
    ),
    "card_label": ("class", "类别"),
    "card_labels": ("Classes", "各类别"),
    "card_conflicting": ("more than one label", "不止一种标签"),
    "card_always": (
        "Every text gets a label, also one that fits none. `predict.py --abstain` leaves out what is not "
        "sure enough.",
        "每个文本都会得到一个标签，即使哪个都不合适。`predict.py --abstain` 可以略去没有把握的文本。",
    ),
    "card_calibration": (
        "**Calibration.** Divide the logits by {temperature:.3f}, fitted on {rows:,} rows of dev: the "
        "calibration error on {measured_on} goes from {before[ece]:.4f} to {after[ece]:.4f}, the loss from "
        "{before[loss]:.4f} to {after[loss]:.4f}. The pipeline above does not do this; the number is in "
        "`calibration.json`.",
        "**校准。** logits 应除以 {temperature:.3f}（在验证集 {rows:,} 行上拟合）："
        "{measured_on} 上的校准误差由 {before[ece]:.4f} 变为 {after[ece]:.4f}，损失由 {before[loss]:.4f} "
        "变为 {after[loss]:.4f}。transformers 的 pipeline 不做这一步；这个数在 `calibration.json` 里。",
    ),
    "card_calibration_name": ("Calibration.", "校准。"),
    "no_calibration_no_rows": (
        "Probabilities are as the model gives them: no temperature was fitted on dev rows.",
        "概率是模型原来给出的：没有在验证集上拟合温度。",
    ),
    "no_calibration_few_rows": (
        "Probabilities are as the model gives them: {0:,} dev rows are too few to fit a temperature.",
        "概率是模型原来给出的：验证集只有 {0:,} 行，不足以拟合温度。",
    ),
    "no_calibration_no_better": (
        "Probabilities are as the model gives them: on {0:,} dev rows no temperature lowers the loss of rows "
        "it was not fitted on.",
        "概率是模型原来给出的：在验证集 {0:,} 行上，没有温度能降低未参与拟合的样本的损失。",
    ),
}

MULTI_LABEL = {
    "note": (
        "Each run decides by its own thresholds (thresholds.json), which have the best F1 of each label on "
        "its dev rows; without dev rows they are 0.5.",
        "每次训练用自己的阈值（thresholds.json），它们让各标签在其验证集上的 F1 最高；没有验证集时是 0.5。",
    ),
    "label_patterns": (
        "Labels that confident learning takes for left out (missing) or put in by mistake (extra), and in "
        "how many rows:",
        "confident learning 认为漏标（missing）或多标（extra）的标签，以及行数：",
    ),
    "card_what": (
        "A classifier of Chinese {texts} with {labels:,} labels, several of them possible for each",
        "中文{texts}分类模型，共 {labels:,} 个标签，每条可以有多个",
    ),
    "card_label": ("label", "标签"),
    "card_labels": ("Labels", "各标签"),
    "card_conflicting": ("different lists of labels", "不同的标签组合"),
    "card_thresholds": (
        "**Thresholds.** A text has the labels whose probability reaches the threshold of the label, in the "
        "table below and in `thresholds.json`. `predict.py` uses them; the pipeline above gives "
        "probabilities only.",
        "**阈值。** 概率达到某个标签的阈值，文本就有这个标签；阈值在下面的表和 `thresholds.json` 里。"
        "`predict.py` 会使用它们；transformers 的 pipeline 只给出概率。",
    ),
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
    "not_chosen": ("No thresholds were chosen on dev rows.", "没有在验证集上选阈值。"),
    "groups": ("Where all labels of a row are right", "哪些样本的标签容易全对"),
    "errors": ("The rows with the most wrong labels", "错误标签最多的样本"),
    "wrong": ("wrong labels: {0}", "错误的标签数：{0}"),
    "most frequent set": ("Always the most frequent set of labels", "总是预测最多的标签组合"),
    "no_label": ("no label", "没有标签"),
}
