"""The sentences of `What next?`, in English and Chinese."""

SENTENCES = {
    "heading": ("What next?", "下一步做什么？"),
    "no_better": (
        "The model is no better than a linear model of characters: {metric} {ours:.4f}, {baseline} "
        "{theirs:.4f}. Try another pretrained model: {setting}",
        "模型不比字符的线性模型好：{metric} {ours:.4f}，{baseline} {theirs:.4f}。换一个预训练模型试试："
        "{setting}",
    ),
    "few_steps": (
        "The run was shorter than usual for such data, and the model is no better than a linear model of "
        "characters: {metric} {ours:.4f}, {baseline} {theirs:.4f}. Train as long as usual: {setting}",
        "这次训练比同类数据通常的训练短，模型不比字符的线性模型好：{metric} {ours:.4f}，"
        "{baseline} {theirs:.4f}。请按通常的长度训练：{setting}",
    ),
    "random_weights": (
        "The model began with random weights and is no better than a linear model of characters: {metric} "
        "{ours:.4f}, {baseline} {theirs:.4f}. Begin with a pretrained model, without model.config "
        "and without a learning rate that was chosen for random weights: {setting}",
        "模型从随机权重开始，不比字符的线性模型好：{metric} {ours:.4f}，{baseline} {theirs:.4f}。"
        "请从预训练模型开始，并去掉 model.config 和为随机权重设置的学习率：{setting}",
    ),
    "still_falls": (
        "The last checkpoint is the best, the loss on dev still fell by {fall:.0%} ({before:.4f} to "
        "{last:.4f}), and that of training is {train:.4f}, so there is more to learn. Train longer: "
        "{setting}",
        "最后一个检查点最好，验证集损失还在下降 {fall:.0%}（{before:.4f} 降到 {last:.4f}），"
        "训练损失是 {train:.4f}，还有可学的。请训练更久：{setting}",
    ),
    "few_test_rows": (
        "The report is about {rows} rows only, so {metric} may be anything from {low:.2f} to {high:.2f}. A "
        "cross-validation tests every row: {program} cross-validate --folds 5, with the same settings.",
        "报告只有 {rows} 行，{metric} 可能在 {low:.2f} 到 {high:.2f} 之间。"
        "交叉验证会测试每一行：{program} cross-validate --folds 5（用同样的设置）。",
    ),
    "wrong_labels": (
        "Of the {rows} rows of which the model is surest, {differ} have another label than it says: at least "
        "{at_least:.0%} of such labels seem wrong. List them, and correct them: {program} cross-validate "
        "--folds 5, with the same settings.",
        "模型最有把握的 {rows} 行中，有 {differ} 行的标签与它的判断不同：这类标签至少有 {at_least:.0%} "
        "可能有错。列出来并改正：{program} cross-validate --folds 5（用同样的设置）。",
    ),
    "few_rows": (
        "Classes with fewer than {limit} training rows: {classes}, the smallest {shown}. Label more texts: "
        "{program} suggest new.csv next.csv chooses the rows of a file without labels that are worth it.",
        "训练样本不足 {limit} 行的类别有 {classes} 个，最少的是 {shown}。请多标注一些："
        "{program} suggest new.csv next.csv 从没有标签的文件里挑出值得标注的行。",
    ),
    "cut_texts": (
        "{share:.0%} of the texts are not read whole, and the model is worse on them: {metric} {cut:.4f}, "
        "else {whole:.4f}. Let it read more: {setting}",
        "{share:.0%} 的文本没有读完整，模型在这些文本上更差：{metric} {cut:.4f}，其他文本 {whole:.4f}。"
        "让它多读一些：{setting}",
    ),
    "confused": (
        "{one} and {other} are taken for each other ({rows} of {of} rows, and {other_rows} of {other_of}). "
        "Look at these rows: do people agree on the difference? {program} cross-validate --folds 5, with the "
        "same settings, lists them.",
        "{one} 和 {other} 互相混淆（{of} 行中有 {rows} 行，{other_of} 行中有 {other_rows} 行）。"
        "看看这些样本：人能一致地区分它们吗？{program} cross-validate --folds 5（用同样的设置）会列出它们。",
    ),
    "by_heart": (
        "The model knows its training rows by heart (loss {train:.4f}), while the loss on dev rose from "
        "{lowest:.4f} to {last:.4f}. More rows are the usual remedy; {program} learning-curve, with the same "
        "settings, says whether they help.",
        "模型已经记住了训练样本（损失 {train:.4f}），验证集损失却从 {lowest:.4f} 升到 {last:.4f}。"
        "通常需要更多样本；{program} learning-curve（用同样的设置）会告诉你增加样本是否有用。",
    ),
}
