"""What a run trains on: its settings, and the content, not the path, of its files. A resumed run compares it
with that of its training state, and each rank with that of rank 0."""

from pathlib import Path
from typing import Any

from torch import nn

from ..config.schema import Config
from ..data.cache import content_key, file_digest
from .build import Components

# Settings that decide how long a run trains
LENGTH = ("train.epochs", "train.max_steps")
# Settings that may change when a run resumes: they decide how, or how long, the same job is done
FREE_TRAIN = (
    *("accumulation_steps", "micro_batch_tokens", "gradient_checkpointing"),
    *("eval_every", "save_every", "early_stopping", "log_every", "timeout"),
    *("device", "threads"),
)
# The format is part of a file's content, and rows that are skipped are not trained on
FREE_TO_RESUME = frozenset(
    (
        *LENGTH,
        *(f"train.{name}" for name in FREE_TRAIN),
        *(
            "data.format",
            "data.on_bad_row",
            "data.cache_dir",
            "model.vocab_file",
        ),
    )
)
GROUPS = ("data", "model", "train")
# Settings of data that name files
FILES = ("train", "dev", "test")
TOKENIZER = "tokenizer"
BASE = "model.base"
WEIGHTS = ("*.safetensors", "*.bin")
# Changes that a message lists
MAX_LISTED = 5


def job_signature(config: Config, components: Components) -> dict[str, Any]:
    """Return all settings by dotted name, derived ones too, and path and content of each file. It can be
    written as JSON. The mode and the number of processes are not part of it."""
    signature: dict[str, Any] = flat_settings(config)
    signature["train.best_metric"] = components.task.best_metric
    signature["data.labels"] = components.dataset.label_names
    files = components.dataset.files
    for name in FILES:
        table = files.get(name)
        signature[f"data.{name}"] = table and {
            "path": table.source,
            "rows": table.num_rows,
            "content": table.content,
        }
    if fixes := components.dataset.relabelled:
        content = components.dataset.fixes_content
        signature["data.relabel"] = {"path": fixes["source"], "content": content}
    tokenizer = components.tokenizer
    signature[TOKENIZER] = content_key(tokenizer.backend_tokenizer.to_str(), tokenizer.truncation_side)
    if config.model.name is not None:
        content = checkpoint_content(components, config.model.name)
        signature["model.name"] = {"path": config.model.name, "content": content}
    if config.model.lora_rank or config.model.freeze:
        # Training states have only what is trained, so a run resumes with these weights only
        base = signature["model.name"] or {
            "path": "random weights",
            "content": frozen_content(components.model),
        }
        signature[BASE] = base
    return signature


def flat_settings(config: Config) -> dict[str, Any]:
    """Return all settings by their dotted names."""
    values = config.to_dict()
    return {f"{group}.{key}": value for group, settings in values.items() for key, value in settings.items()}


def checkpoint_content(components: Components, name: str) -> str:
    """Return a digest of the weights of a pretrained model: of its files, or on the hub name and commit."""
    folder = Path(name)
    if not folder.is_dir():
        return f"{name} {getattr(components.model.model.config, '_commit_hash', None)}"
    files = sorted(path for pattern in WEIGHTS for path in folder.glob(pattern) if path.is_file())
    return content_key(*(part for path in files for part in (path.name, file_digest(path))))


def frozen_content(model: nn.Module) -> str:
    """Return a digest of the weights of a model that are not trained."""
    frozen = (value.detach() for value in model.parameters() if not value.requires_grad)
    return content_key(*(value.numpy().tobytes() for value in frozen))


def changes(saved: dict, job: dict, free: frozenset[str] = FREE_TO_RESUME) -> list[str]:
    """Return what has changed between two jobs, one sentence part for each setting that is not `free`."""
    names = [
        name
        for name in {**saved, **job}
        if name not in free and (name == TOKENIZER or name.partition(".")[0] in GROUPS)
    ]
    different = [name for name in names if not is_same(name, saved.get(name), job.get(name))]
    # Else the tokenizer is another one because of another setting
    if different != [TOKENIZER]:
        different = [name for name in different if name != TOKENIZER]
    return [describe_change(name, saved.get(name), job.get(name)) for name in different]


def is_same(name: str, before: Any, now: Any) -> bool:
    """Return whether a setting has the same value, or names files of the same content."""
    if name == "model.name" and path_of(before) == path_of(now):
        # A run resumes with its own weights, whatever those that it began with are now
        return True
    return content_of(before) == content_of(now)


def content_of(value: Any) -> Any:
    """Return the content of a file, without its path, and any other value as it is."""
    return value["content"] if isinstance(value, dict) and "content" in value else value


def path_of(value: Any) -> Any:
    """Return the path of a file, and any other value as it is."""
    return value["path"] if isinstance(value, dict) and "content" in value else value


def describe_change(name: str, before: Any, now: Any) -> str:
    """Return a setting that has changed, with both values."""
    if name == TOKENIZER:
        return (
            "the tokenizer is not the same (model.vocab_file, the files of model.name, or the version of "
            "transformers or tokenizers)"
        )
    what = "the content of " if path_of(before) == path_of(now) and path_of(now) is not None else ""
    return f"{what}{name} was {shown(before)} and is {shown(now)}"


def shown(value: Any) -> str:
    """Return the value of a setting for a message."""
    if isinstance(value, dict) and "content" in value:
        rows = f"{value['rows']:,} rows, " if "rows" in value else ""
        return f"{value['path']} ({rows}content {value['content'].rpartition(' ')[2][:8]})"
    return str(value)


def listed_changes(changed: list[str]) -> str:
    """Return changes for a message."""
    more = f", and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
    return ", ".join(changed[:MAX_LISTED]) + more
