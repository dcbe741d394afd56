"""Rows as people bring them, and how a file of them is read."""

from pathlib import Path
from types import SimpleNamespace

from app.config.schema import DataConfig
from app.data.dataset import with_sample
from app.data.label_sets import label_form
from app.data.read import ReadOptions
from app.data.table import open_table
from tests.data.test_first_try import texts

NAMES = ["体育", "教育", "科技", "财经"]
ROWS = [(text, NAMES[number % 4]) for number, text in enumerate(texts(80))]


def opened(folder: Path, name: str, content: str | bytes | None = None, **settings) -> SimpleNamespace:
    """Write a file, unless it is there, and return its tables by split and its labels."""
    if content is not None:
        data = content.encode() if isinstance(content, str) else content
        (folder / name).write_bytes(data)
    cache = str(folder / ".cache")
    config = with_sample(DataConfig(train=str(folder / name), cache_dir=cache, **settings))
    options, skip = ReadOptions.of(config), config.on_bad_row == "skip"
    files = {"train": open_table(config.train, options, cache, config.labels, skip_bad_rows=skip)}
    names = label_form(config.task).names(config, files["train"])
    for split in ("dev", "test"):
        if value := getattr(config, split):
            files[split] = open_table(value, options, cache, names)
    return SimpleNamespace(files=files, label_names=names)


def rows_of(dataset, split: str = "train") -> list[tuple[str, str]]:
    table = dataset.files[split]
    return [(table.text(row), table.label_values[label]) for row, label in enumerate(table.labels.tolist())]


def lines(*rows: str) -> str:
    return "\n".join(rows) + "\n"
