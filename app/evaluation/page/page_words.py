"""The words of the page, in English and Chinese."""

from ...config.language import in_language

WORDS = {
    "title": ("Evaluation report", "评测报告"),
    "what_next": ("What next?", "下一步做什么？"),
    "summary": (
        "The model is right about {1:,} of the {0:,} texts of this report; {2} is {3:.3f}, with other texts "
        "likely between {4:.3f} and {5:.3f}.",
        "在这份报告的 {0:,} 条文本上，模型判断对了 {1:,} 条；{2}是 {3:.3f}，换一批文本时大约在 {4:.3f} 到 "
        "{5:.3f} 之间。",
    ),
    "summary_beside": (
        " For comparison, {0}: {1:.3f}.",
        "作为对比，{0}：{1:.3f}。",
    ),
    "facts": ("The run", "这次训练"),
    "fact_model": ("model", "模型"),
    "fact_rows": ("training rows", "训练样本数"),
    "fact_epochs": ("epochs", "轮数"),
    "fact_steps": ("steps, of them until the best", "步数，到最佳检查点"),
    "fact_batch": ("rows of a step", "每步行数"),
    "fact_rate": ("learning rate", "学习率"),
    "fact_length": ("most tokens of a text", "文本最大长度（token 数）"),
    "fact_precision": ("precision", "精度"),
    "fact_device": ("computed on", "计算设备"),
    "fact_seed": ("random seed", "随机种子"),
    "fact_duration": ("duration", "用时"),
    "headline": ("How good, and how sure", "有多好，有多确定"),
    "intervals_note": (
        "In brackets: 95 % bootstrap interval over the rows. It does not contain the spread of random seeds.",
        "括号内是对样本做自助法得到的 95% 置信区间，不包含随机种子带来的波动。",
    ),
    "rows": ("rows", "样本数"),
    "model": ("This model", "本模型"),
    "majority class": ("Always the most frequent class", "总是预测最多的类别"),
    "most frequent set": ("Always the most frequent set of labels", "总是预测最多的标签组合"),
    "TF-IDF + logistic regression": (
        "Character TF-IDF + logistic regression",
        "字符 TF-IDF + 逻辑回归",
    ),
    "TF-IDF + naive Bayes": ("Character TF-IDF + naive Bayes", "字符 TF-IDF + 朴素贝叶斯"),
    "classes": ("Classes", "各类别"),
    "worst_classes": ("The {0} classes with the lowest F1, of {1}", "F1 最低的 {0} 个类别（共 {1} 个）"),
    "class": ("class", "类别"),
    "precision": ("precision", "精确率"),
    "recall": ("recall", "召回率"),
    "confusions": ("Which class is taken for which", "哪一类被当成哪一类"),
    "matrix_note": (
        "Rows: true class; columns: predicted. Shade: share of the true class.",
        "行：真实类别；列：预测类别。颜色深浅：占真实类别的比例。",
    ),
    "pairs_note": ("The {0} most frequent confusions", "最常见的 {0} 种混淆"),
    "no_errors": ("There are no errors.", "没有错误。"),
    "true": ("true", "真实"),
    "predicted": ("predicted", "预测"),
    "curves": ("While training: dev", "训练过程：验证集"),
    "step": ("step", "步"),
    "best": ("best checkpoint", "最佳检查点"),
    "calibration": ("May one trust a probability", "概率是否可信"),
    "reliability": ("Probability of the prediction, and how often it is right", "预测的概率与实际的准确率"),
    "confidence": ("probability", "概率"),
    "raw": ("as the model gives it", "模型原来的概率"),
    "calibrated": ("calibrated", "校准后"),
    "calibration_note": (
        "Logits are divided by {0}, fitted on {1} rows of dev. Loss {2} to {3}, calibration error {4} to "
        "{5}.",
        "logits 除以 {0}（在验证集 {1} 行上拟合）。损失 {2} 变为 {3}，校准误差 {4} 变为 {5}。",
    ),
    "risk": ("If only the surest rows are decided", "如果只对最有把握的样本下结论"),
    "coverage": ("share of rows decided", "下结论的样本比例"),
    "errors_share": ("share of errors among them", "其中的错误比例"),
    "groups": ("Where it is right", "哪些样本容易对"),
    "length": ("by length in tokens", "按长度（token 数）"),
    "part": ("by what was read of the text", "按读到的部分"),
    "part_whole": ("all of it", "全文"),
    "part_several_windows": ("all of it, in several windows", "全文，分多个窗口"),
    "part_not_whole": ("a part", "一部分"),
    "unknown": ("by share of unknown tokens", "按未知 token 的比例"),
    "seen": ("by whether the text is a training text", "按文本是否在训练集中出现过"),
    "unseen_name": ("new text", "新文本"),
    "near_name": ("near copy of a training text", "与训练文本几乎相同"),
    "seen_name": ("also in train", "训练集中也有"),
    "examples": ("The errors it was surest of", "模型最有把握的错误"),
    "nearest": ("in train:", "训练集："),
    "data": ("Data", "数据"),
    "split": ("split", "划分"),
    "repeated": ("repeated texts", "重复文本"),
    "conflicting": ("texts with conflicting labels", "标签矛盾的文本"),
    "also_in": ("texts also in {0}", "文本也在 {0} 中"),
    "footer": (
        "Made from logits.safetensors of the run; control characters of texts are shown as their code "
        "points.",
        "由训练目录中的 logits.safetensors 生成；文本中的控制字符以码位显示。",
    ),
}


def words(language: str) -> dict[str, str]:
    """Return the words in a language, en or zh."""
    return in_language(WORDS, language)
