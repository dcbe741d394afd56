"""All ranks of a run must do the same job, with the same data, settings and code."""

import platform
from pathlib import Path

from ..config.schema import Config
from ..data.cache import content_key, file_digest, files_digest
from ..data.dataset import Dataset
from ..data.tokens import TokenStore
from ..errors import InputError
from ..modes.group import Group
from .job import OF_MACHINE, describe_changes, join_changes
from .run_history import code_version

# Ranks may differ in settings of their machine, and in settings that only rank 0 uses
FREE_ON_RANKS = frozenset((*OF_MACHINE, "output.dir", "output.name", "output.resume", "output.trackers"))


def check_same_precision(group: Group, config: Config) -> None:
    """Raise InputError, on every rank alike, unless all ranks were started with the same `train.precision`.

    Every rank calls it with the settings that it was given. A mode takes the precision of rank 0 for all
    ranks, so `check_ranks`, which comes later, cannot see another one.
    """
    if group.world_size == 1:
        return
    _compare_ranks(
        group,
        {"train.precision": config.train.precision},
        rule="all ranks must be asked for the same precision, but they are not",
        remedy="start all ranks with the same command",
    )


def check_ranks(
    group: Group, mode: str, config: Config, dataset: Dataset, stores: dict[str, TokenStore], job: dict
) -> None:
    """Raise InputError, on every rank alike, unless all ranks do the same job with the same code; every rank
    calls it with its own. Else ranks with an old copy of the data would train to a wrong report, or hang."""
    if group.world_size == 1:
        return
    job = job | code_version()
    job["mode"] = mode
    job["data.cache_dir"] = {"path": config.data.cache_dir, "content": _data_digest(dataset, stores)}
    deepspeed_config = config.deepspeed.config
    if deepspeed_config:
        content = content_key(file_digest(Path(deepspeed_config)))
        job["deepspeed.config"] = {"path": deepspeed_config, "content": content}
    _compare_ranks(
        group,
        job,
        rule="all ranks must have the same data, settings and code, but they do not",
        remedy="copy the files of rank 0 to the other machines, install the same versions there, and start "
        "all ranks with the same command",
    )


def _data_digest(dataset: Dataset, stores: dict[str, TokenStore]) -> str:
    """Return a digest of the folders of the cache from which a run reads rows, splits and tokens."""
    folders = [dataset.folder]
    for table in dataset.tables:
        folders.extend(table.folders)
    for store in stores.values():
        # Splits may share a store
        if store.folder not in folders:
            folders.append(store.folder)
    digests = [files_digest(folder, "*.arrow", "*.bin", "*.npy") for folder in folders]
    return content_key(*digests)


def _compare_ranks(group: Group, job: dict, rule: str, remedy: str) -> None:
    """Raise InputError, on every rank alike, where the `job` of a rank is not that of rank 0, apart from what
    may differ. Every rank calls it with its own."""
    ranks = group.gather_values({"host": platform.node(), "job": job})
    host = ranks[0]["host"]
    for rank, values in enumerate(ranks):
        template = f"is {{}} on rank 0 ({host}) and {{}} on rank {rank} ({values['host']})"
        changes = describe_changes(ranks[0]["job"], values["job"], FREE_ON_RANKS, template)
        if changes:
            raise InputError(f"{rule}: {join_changes(changes)}; {remedy}")
