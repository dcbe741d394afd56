"""What makes two jobs the same: their settings, and the content, not the path, of their files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..config.schema import Config
from ..data.cache import content_key, file_digest
from ..data.dataset import Dataset
from .assembly import Components

# Settings that decide how long a run trains
LENGTH = ("epochs", "max_steps")
# Settings that may change when a run resumes: they decide how, or how long, the same job is done.
FREE = (
    *LENGTH,
    *(
        "accumulation_steps",
        "micro_batch_size",
        "eval_batch_size",
        "collate",
        "attention",
        "cuda_graphs",
        "joint_casts",
    ),
    *("eval_every", "save_every", "early_stopping", "log_every", "on_nonfinite", "timeout", "deterministic"),
    *("device", "threads", "nprocs"),
)
# Settings of data that name files
FILES = ("train", "dev", "test")
# The format is part of what `Table.content` says of a file, and rows that are skipped are not trained on.
FREE_DATA = (*FILES, "relabel", "format", "on_bad_row", "cache_dir")
TOKENIZER = "tokenizer"
WEIGHTS = ("*.safetensors", "*.bin")
# Changes that a message lists
MANY = 5


def job_signature(config: Config, components: Components, total_steps: int) -> dict:
    """Return what a training state keeps of its job. Mode and number of processes are not part of it.

    All but `steps` must be the same for a run to resume, see `changes`.
    """
    settings = {f"train.{key}": value for key, value in asdict(config.train).items() if key not in FREE}
    settings |= {f"model.{key}": value for key, value in asdict(config.model).items() if key != "vocab_file"}
    settings |= {f"data.{key}": value for key, value in asdict(config.data).items() if key not in FREE_DATA}
    settings |= {
        "train.best_metric": components.outcome.best_metric,
        "data.labels": components.dataset.label_names,
    }
    return settings | contents(config, components) | {"steps": total_steps}


def earlier_names(components: Components) -> dict:
    """Return what earlier versions kept of the data of a job: the names of its folders in their cache."""
    return {"data": components.dataset.earlier_name, "tokens": components.stores["train"].earlier_name}


def contents(config: Config, components: Components) -> dict:
    """Return path and content of each file that a job reads, and the content of its tokenizer, by setting."""
    files = components.dataset.files
    found: dict[str, Any] = {
        f"data.{name}": {
            "path": files[name].source,
            "rows": files[name].num_rows,
            "content": files[name].content,
        }
        if name in files
        else None
        for name in FILES
    }
    found["data.relabel"] = fixes_of(components.dataset)
    tokenizer = components.tokenizer
    found[TOKENIZER] = content_key(tokenizer.backend_tokenizer.to_str(), tokenizer.truncation_side)
    if config.model.name is not None:
        found["model.name"] = {
            "path": config.model.name,
            "content": checkpoint_content(components, config.model.name),
        }
    return found


def fixes_of(dataset: Dataset) -> dict | None:
    """Return path and content of the corrected labels of a dataset, where it has some."""
    if dataset.relabelled is None:
        return None
    return {"path": dataset.relabelled["source"], "content": dataset.fixes_content}


def checkpoint_content(components: Components, name: str) -> str:
    """Return a digest of the weights of a pretrained model: of its files, or on the hub, its name and commit."""
    folder = Path(name)
    if not folder.is_dir():
        return f"{name} {getattr(components.model.model.config, '_commit_hash', None)}"
    files = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern) if path.is_file())
    return content_key(*(part for path in files for part in (path.name, file_digest(path))))


def changes(saved: dict, job: dict) -> list[str]:
    """Return what has changed between two jobs, one sentence part for each setting; all but their number of
    steps counts.

    A setting that the saved job does not know has its default.
    """
    defaults = {
        f"{group}.{key}": value
        for group, values in Config().to_dict().items()
        for key, value in values.items()
    }
    known = {key: value for key, value in job.items() if key != "steps" and (key in saved or key in defaults)}
    different = [
        key for key, value in known.items() if not is_same(key, saved.get(key, defaults.get(key)), value)
    ]
    # Else it is another one because of another setting
    if different != [TOKENIZER]:
        different = [key for key in different if key != TOKENIZER]
    return [describe_change(key, saved.get(key, defaults.get(key)), job[key]) for key in different]


def is_same(key: str, before: Any, now: Any) -> bool:
    """Return whether a setting has the same value, or names files of the same content."""
    if key == "model.name" and path_of(before) == path_of(now):
        # A run resumes with its own weights, whatever those that it began with are now
        return True
    if isinstance(now, dict) and "content" in now:
        return before.get("content") == now["content"] if isinstance(before, dict) else before == now["path"]
    return before == now


def describe_change(key: str, before: Any, now: Any) -> str:
    """Return a setting that has changed, with both values."""
    if key == TOKENIZER:
        return (
            "the tokenizer is not the same (model.vocab_file, the files of model.name, or the version of "
            "transformers or "
            "tokenizers)"
        )
    what = "the content of " if path_of(before) == path_of(now) and path_of(now) is not None else ""
    return f"{what}{key} was {shown(before)} and is {shown(now)}"


def path_of(value: Any) -> Any:
    """Return the path or name in the value of a setting that names files."""
    return value.get("path") if isinstance(value, dict) else value


def shown(value: Any) -> str:
    """Return the value of a setting for a message."""
    if isinstance(value, dict) and "content" in value:
        rows = f"{value['rows']:,} rows, " if "rows" in value else ""
        return f"{value['path']} ({rows}content {value['content'].rpartition(' ')[2][:8]})"
    return str(value)


def listed_changes(found: list[str]) -> str:
    """Return changes for a message."""
    more = f", and {len(found) - MANY} more" if len(found) > MANY else ""
    return ", ".join(found[:MANY]) + more
