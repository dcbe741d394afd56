"""What a run trains on, as one dictionary: its settings, and the content, not the path, of its files. It must
be the same in a run and in the training state from which that resumes, and on all ranks."""

import platform
from pathlib import Path
from typing import Any

from torch import nn

from ..config.schema import Config
from ..data.cache import content_key, file_digest, folder_digest
from ..data.dataset import Dataset
from ..data.tokens import TokenStore
from ..errors import InputError
from ..modes.group import Group
from .run_folder import code_version, flat_settings

# Settings that decide how long a run trains
LENGTH = ("train.epochs", "train.max_steps")
# Settings of a machine, and those of files whose content counts
OF_MACHINE = ("train.device", "train.threads", "train.timeout", "data.format", "model.vocab_file")
# These may change when a run resumes: they say how, or how long, the same job is done. Rows that are skipped
# are not trained on.
FREE_TO_RESUME = frozenset(
    (
        *("steps", *LENGTH, *OF_MACHINE, "data.on_bad_row", "data.cache_dir", "output", "deepspeed"),
        *("train.accumulation_steps", "train.micro_batch_tokens", "train.gradient_checkpointing"),
        *("train.eval_every", "train.save_every", "train.early_stopping", "train.log_every"),
    )
)
# Ranks may differ in these: only rank 0 looks at some.
FREE_ON_RANKS = frozenset(
    (*OF_MACHINE, "output.dir", "output.name", "output.resume", "output.trackers"),
)
# Settings of data that name files
FILES = ("train", "dev", "test")
# It follows from the data, the settings and the version of transformers
TOKENIZER = "the tokenizer (model.vocab_file, the files of model.name, the version of transformers)"
FROZEN = "the weights that are not trained (model.name, train.seed)"
MAX_LISTED = 5


def job_signature(
    config: Config, dataset: Dataset, tokenizer, model: nn.Module, best_metric: str
) -> dict[str, Any]:
    """Return all settings by dotted name, derived ones too, and path and content of each file. It can be
    written as JSON. The mode and the number of processes are not part of it."""
    job = flat_settings(config.to_dict())
    job |= {"train.best_metric": best_metric, "data.labels": dataset.label_names}
    for name, table in dataset.files.items():
        job[f"data.{name}"] = {"path": table.source, "rows": table.num_rows, "content": table.content}
    if fixes := dataset.relabelled:
        job["data.relabel"] = {"path": fixes["source"], "content": fixes["content"]}
    job[TOKENIZER] = content_key(tokenizer.backend_tokenizer.to_str(), tokenizer.truncation_side)
    if name := config.model.name:
        content = f"{name} {getattr(model.model.config, '_commit_hash', None)}"
        if Path(name).is_dir():
            files = sorted([*Path(name).glob("*.safetensors"), *Path(name).glob("*.bin")])
            content = content_key(*(part for path in files for part in (path.name, file_digest(path))))
        job["model.name"] = {"path": name, "content": content}
    if frozen := [value.detach() for value in model.parameters() if not value.requires_grad]:
        # Training states have only what is trained, so a run resumes with these weights only
        job[FROZEN] = content_key(*(value.numpy().tobytes() for value in frozen))
    return job


def changes(
    before: dict, now: dict, free: frozenset[str] = FREE_TO_RESUME, words: str = "was {} and is {}"
) -> list[str]:
    """Return the differences between two jobs, a part of a sentence for each name that is not `free`, nor its
    group. A file differs where its content does, whatever its path."""

    def content(value: Any) -> Any:
        return value["content"] if isinstance(value, dict) and "content" in value else value

    def shown(value: Any) -> str:
        if not (isinstance(value, dict) and "content" in value):
            return str(value)
        rows = f"{value['rows']:,} rows, " if "rows" in value else ""
        return f"{value['path']} ({rows}content {value['content'].rpartition(' ')[2][:8]})"

    pairs = {name: (before.get(name), now.get(name)) for name in {**before, **now}}
    return [
        f"{name} {words.format(*map(shown, pair))}"
        for name, pair in pairs.items()
        if free.isdisjoint((name, name.partition(".")[0])) and content(pair[0]) != content(pair[1])
    ]


def listed_changes(changed: list[str]) -> str:
    more = f", and {len(changed) - MAX_LISTED} more" if len(changed) > MAX_LISTED else ""
    return ", ".join(changed[:MAX_LISTED]) + more


def check_ranks(
    group: Group, mode: str, config: Config, dataset: Dataset, stores: dict[str, TokenStore], job: dict
) -> None:
    """Raise InputError, on every rank alike, unless all ranks do the same job with the same code; every rank
    calls it with its own. Else ranks with an old copy of the data would train to a report that looks right,
    or wait forever."""
    if group.world_size == 1:
        return
    own = job | code_version() | {"mode": mode}
    # A run reads rows, splits and tokens from these folders of the cache
    folders = [dataset.folder, *(folder for table in dataset.tables for folder in table.folders)]
    folders += dict.fromkeys(store.folder for store in stores.values())
    content = content_key(*map(folder_digest, folders))
    own["data.cache_dir"] = {"path": config.data.cache_dir, "content": content}
    if path := config.deepspeed.config:
        own["deepspeed.config"] = {"path": path, "content": content_key(file_digest(Path(path)))}
    ranks = group.gather_values({"host": platform.node(), "job": own})
    for rank, other in enumerate(ranks):
        words = f"is {{}} on rank 0 ({ranks[0]['host']}) and {{}} on rank {rank} ({other['host']})"
        if changed := changes(ranks[0]["job"], other["job"], FREE_ON_RANKS, words):
            raise InputError(
                "all ranks must have the same data, settings and code, but they do not: "
                f"{listed_changes(changed)}; copy the files of rank 0 to the other machines, install the "
                "same versions there, and start all ranks with the same command"
            )
