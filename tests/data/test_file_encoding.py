"""Files in GB18030 without a setting, and files that must not be read as such."""

import json
import random

import pytest

from app.config.schema import DataConfig
from app.data.dataset import open_dataset
from app.data.files import file_encoding
from app.data.report import _table_lines
from app.errors import InputError
from app.prediction.sources import open_file
from tests.spoken import spoken_in

WORDS = (
    "今天",
    "真好",
    "太慢了",
    "味道",
    "老板人不错",
    "送餐",
    "时间",
    "价格",
    "推荐",
    "失望",
    "再来",
    "😀",
    "ＡＢ",
)
ROWS = [("，".join(random.Random(n).sample(WORDS, 4)) + f"第{n}次", f"{n % 2}") for n in range(60)]
CONTENTS = {
    "a.csv": "内容,标签\n" + "".join(f"{text},{label}\n" for text, label in ROWS),
    "a.tsv": "".join(f"{text}\t{label}\n" for text, label in ROWS),
    "a.txt": "".join(f"{text}\t{label}\n" for text, label in ROWS),
    "a.jsonl": "".join(json.dumps({"text": t, "label": n}, ensure_ascii=False) + "\n" for t, n in ROWS),
}
TRADITIONAL = "今天天氣真好\t1\n這家餐廳的服務態度很差\t0\n臺灣的夜市小吃種類很多\t1\n手機的螢幕有刮痕\t0\n"
ASCII = "ok\t1\n" * 300_000


@pytest.mark.parametrize("name", CONTENTS)
def test_a_file_in_gb18030_is_read_as_the_same_one_in_utf8(tmp_path, name):
    found = {}
    for encoding in ("utf-8", "gb18030"):
        path = tmp_path / encoding / name
        path.parent.mkdir()
        path.write_text(CONTENTS[name], encoding=encoding)
        assert file_encoding(path, "utf-8") == encoding
        table = open_dataset(DataConfig(train=str(path), cache_dir=str(tmp_path / "cache"))).files["train"]
        assert ("; encoding gb18030" in table.columns) == (encoding == "gb18030")
        # It is read again, by `predict` and `suggest`, as each file is, whatever the run's were
        column = {"a.csv": "内容", "a.jsonl": "text"}.get(name, 0)
        source = open_file(str(path), {"train": str(path), "encoding": "utf-8", "text_column": column}, {})
        rows = [table.text(row) for row in range(table.num_rows)]
        assert [row.text for row in source.rows("error")] == rows
        assert ("encoding gb18030" in source.summary()) == (encoding == "gb18030")
        found[encoding] = rows, table.label_values
    assert found["gb18030"] == found["utf-8"]
    assert found["utf-8"][0] == [text for text, _ in ROWS]
    assert spoken_in("zh", _table_lines, table)[0].endswith("；编码：gb18030）")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (CONTENTS["a.tsv"].encode().replace("第9次".encode(), b"\xff"), 10),
        (CONTENTS["a.tsv"].encode("gb18030").replace("第9次".encode("gb18030"), b"\xff"), 1),
        # The other way round, lines in GB18030 are few
        (CONTENTS["a.tsv"].encode() + "真好\t1\n".encode("gb18030"), 61),
        (CONTENTS["a.tsv"].encode("gb18030") + "真好\t1\n".encode(), 1),
        (b"\xef\xbb\xbf" + CONTENTS["a.tsv"].encode("gb18030"), 1),
        (TRADITIONAL.encode("big5"), 1),
        ("오늘 날씨가 정말 좋아요\t1\n".encode("euc_kr"), 1),
        ("今日はとても天気がいいです\t1\n".encode("euc_jp"), 1),
        ("schön für Übergröße\t1\n".encode("latin-1"), 1),
    ],
    ids=["bad byte", "bad byte in GBK",
         "lines of GBK", "lines of UTF-8", "mark", "Big5", "Korean", "Japanese",
         "German"],
)  # fmt: skip
def test_other_files_are_errors_with_their_line(tmp_path, content, line):
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(
        InputError, match=rf"a\.tsv, line {line}: (.|\n)*invalid byte.*--data\.encoding"
    ) as error:
        list(open_file(str(path), {"text_column": 0}, {}).rows("error"))
    assert "big5" in str(error.value)


def test_what_comes_after_much_ascii_counts_too(tmp_path):
    path = tmp_path / "a.tsv"
    path.write_bytes(ASCII.encode() + CONTENTS["a.tsv"].encode("gb18030"))
    assert file_encoding(path, "UTF8") == "gb18030"
    assert file_encoding(path, "big5") == "big5"
    path.write_text(ASCII)
    assert file_encoding(path, "utf-8") == "utf-8"
