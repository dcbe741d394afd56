"""Before the first step: every rank must have the same data, settings, model and code as rank 0.

Otherwise ranks with, for instance, an old copy of the data would train to a report that looks right, or wait
for each other.
"""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

from ..checkpoints.environment import code_version
from ..config.schema import Config
from ..data.cache import content_key, file_digest
from ..errors import InputError
from ..runtime.group import Group
from .assembly import Components
from .job_signature import FILES, MANY, TOKENIZER, contents, shown

# Settings that may differ between ranks: those of a machine, and those that only rank 0 looks at. Of files,
# the content counts.
FREE = (
    *("train.device", "train.threads", "train.nprocs", "train.timeout"),
    *("data.format", "data.labels", "data.cache_dir", "model.vocab_file"),
    *(
        f"output.{name}"
        for name in (
            "dir",
            "name",
            "overwrite",
            "resume",
            "keep_states",
            "tensorboard",
            "trackers",
            "project",
            "progress",
        )
    ),
)


def check_ranks(group: Group, config: Config, mode: str, components: Components) -> None:
    """Raise InputError, on every rank alike, unless all ranks do the same job; every rank calls it."""
    if group.world_size == 1:
        return
    own = rank_signature(config, mode, components)
    ranks = group.gather_values({"host": platform.node(), "signature": own})
    found = differences([rank["signature"] for rank in ranks], [rank["host"] for rank in ranks])
    if found:
        more = f"\n  ... and {len(found) - MANY} more" if len(found) > MANY else ""
        raise InputError(
            "all ranks must have the same data, settings and code, but they do not:\n"
            + "".join(f"  {line}\n" for line in found[:MANY]).rstrip()
            + f"{more}\ncopy the files of rank 0 to the other machines, install the same versions there, and start all "
            "ranks with the same command"
        )


def rank_signature(config: Config, mode: str, components: Components) -> dict[str, Any]:
    """Return what must be the same on all ranks, by the name that messages use; it can be written as JSON."""
    found: dict[str, Any] = {"the mode": mode}
    for group, values in config.to_dict().items():
        found |= {f"{group}.{key}": value for key, value in values.items() if f"{group}.{key}" not in FREE}
    found |= {f"data.{name}": None for name in FILES} | {"the labels": components.dataset.label_names}
    found |= contents(config, components)
    if config.deepspeed.config is not None:
        content = content_key(file_digest(Path(config.deepspeed.config)))
        found["deepspeed.config"] = {"path": config.deepspeed.config, "content": content}
    return found | {f"the version of {name}": version for name, version in code_version().items()}


def differences(signatures: list[dict[str, Any]], hosts: list[str]) -> list[str]:
    """Return a sentence for each name under which ranks have other values than rank 0, with the first such
    rank."""
    names = list(dict.fromkeys(name for signature in signatures for name in signature))
    others: dict[str, list[int]] = {}
    for name in names:
        values = [content_of(signature.get(name)) for signature in signatures]
        different = [rank for rank, value in enumerate(values) if value != values[0]]
        if different:
            others[name] = different
    # These follow from the data and the settings
    if others.keys() - {TOKENIZER, "the labels"}:
        others = {name: ranks for name, ranks in others.items() if name not in (TOKENIZER, "the labels")}
    return [
        f"{name}: rank 0 ({hosts[0]}) has {shown(signatures[0].get(name))}, rank {ranks[0]} "
        f"({hosts[ranks[0]]}) has "
        f"{shown(signatures[ranks[0]].get(name))}{f'; {len(ranks)} ranks differ from rank 0' if len(ranks) > 1 else ''}"
        for name, ranks in others.items()
    ]


def content_of(value: Any) -> Any:
    """Return the content of a file, without its path, and any other value as it is."""
    return value["content"] if isinstance(value, dict) and "content" in value else value
