"""What a run trains on: all its settings and the content of its files; and how two such jobs differ."""

from pathlib import Path
from typing import Any

from ..config.schema import Config
from ..data.cache import content_key, files_digest
from ..data.dataset import Dataset
from ..model.classifier import PackedModel
from .run_history import flat_settings

# Settings that decide how long a run trains
LENGTH = ("train.epochs", "train.max_steps")
# Settings of a machine, and those of files whose content counts
OF_MACHINE = ("train.device", "train.threads", "train.timeout", "data.format", "model.vocab_file")
# Training states of versions whose masks depended on the rank have no such name
MASKS = "the masks of dropout"
MASKS_BY_ROW = "by row"
# These may change when a run resumes: they say how, or how long, the same job is done.
FREE_TO_RESUME = frozenset(
    (
        *OF_MACHINE,
        *LENGTH,
        "steps",
        MASKS,
        "output",
        "deepspeed",
        "data.on_bad_row",
        "data.cache_dir",
        "train.accumulation_steps",
        "train.micro_batch_tokens",
        "train.gradient_checkpointing",
        "train.eval_every",
        "train.save_every",
        "train.early_stopping",
        "train.log_every",
    )
)
# It follows from the data, the settings and the version of transformers
TOKENIZER = "the tokenizer (model.vocab_file, the files of model.name, the version of transformers)"
TARGETS = "the targets of rows with probabilities or votes"
FROZEN = "the weights that are not trained (model.name, train.seed)"
MAX_LISTED = 5  # changes that an error names


def job_signature(
    config: Config, dataset: Dataset, tokenizer, model: PackedModel, best_metric: str
) -> dict[str, Any]:
    """Return all settings by dotted name, derived ones too, and path and content of each file. It can be
    written as JSON. The mode and the number of processes are not part of it."""
    job = flat_settings(config.to_dict())
    job["train.best_metric"] = best_metric
    job[MASKS] = MASKS_BY_ROW
    job["data.labels"] = dataset.label_names
    job |= data_files(dataset)
    if dataset.splits["train"].targets is not None:
        # Earlier versions trained such rows on their label
        job[TARGETS] = "distributions of labels"
    job[TOKENIZER] = content_key(tokenizer.backend_tokenizer.to_str(), tokenizer.truncation_side)
    name = config.model.name
    if not config.model.has_random_weights:
        content = f"{name} {getattr(model.model.config, '_commit_hash', None)}"
        if Path(name).is_dir():
            content = files_digest(Path(name), "*.safetensors", "*.bin")
        job["model.name"] = {"path": name, "content": content}
    frozen = [value.detach() for value in model.parameters() if not value.requires_grad]
    if frozen:
        # Training states have only what is trained, so a run resumes with these weights only
        job[FROZEN] = content_key(*[value.numpy().tobytes() for value in frozen])
    return job


def data_files(dataset: Dataset) -> dict[str, dict]:
    """Return path and content of the files of a dataset, by the settings that name them."""
    files: dict[str, dict] = {}
    for name, table in dataset.files.items():
        files[f"data.{name}"] = {"path": table.source, "rows": table.num_rows, "content": table.content}
    fixes = dataset.relabelled
    if fixes:
        files["data.relabel"] = {"path": fixes["source"], "content": fixes["content"]}
    return files


def model_name_of(job: dict) -> str | None:
    """Return `model.name` of a job as the user wrote it."""
    name = job.get("model.name")
    if isinstance(name, dict):
        return name["path"]
    return name


def describe_changes(
    before: dict,
    now: dict,
    free: frozenset[str] = FREE_TO_RESUME,
    template: str = "was {} and is {}",
) -> list[str]:
    """Return the differences between two jobs, a part of a sentence for each name that is not `free`, nor its
    group. A file differs where its content does, whatever its path."""
    changes = []
    for name in before | now:
        group = name.partition(".")[0]
        if name in free or group in free:
            continue
        old_value = before.get(name)
        new_value = now.get(name)
        if _content(old_value) != _content(new_value):
            words = template.format(_describe_value(old_value), _describe_value(new_value))
            changes.append(f"{name} {words}")
    return changes


def _is_file(value: Any) -> bool:
    return isinstance(value, dict) and "content" in value


def _content(value: Any) -> Any:
    """Return what counts of a value of a job: of a file its content."""
    if _is_file(value):
        return value["content"]
    return value


def _describe_value(value: Any) -> str:
    if not _is_file(value):
        return str(value)
    content = str(value["content"]).rpartition(" ")[2][:8]
    details = f"content {content}"
    if isinstance(value.get("rows"), int):
        details = f"{value['rows']:,} rows, {details}"
    return f"{value.get('path')} ({details})"


def join_changes(changes: list[str]) -> str:
    """Return changes in one line, the first MAX_LISTED of them."""
    text = ", ".join(changes[:MAX_LISTED])
    num_left_out = len(changes) - MAX_LISTED
    if num_left_out > 0:
        text += f", and {num_left_out} more"
    return text
