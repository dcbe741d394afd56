"""The errors of data and settings that people see most, in English and Chinese side by side; the fields are
those of `console_words`."""

from __future__ import annotations

ERRORS = (
    # Where in a file; what follows is a message too
    ("error: {m}", "错误：{m}"),
    ("command line: {m}", "命令行：{m}"),
    ("{1}, line {2}: {m}", "{1} 第 {2} 行：{m}"),
    ("{1}, row {2}: {m}", "{1} 第 {2} 行：{m}"),
    ("{1}, element {2}: {m}", "{1} 第 {2} 个元素：{m}"),
    ("{1}: {m}", "{1}：{m}"),
    ("{m} (or --data.on_bad_row skip)", "{m}（或用 --data.on_bad_row skip 跳过）"),
    (
        "command line: there is no setting '{1}'{n} (--help all lists them)",
        "命令行：没有“{1}”这个设置{n}（--help all 列出全部设置）",
    ),
    ("{1}: there is no setting '{2}'{n}", "{1}：没有“{2}”这个设置{n}"),
    (
        "command line: {1} is a group of settings, not a setting{n} (--help all lists them)",
        "命令行：{1} 是一组设置，不是一个设置{n}（--help all 列出全部设置）",
    ),
    ("{1} must be {w}, found {3}; did you mean {4}?", "{1} 应为：{w}；实际是 {3}，是不是想写 {4}？"),
    ("{1} must be {w}, found {3}", "{1} 应为：{w}；实际是 {3}"),
    ("; did you mean {1}?", "；是不是想写 {1}？"),
    ("there is no such file{n}", "没有这个文件{n}"),
    ("; there is no folder {1}", "；没有 {1} 这个目录"),
    (
        "a file is needed, found a directory; name one of its files: {1}",
        "需要一个文件，实际是目录；请写出其中的一个文件：{1}",
    ),
    ("cannot be read: {1}", "无法读取：{1}"),
    ("there are no rows, the file is empty", "没有数据，文件是空的"),
    ("there are no rows in the file", "文件里没有数据"),
    ("there are no rows in the file, only a header", "文件里只有表头，没有数据"),
    (
        "cannot tell the format from the file's name (known endings: {1}); set --data.format",
        "从文件名看不出格式（认识的后缀：{1}）；请设置 --data.format",
    ),
    ("{1} is needed, found {2}", "需要 {1}，实际是 {2}"),
    (
        "not valid {1} text ({2}); set --data.encoding",
        "不是有效的 {1} 文本（{2}）；请设置 --data.encoding",
    ),
    (
        "cannot tell which column is the {m}: found {2}; set {3} to a name or a number (0 is the first)",
        "看不出哪一列是{m}：有 {2}；请把 {3} 设为列名或列号（0 是第一列）",
    ),
    (
        "cannot tell which column is the {m}: found only one column{2}; add a label to each text; columns "
        "are separated by commas in CSV, by tabs in TSV (--data.format); in an Excel sheet, remove what is "
        "above the column names",
        "看不出哪一列是{m}：只有一列{2}；请给每条文本加上标签；CSV 的列用逗号分隔，TSV 用制表符"
        "（--data.format）；Excel 工作表里请去掉列名上面的内容",
    ),
    (
        "invalid byte {1} in the {m} {2}; set --data.encoding (gb18030 for most older Chinese files, big5 "
        "for traditional ones) or fix the file",
        "{m} {2} 中有无效的字节 {1}；请设置 --data.encoding（较早的中文文件多为 gb18030，繁体多为 big5），"
        "或改正文件",
    ),
    (
        "the record is not valid CSV ({1}); double the quotes inside quoted fields, or set --data.quoting "
        "none if quotes are part of the text",
        "这一条不是有效的 CSV（{1}）；请把引号里的引号写成两个，如果引号是文本的一部分，就设置 "
        "--data.quoting none",
    ),
    (
        "model.name must be {1}; '{2}' could not be loaded: {3}",
        "model.name 应为 {1}；“{2}”无法加载：{3}",
    ),
    ("cannot tell which column is the {m}: found {2}; {3}", "看不出哪一列是{m}：有 {2}；{3}"),
    (
        "there is no {m} column '{1}'{n} (found: {2})",
        "没有名为“{1}”的{m}列{n}（现有：{2}）",
    ),
    (
        "there is no {m} column {1}; the rows have {2} columns, numbered from 0",
        "没有第 {1} 列可作{m}；每行有 {2} 列，从 0 开始编号",
    ),
    (
        "cannot tell whether this is a header: found '{1}', a usual column name, in {2}; set --data.header "
        "true or false",
        "看不出这是不是表头：{2} 中有常见的列名“{1}”；请设置 --data.header true 或 false",
    ),
    (
        "cannot tell whether this is a header: no other row has the label {1}; set --data.header true, or "
        "false where it is a row",
        "看不出这是不是表头：没有别的行有标签 {1}；是表头就设置 --data.header true，是数据就设为 false",
    ),
    ("the {m} is empty, found {1}; fill it in or remove the row", "{m}是空的（{1}）；请填写或删除这一行"),
    ("the {m} is empty; fill it in or remove the row", "{m}是空的；请填写或删除这一行"),
    (
        "the {m} must be a string, found {1}; fix the row or set --data.{2}",
        "{m}必须是字符串，实际是 {1}；请改正这一行，或设置 --data.{2}",
    ),
    (
        "{1} columns are needed as in the first row, found {2}: {3}; remove extra separators from the text "
        "(or, in CSV, enclose it in double quotes) or fill in what is missing",
        "应与第一行一样有 {1} 列，实际有 {2} 列：{3}；请去掉文本里多余的分隔符"
        "（CSV 里可以用双引号括起来），或补上缺少的内容",
    ),
    (
        "unknown label {1}, level {2} {3}{n} (known there: {4}); fix the row or set --data.labels",
        "未知的标签 {1}：第 {2} 级 {3}{n}（这里已知：{4}）；请改正这一行，或设置 --data.labels",
    ),
    (
        "unknown label {1}, level {2} {3}: {4} has none below it; fix the row or set --data.labels",
        "未知的标签 {1}：第 {2} 级 {3}，{4} 下面没有标签；请改正这一行，或设置 --data.labels",
    ),
    (
        "unknown label {1}, which has no level {2} (known there: {3}); fix the row or set --data.labels",
        "未知的标签 {1}：缺少第 {2} 级（这里已知：{3}）；请改正这一行，或设置 --data.labels",
    ),
    (
        "unknown label {1}{n} (known: {2}); fix the row or set --data.labels",
        "未知的标签 {1}{n}（已知：{2}）；请改正这一行，或设置 --data.labels",
    ),
    (
        "at least two different labels are needed, found {1}; is data.label_column the right column?",
        "至少需要两种不同的标签，实际是 {1}；data.label_column 选对了吗？",
    ),
    (
        "every label needs rows in train; label '{1}' is absent from train ({2}); add training rows of it, "
        "or remove it from the data and from data.labels",
        "每个标签在训练集中都要有样本；训练集里没有标签“{1}”（{2}）；请加上它的样本，"
        "或从数据和 data.labels 中去掉它",
    ),
    (
        "a row must have one label, found {1}, and '{2}' in {3} of {4} labels; for several labels a row set "
        "--data.task multi_label --data.label_separator '{5}'; if each of these is one label, list all "
        "labels in --data.labels",
        "每行只能有一个标签，实际是 {1}，{4} 个标签中有 {3} 个含“{2}”；一行有多个标签时请设置 "
        "--data.task multi_label --data.label_separator '{5}'；如果每个都是一个标签，"
        "请在 --data.labels 里列出全部标签",
    ),
    (
        "{1} rows are invalid; fix them, or skip them with --data.on_bad_row skip",
        "有 {1} 行无效；请改正，或用 --data.on_bad_row skip 跳过",
    ),
    ("there are no rows left: all {1} are invalid", "没有剩下的数据：{1} 行全部无效"),
    ("... and {1} more", "……还有 {1} 行"),
    (
        "the train file must keep rows to train on: it has {1}, and dev_size {2} and test_size {3} take {4}; "
        "make them smaller",
        "训练文件要留下用来训练的行：共 {1} 行，dev_size {2} 和 test_size {3} 取走 {4} 行；请改小",
    ),
    (
        "{1} is not empty and holds no run; choose another output.dir",
        "{1} 不是空目录，里面也没有训练；请换一个 output.dir",
    ),
    (
        "a checkpoint must be a folder with config.json, model.safetensors and a tokenizer; {m}",
        "模型检查点必须是一个目录，含 config.json、model.safetensors 和分词器；{m}",
    ),
    ("there is no such folder{n}", "没有这个目录{n}"),
    (
        "there is no finished run in {1}/; train one with python run_single.py, or name a folder with "
        "--checkpoint",
        "{1}/ 里没有完成的训练；请用 python run_single.py 训练一个，或用 --checkpoint 指定目录",
    ),
)
# Rules of settings
RULES = (
    ("{w}, or auto", "{w}，或 auto"),
    ("at least {1}", "至少 {1}"),
    ("at least {1}, or null", "至少 {1}，或为 null"),
    ("above {1}", "大于 {1}"),
    ("from {1} to {2}", "{1} 到 {2}"),
    ("one of {1}", "{1} 之一"),
    ("left out unless {1} is {2}", "不设置（{1} 为 {2} 时才能用）"),
    ("left out with {1}", "不设置（已有 {1}）"),
)
