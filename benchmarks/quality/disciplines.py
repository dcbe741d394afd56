"""csldcp with a hierarchy: its 67 disciplines below the 13 fields of study of China's degree catalogue.

Run with the folder of fewclue_csldcp and a new one, it writes train.jsonl (train_few_all), dev.jsonl
(the first 500 rows of dev_few_all) and test.jsonl (test_public), with labels such as 工学-光学工程.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

FIELDS = {
    "哲学": "哲学",
    "经济学": "理论经济学 应用经济学",
    "法学": "法学 政治学 社会学 民族学",
    "教育学": "教育学 心理学 体育学",
    "文学": "中国语言文学 新闻传播学",
    "历史学": "历史学",
    "理学": "数学 物理学 化学/化学工程与技术 天文学 地理学 大气科学 海洋科学 地球物理学 "
    "地质学/地质资源与地质工程 生物学/生物科学与工程",
    "工学": "力学 材料科学与工程 水利工程 食品科学与工程 核科学与技术 石油与天然气工程 信息与通信工程 "
    "电气工程 航空宇航科学与技术 船舶与海洋工程 计算机科学与技术 冶金工程 交通运输工程 动力工程及工程热物理 "
    "纺织科学与工程 建筑学 环境科学与工程 机械工程 土木工程 光学工程 兵器科学与技术 矿业工程 电子科学与技术 "
    "测绘科学与技术 控制科学与工程 农业工程",
    "农学": "作物学 畜牧学/兽医学 园艺学 水产 林学/林业工程 农业资源利用 植物保护",
    "医学": "口腔医学 药学 公共卫生与预防医学 中医学/中药学 基础医学/临床医学",
    "军事学": "军事学",
    "管理学": "农林经济管理 图书馆、情报与档案管理 公共管理 工商管理",
    "艺术学": "艺术学",
}
FIELD_OF = {discipline: field for field, of in FIELDS.items() for discipline in of.split()}
FILES = {"train": ("train_few_all", None), "dev": ("dev_few_all", 500), "test": ("test_public", None)}


def write_paths(source: Path, out: Path) -> None:
    """Write the files of csldcp with paths as labels."""
    out.mkdir(parents=True, exist_ok=True)
    for split, (name, rows) in FILES.items():
        lines = (source / f"{name}.json").read_text(encoding="utf-8").splitlines()[:rows]
        with (out / f"{split}.jsonl").open("w", encoding="utf-8") as file:
            for row in map(json.loads, lines):
                label = f"{FIELD_OF[row['label']]}-{row['label']}"
                file.write(json.dumps({"text": row["content"], "label": label}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    write_paths(Path(sys.argv[1]), Path(sys.argv[2]))
