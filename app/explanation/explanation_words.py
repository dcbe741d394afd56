"""The words of an explanation, in English and Chinese."""

from __future__ import annotations

from ..config.language import in_language

WORDS = {
    "title": ("Why this label", "为什么是这个标签"),
    "predicted": ("predicted", "预测的标签"),
    "chosen": ("explained label; the model predicts {0}", "所解释的标签；模型预测的是：{0}"),
    "no_label": ("no label", "没有标签"),
    "probability": ("probability", "概率"),
    "text": ("Text", "文本"),
    "second": ("Second text", "第二个文本"),
    "legend": (
        "Orange: for the label; blue: against it. The stronger the shade, the more it counts. Dotted: "
        "unknown to the model.",
        "橙色：支持该标签；蓝色：反对该标签。颜色越深，作用越大。虚线：模型不认识的字符。",
    ),
    "for_label": ("Evidence for the label", "支持该标签的证据"),
    "against": ("Evidence against it", "反对该标签的证据"),
    "known_right": (
        "In the data this text has the same label: {0} ({1}).",
        "数据里这条文本的标签也是 {0}（{1}）。",
    ),
    "known_wrong": (
        "THE MODEL IS WRONG HERE: in the data this text has the label {0} ({1}). What follows says why it "
        "errs, or that the label is wrong.",
        "这里模型判断错了：数据里这条文本的标签是 {0}（{1}）。下面说明它为什么错，也可能是标签本身有错。",
    ),
    "cut": (
        "The model reads at most {0} tokens: characters {2} of {1} are explained, the others it never saw.",
        "模型最多读取 {0} 个 token：这里解释第 {2} 个字符（共 {1} 个），其余字符模型没有看到。",
    ),
    "range": ("{0} to {1}", "{0} 到第 {1}"),
    "and": (" and ", " 个和第 "),
    "unread": (
        "The model reads at most {0} tokens, and none of them is of this text of {1} characters.",
        "模型最多读取 {0} 个 token，其中没有这个文本的内容（共 {1} 个字符）。",
    ),
    "holds": (
        "The model did use what is marked: deleting the characters with most evidence for the label lowers "
        "its log-odds more than deleting at random (p = {0}). This says nothing about whether the label is "
        "right.",
        "标出的内容确实被模型用到：先删除支持证据最多的字符，标签的对数几率（log-odds）比随机删除降得更多"
        "（p = {0}）。这不说明标签是否正确。",
    ),
    "fails": (
        "THIS IS NO EXPLANATION: deleting the characters that the attributions favour lowers the log-odds "
        "of the label no more than deleting at random (p = {0}).",
        "这不是解释：先删除归因最高的字符，标签的对数几率（log-odds）并不比随机删除降得更多（p = {0}）。",
    ),
    "chance": (
        " In a text of {0} units chance alone is often as good; try a longer text.",
        "文本只有 {0} 个单位，随机顺序也常常同样好；请换一个更长的文本。",
    ),
    "too_short": (
        "Not tested: the deletion test needs {1} units of text, and this text has {0}. What is marked may be "
        "wrong; try a longer text.",
        "未经检验：删除检验至少需要 {1} 个单位，这个文本只有 {0} 个。标出的内容可能有误；"
        "请换一个更长的文本。",
    ),
    "not_converged": (
        "THIS IS NO EXPLANATION: the attributions do not add up to what they must; the difference is {0}.",
        "这不是解释：归因之和与应有的值不符，相差 {0}。",
    ),
    "strongest": ("The strongest words", "作用最大的词"),
    "attribution": ("evidence (log-odds)", "证据（对数几率）"),
    "characters": ("word", "词"),
    "place": ("place", "位置"),
    "test": ("Deletion test", "删除检验"),
    "test_note": (
        "Drop of the log-odds by the number of deleted units: in the order of the attributions, and in "
        "{0} random orders (mean; the band has 90 % of them).",
        "删除若干单位后对数几率的下降：按归因从高到低删除，以及 {0} 次随机顺序（均值，"
        "带状区域含其中的 90%）。",
    ),
    "deleted": ("deleted units", "删除的单位数"),
    "ours": ("by attribution", "按归因"),
    "random": ("at random", "随机"),
    "figures": (
        "Integrated gradients, {0} steps: log-odds {1} of the text, {2} with {5} for every token; the "
        "attributions add up to {3}, convergence delta {4}.",
        "积分梯度，{0} 步：文本的对数几率为 {1}，所有 token 换成 {5} 时为 {2}；"
        "归因之和为 {3}，收敛误差（convergence delta）为 {4}。",
    ),
}


# What differs where the model gives a number
NUMBER_WORDS = {
    "title": ("Why this number", "为什么是这个数"),
    "legend": (
        "Orange: raises the number; blue: lowers it. The stronger the shade, the more it counts. Dotted: "
        "unknown to the model.",
        "橙色：使数值变大；蓝色：使数值变小。颜色越深，作用越大。虚线：模型不认识的字符。",
    ),
    "for_label": ("What raises the number", "使数值变大的内容"),
    "against": ("What lowers it", "使数值变小的内容"),
    "known_number": (
        "In the data this text has the number {0} ({1}).",
        "数据里这条文本的数值是 {0}（{1}）。",
    ),
    "holds": (
        "The model did use what is marked: deleting the characters that raise the number most lowers it more "
        "than deleting at random (p = {0}). This says nothing about whether the number is right.",
        "标出的内容确实被模型用到：先删除使数值变大最多的字符，数值比随机删除降得更多（p = {0}）。"
        "这不说明数值是否正确。",
    ),
    "fails": (
        "THIS IS NO EXPLANATION: deleting the characters that the attributions favour lowers the number no "
        "more than deleting at random (p = {0}).",
        "这不是解释：先删除归因最高的字符，数值并不比随机删除降得更多（p = {0}）。",
    ),
    "attribution": ("change of the number", "数值的变化"),
    "test_note": (
        "Drop of the number by how many units are deleted: in the order of the attributions, and in {0} "
        "random orders (mean; the band has 90 % of them).",
        "删除若干单位后数值的下降：按归因从高到低删除，以及 {0} 次随机顺序（均值，带状区域含其中的 90%）。",
    ),
    "figures": (
        "Integrated gradients, {0} steps: {1} is the number of the text, {2} with {5} for every token; the "
        "attributions add up to {3}, convergence delta {4}.",
        "积分梯度，{0} 步：文本的数值为 {1}，所有 token 换成 {5} 时为 {2}；"
        "归因之和为 {3}，收敛误差（convergence delta）为 {4}。",
    ),
}


def words(language: str, is_number: bool = False) -> dict[str, str]:
    """Return the words in a language, en or zh; `is_number`: of a model that gives a number."""
    pairs = WORDS | NUMBER_WORDS if is_number else WORDS
    return in_language(pairs, language)
