"""Before the first step: every rank must have the same data, settings, model and code as rank 0. Else ranks
with an old copy of the data would train to a report that looks right, or wait forever."""

import platform
from pathlib import Path
from typing import Any

from ..checkpoints.run_history import code_version
from ..config.schema import Config
from ..data.cache import content_key, file_digest
from ..errors import InputError
from ..runtime.group import Group
from .build import Components, cache_content
from .job_signature import MAX_LISTED, TOKENIZER, content_of, shown

# Settings of a machine
OF_A_MACHINE = (
    *("train.device", "train.threads", "train.timeout"),
    *("data.format", "data.cache_dir", "model.vocab_file"),
)
# Settings that only rank 0 looks at
OF_RANK_0 = ("dir", "name", "resume", "trackers")
FREE = frozenset((*OF_A_MACHINE, *(f"output.{name}" for name in OF_RANK_0)))
# These follow from the data and the settings
DERIVED = {TOKENIZER, "data.labels", "data.cache_dir"}


def check_ranks(group: Group, config: Config, mode: str, components: Components, job: dict) -> None:
    """Raise InputError, on every rank alike, unless all ranks do the same job; every rank calls it. `job` is
    the rank's own, as `job_signature` returns it."""
    if group.world_size == 1:
        return
    own = rank_signature(config, mode, components, job)
    ranks = group.gather_values({"host": platform.node(), "signature": own})
    lines = differences([rank["signature"] for rank in ranks], [rank["host"] for rank in ranks])
    if lines:
        listed = "".join(f"  {line}\n" for line in lines[:MAX_LISTED]).rstrip()
        more = f"\n  ... and {len(lines) - MAX_LISTED} more" if len(lines) > MAX_LISTED else ""
        raise InputError(
            f"all ranks must have the same data, settings and code, but they do not:\n{listed}{more}\ncopy "
            "the files of rank 0 to the other machines, install the same versions there, and start all "
            "ranks with the same command"
        )


def rank_signature(config: Config, mode: str, components: Components, job: dict) -> dict[str, Any]:
    """Return what must be the same on all ranks, by the name that messages use; it can be written as JSON."""
    signature = {"the mode": mode} | {name: value for name, value in job.items() if name not in FREE}
    signature["data.cache_dir"] = {"path": config.data.cache_dir, "content": cache_content(components)}
    if config.deepspeed.config is not None:
        content = content_key(file_digest(Path(config.deepspeed.config)))
        signature["deepspeed.config"] = {"path": config.deepspeed.config, "content": content}
    return signature | {f"the version of {name}": version for name, version in code_version().items()}


def differences(signatures: list[dict[str, Any]], hosts: list[str]) -> list[str]:
    """Return a sentence for each name under which a rank has another value than rank 0, the first such."""
    names = list(dict.fromkeys(name for signature in signatures for name in signature))
    others: dict[str, list[int]] = {}
    for name in names:
        values = [content_of(signature.get(name)) for signature in signatures]
        different = [rank for rank, value in enumerate(values) if value != values[0]]
        if different:
            others[name] = different
    if others.keys() - DERIVED:
        others = {name: ranks for name, ranks in others.items() if name not in DERIVED}
    return [describe_difference(name, ranks, signatures, hosts) for name, ranks in others.items()]


def describe_difference(
    name: str, ranks: list[int], signatures: list[dict[str, Any]], hosts: list[str]
) -> str:
    """Return a sentence about what rank 0 and the first of the differing `ranks` have under a name."""
    (own, other), rank = (signatures[number].get(name) for number in (0, ranks[0])), ranks[0]
    count = f"; {len(ranks)} ranks differ from rank 0" if len(ranks) > 1 else ""
    return (
        f"{name}: rank 0 ({hosts[0]}) has {shown(own)}, rank {rank} ({hosts[rank]}) has {shown(other)}{count}"
    )
