"""What the results depend on: the machine, its versions, and how much memory a process took."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from app.runtime.processes import num_cores

PACKAGES = ("torch", "transformers", "accelerate", "lightning-fabric", "lightning", "tokenizers", "numpy")


def describe_machine() -> dict:
    """Return processor, cores, memory, versions and commit, and how busy the machine was with other things
    before."""
    return {
        "time": time.strftime("%F %T"),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": num_cores(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: installed for name in PACKAGES if (installed := _version(name))},
        "commit": _commit(),
    }


def headline(machine: dict) -> str:
    """Return the machine in one line, for people."""
    versions = ", ".join(f"{name} {machine['versions'].get(name)}" for name in ("torch", "transformers"))
    busy = f"; LOAD {machine['load_before']:.1f} BEFORE THE START" if machine["load_before"] > 0.5 else ""
    return (
        f"{machine['time']}: {machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, "
        f"{versions}{busy}"
    )


def peak_memory() -> int:
    """Return the most resident memory, in bytes, that this process has had since it started."""
    status = Path("/proc/self/status")
    # Unlike ru_maxrss, this does not count what the parent held when it started this process
    if status.exists():
        lines = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
        return int(lines[0].split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    names = (
        [line for line in info.read_text().splitlines() if line.startswith("model name")]
        if info.exists()
        else []
    )
    return names[0].split(":", 1)[1].strip() if names else platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    root = Path(__file__).resolve().parents[2]
    try:
        git = subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return git.stdout.strip()
