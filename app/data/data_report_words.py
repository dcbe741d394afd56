"""The words of the data report, in English and Chinese."""

from __future__ import annotations

from functools import partial

from ..config import language

WORDS = {
    "heading": ("Data", "数据"),
    "table": ("{0}: {1:,} rows{2} ({3})", "{0}：{1:,} 行{2}（{3}）"),
    "skipped": (", {0:,} skipped", "，跳过 {0:,} 行"),
    "skipped_row": ("skipped {0}: {1}", "跳过 {0}：{1}"),
    "more_skipped": (
        "... and {0:,} more, all in skipped_rows.csv of the run folder",
        "……还有 {0:,} 行，全部在训练目录的 skipped_rows.csv 里",
    ),
    "multiline": (
        "{0:,} rows have several lines, the first from line {1:,}: are all double quotes paired?",
        "{0:,} 行数据含有换行，第一个从第 {1:,} 行开始：双引号都成对吗？",
    ),
    "split": ("the {0:,} rows were split: {1}", "{0:,} 行划分为：{1}"),
    "of_split": ("{0:,} {1}", "{1} {0:,} 行"),
    "relabelled": (
        "{0}: {1:,} corrected labels, for {2:,} rows, {3:,} of them had another label",
        "{0}：{1:,} 个改正的标签，用于 {2:,} 行，其中 {3:,} 行原来是别的标签",
    ),
    "unused_labels": (
        "; {0:,} of texts that are not in the data, the first in {1}",
        "；{0:,} 个的文本不在数据里，第一个在 {1}",
    ),
    "and": (" and ", " 和 "),
    "look_alikes": (
        "warning: labels that look alike are different classes: {0}{1}",
        "注意：看起来相同的标签是不同的类别：{0}{1}",
    ),
    "more_groups": ("; and {0:,} more groups", "；还有 {0:,} 组"),
    "missing": (
        "warning: the class {0} looks like a missing label",
        "注意：类别 {0} 看起来是缺失的标签",
    ),
    "few_rows": (
        "warning: {0:,} classes have fewer than {1} rows in train, the smallest {2} {3:,}: a model learns "
        "little of them, and figures on dev and test vary by chance",
        "注意：训练集中有 {0:,} 个类别不足 {1} 行，最少的是 {2}，{3:,} 行：模型学不到多少，"
        "验证集和测试集上的数字也会随机波动",
    ),
    "absent": (
        "warning: {0} has no row of {1}: nothing is measured there",
        "注意：{0} 中没有 {1} 的样本：这些类别没有评测",
    ),
    "many_classes": (
        "{0:,} classes, the largest {1}; the smallest {2}",
        "共 {0:,} 个类别，最多的是 {1}；最少的是 {2}",
    ),
    "rows_and_share": ("{0:,} rows ({1:.1%})", "{0:,} 行（{1:.1%}）"),
    "windows": (
        "{0:,} rows in several windows of {1}; {2} cut after {3} windows (data.max_windows)",
        "{0:,} 行分多个窗口读，每个 {1} 个 token；{2}超出 {3} 个窗口（data.max_windows）的部分被截断",
    ),
    "head_tail": ("{0} read as head and tail of {1}", "{0}只读开头和结尾，共 {1} 个 token"),
    "cut": ("{0} cut at {1}", "{0}在 {1} 个 token 处截断"),
    "of_rows": ("{0}: {1:,} rows{2}", "{0}：{1:,} 行{2}"),
    "classes": ("; {0}", "；{0}"),
    "longest": ("longest", "最长"),
    "tokens": ("tokens by percentile: {0}; {1}", "token 数的百分位：{0}；{1}"),
    "unknown": (
        "{0:.1%} of all tokens are unknown to the vocabulary: is it the right one?",
        "{0:.1%} 的 token 不在词表里：词表选对了吗？",
    ),
    "numbers": (
        "mean {0:.4g}, standard deviation {1:.4g}, from {2:.4g} to {3:.4g}",
        "均值 {0:.4g}，标准差 {1:.4g}，从 {2:.4g} 到 {3:.4g}",
    ),
    "labels_a_row": (
        "{0:.2f} labels a row; {1:,} rows ({2:.1%}) have none",
        "每行 {0:.2f} 个标签；{1:,} 行（{2:.1%}）没有标签",
    ),
    "repeated": ("{0:,} repeated texts", "{0:,} 条重复的文本"),
    "conflicting": ("{0:,} texts with conflicting labels", "{0:,} 条文本的标签互相矛盾"),
    "also_in": ("{0:,} rows whose text is also in {1}", "{0:,} 行的文本在 {1} 里也有"),
    "copies": (
        "{0:,} rows are near copies of other texts in train: {1}",
        "{0:,} 行与训练集中的其他文本几乎相同：{1}",
    ),
    "copy": ("{0} of {1}", "{0} 与 {1}"),
}
# What `Columns.described` is made of, which is kept with the table
COLUMNS = {
    "second text '": "第二段文本 '",
    "text '": "文本 '",
    "label '": "标签 '",
    "; not used: ": "；未使用：",
    "; read as ": "；按此格式读取：",
    "; encoding ": "；编码：",
    "; for pairs of texts set --data.text_pair_column ": "；文本对请设置 --data.text_pair_column ",
}


# Returns a text in a language, by its key, with its values
say = partial(language.say, WORDS)


def columns_in(described: str, language: str) -> str:
    """Return the columns of a table, in words."""
    for english, chinese in COLUMNS.items() if language == "zh" else ():
        described = described.replace(english, chinese)
    return described
