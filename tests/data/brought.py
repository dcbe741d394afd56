"""Rows as people bring them, and how a file of them is read."""

import random
from pathlib import Path
from types import SimpleNamespace

from app.config.schema import DataConfig
from app.data.dataset import with_sample
from app.data.labels import label_form
from app.data.read import ReadOptions
from app.data.table import open_table

WORDS = (
    *("外卖", "味道", "服务", "送餐", "老板", "价格", "米饭", "牛肉", "包装", "速度", "态度", "分量"),
    *("很好", "不错", "太慢", "难吃", "一般", "推荐", "再来", "失望"),
)
NAMES = ["体育", "教育", "科技", "财经"]


def texts(count: int, seed: int = 0) -> list[str]:
    """Return different texts."""
    chosen = random.Random(seed)
    return [f"{'，'.join(chosen.sample(WORDS, 4))}第{number}次" for number in range(count)]


ROWS = [(text, NAMES[number % 4]) for number, text in enumerate(texts(80))]


def opened(folder: Path, name: str, content: str | bytes | None = None, **settings) -> SimpleNamespace:
    """Write a file, unless it is there, and return its tables by split and its labels."""
    if content is not None:
        (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    cache = settings.pop("cache_dir", str(folder / ".cache"))
    config = with_sample(DataConfig(train=str(folder / name), cache_dir=cache, **settings))
    options, skip = ReadOptions.of(config), config.on_bad_row == "skip"
    files = {"train": open_table(config.train, options, cache, label_names=config.labels, skip_bad_rows=skip)}
    names = label_form(config.task).names(config, files["train"])
    for split in ("dev", "test"):
        if value := getattr(config, split):
            files[split] = open_table(value, options, cache, label_names=names)
    return SimpleNamespace(files=files, label_names=names, train=files["train"])


def rows_of(dataset, split: str = "train") -> list[tuple[str, str]]:
    table = dataset.files[split]
    return [(table.text(row), table.label_values[label]) for row, label in enumerate(table.labels.tolist())]


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"
