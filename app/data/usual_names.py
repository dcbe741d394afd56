"""The names that columns of texts and labels usually have."""

# The names of the first and the second text of a pair
PAIR_NAMES = {
    "text_a": "text_b",
    "sentence1": "sentence2",
    "sentence_a": "sentence_b",
    "text1": "text2",
    "question1": "question2",
    "premise": "hypothesis",
    "前提": "假设",
    "句子1": "句子2",
    "文本1": "文本2",
    "问题1": "问题2",
}
# The first of these names that a file has is its text
TEXT_NAMES = (
    *("text", "text_a", "sentence", "sentence1", "review", "content", "title", "comment", "query"),
    *("文本", "内容", "评论", "标题", "句子", "正文", "评论内容", "评价内容", "文本内容", "微博内容", "评价"),
    *("微博", "反馈", "留言", "弹幕", "原文", "语句", "新闻标题", "reviews", "comments", "tweet", "message"),
    *PAIR_NAMES,
)
# The first of LABEL_NAMES that a file has is its label, or else the only one of OTHER_LABEL_NAMES: where two
# of these are there, it is not clear which one is meant
LABEL_NAMES = (
    *("label", "labels", "label_id", "class", "category", "target", "sentiment", "emotion"),
    *("标签", "类别", "情感", "分类"),
)
OTHER_LABEL_NAMES = (
    *("rating", "stars", "star", "score", "polarity", "intent", "topic", "label_name", "tag", "tags"),
    *("评分", "星级", "情绪", "极性", "情感倾向", "情感极性", "情感分类", "情感类别", "情感标签", "倾向"),
    *("意图", "主题", "类型", "打分", "分数", "等级", "标记"),
)
