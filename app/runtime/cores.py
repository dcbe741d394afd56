"""How many cores this process may use: those that it is bound to, and no more than its container is given."""

import math
import os
from pathlib import Path, PurePosixPath

CGROUPS = Path("/sys/fs/cgroup")
OWN_GROUP = Path("/proc/self/cgroup")


def num_cores(cgroups: Path = CGROUPS, own_group: Path = OWN_GROUP) -> int:
    """Return the number of cores that this process may use, at least 1.

    A container with a limit of 2 CPUs on a machine of 64 cores sees all of them, but 64 threads would wait
    for each other most of the time. `cgroups` is where Linux shows that limit, `own_group` names the group of
    this process: https://docs.kernel.org/admin-guide/cgroup-v2.html
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    limit = min(_limit(folder) for folder in _folders(cgroups, own_group))
    return max(1, math.ceil(min(cores, limit)))


def _folders(cgroups: Path, own_group: Path) -> list[Path]:
    """Return the folders of this process's group and of all groups around it: the limit of each holds. In a
    container `cgroups` itself is its group, and the path in `own_group` may not be there."""
    folders = [cgroups, cgroups / "cpu"]
    try:
        lines = own_group.read_text().splitlines()
    except OSError:
        # Not Linux
        return folders
    for line in lines:
        # Version 2 writes no controllers, `0::/user.slice`
        _, controllers, name = line.split(":", 2)
        top = cgroups if not controllers else cgroups / "cpu"
        if not controllers or "cpu" in controllers.split(","):
            path = PurePosixPath(name.lstrip("/"))
            folders += [top / group for group in (path, *path.parents)]
    return folders


def _limit(folder: Path) -> float:
    """Return the CPUs that a group is given, its quota of time by the period; infinity without a limit."""
    # cgroup version 2, then 1
    for names in (["cpu.max"], ["cpu.cfs_quota_us", "cpu.cfs_period_us"]):
        try:
            quota, period = (int(word) for name in names for word in (folder / name).read_text().split())
        except (OSError, ValueError):
            # No such file, or the word `max`
            continue
        # Version 1 writes -1 where there is no limit
        if quota > 0 and period > 0:
            return quota / period
    return math.inf
