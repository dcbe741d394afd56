"""Folders that are a data set: of Hugging Face's `datasets`, on disk or from a hub; a folder for each label.

https://huggingface.co/docs/datasets/repository_structure
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from ..errors import InputError
from .cache import build_once, content_key
from .encodings import file_encoding, without_mark_at_start

# Names of splits in other programs, and what they are called here
SPLIT_NAMES = {"train": "train", "validation": "dev", "valid": "dev", "dev": "dev", "test": "test"}
# A file of one split of a data set from a hub
HUB_FILE = re.compile(rf"({'|'.join(SPLIT_NAMES)})-\d+-of-\d+\.(parquet|arrow)")
TEXT_SUFFIXES = {".txt", ""}
TEXTS_FILE = "texts.jsonl"


def splits_in(folder: Path) -> dict[str, list[str]]:
    """Return the files of each split (train, dev, test) of a folder that `datasets.save_to_disk` wrote, or
    that was copied from a hub; empty for any other folder."""
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        return _saved_splits(folder)
    return _hub_splits(folder)


def _saved_splits(folder: Path) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    # A data set without splits stands in the folder itself
    folders = {"train": folder}
    if (folder / "dataset_dict.json").is_file():
        folders = {}
        for name in SPLIT_NAMES:
            if (folder / name).is_dir():
                folders[name] = folder / name
    for name, split_folder in folders.items():
        files = sorted(map(str, split_folder.glob("*.arrow")))
        if files:
            splits.setdefault(SPLIT_NAMES[name], []).extend(files)
    return splits


def _hub_splits(folder: Path) -> dict[str, list[str]]:
    splits: dict[str, list[str]] = {}
    for path in sorted([*folder.glob("*.*"), *folder.glob("data/*.*")]):
        match = HUB_FILE.fullmatch(path.name)
        if match:
            splits.setdefault(SPLIT_NAMES[match[1]], []).append(str(path))
    return splits


def class_folders(folder: Path) -> list[Path]:
    """Return the text files of a folder that has nothing but a folder of plain texts for each label, two or
    more, sorted by name; empty for any other folder. Names that begin with . or _ do not count."""
    entries = _visible(folder)
    if len(entries) < 2 or not all(map(Path.is_dir, entries)):
        return []
    files = []
    for entry in entries:
        files += _visible(entry)
    if not all(map(_is_text_file, files)):
        return []
    return files


def _is_text_file(path: Path) -> bool:
    return path.is_file() and path.suffix.lower() in TEXT_SUFFIXES


def _visible(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if not entry.name.startswith((".", "_")))


def joined_texts(folder: Path, files: list[Path], cache_dir: str) -> str:
    """Return a file of JSON Lines with the text of each file, its label (the name of its folder) and its
    path. It is made in the cache, once for each state of the files."""
    states = []
    num_bytes = 0
    for path in files:
        state = path.stat()
        states.append([str(path), state.st_size, state.st_mtime_ns])
        num_bytes += state.st_size
    made = Path(cache_dir) / f"texts-{content_key('texts', states)}" / folder.name
    build_once(made.parent, _write_texts, folder.name, files, num_bytes=num_bytes)
    return str(made / TEXTS_FILE)


def _write_texts(made: Path, name: str, files: list[Path]) -> None:
    (made / name).mkdir()
    with (made / name / TEXTS_FILE).open("w", encoding="utf-8") as target:
        for path in files:
            text = _text_of(path)
            row = {"text": text, "label": path.parent.name, "file": str(path)}
            target.write(json.dumps(row, ensure_ascii=False) + "\n")


def _text_of(path: Path) -> str:
    encoding = file_encoding(path, "utf-8")
    try:
        return path.read_text(encoding=without_mark_at_start(encoding))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not valid {encoding} text ({error.reason}); save it as UTF-8") from error
