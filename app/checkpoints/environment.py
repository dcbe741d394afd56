"""Where and how a run was started: versions, device, commit, command line."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import numpy as np

from ..data.cache import content_key, file_digest
from ..runtime.cores import num_cores


def environment(mode: str, world_size: int, device: str) -> dict:
    """Return versions, device, commit and command line, so that the run can be repeated."""
    import torch
    import transformers

    root = Path(__file__).resolve().parents[2]
    git = (
        subprocess.run(
            ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
        )
        if shutil.which("git")
        else None
    )
    return {
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "command": sys.argv,
        "launcher": launcher_id(),
        "mode": mode,
        "processes": world_size,
        "device": device,
        "device_name": torch.cuda.get_device_name()
        if device.startswith("cuda")
        else platform.processor() or platform.machine(),
        "cores": num_cores(),
        "threads": torch.get_num_threads(),
        "code": code_version()["app"],
        "commit": git.stdout.strip() if git and git.returncode == 0 else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def code_version() -> dict[str, str]:
    """Return the versions of what decides about the numbers: a digest of this package's sources, torch,
    transformers, tokenizers."""
    import tokenizers
    import torch
    import transformers

    package = Path(__file__).resolve().parents[1]
    sources = sorted(path.relative_to(package).as_posix() for path in package.rglob("*.py"))
    digest = content_key(*(part for name in sources for part in (name, file_digest(package / name))))
    libraries = {"torch": torch, "transformers": transformers, "tokenizers": tokenizers}
    # Builds of one version for other devices (2.13.0+cpu) are the same code.
    return {"app": digest} | {
        name: library.__version__.partition("+")[0] for name, library in libraries.items()
    }


def launcher_id() -> str | None:
    """Return what is the same for all processes, first and restarted, of one torchrun job, or None outside of
    torchrun."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{platform.node()}:{launcher_process()}" if run_id == "none" else run_id


def launcher_process() -> int:
    """Return the process id of torchrun: the nearest ancestor that has not got its variables, for there may
    be a wrapper."""
    process = os.getppid()
    try:
        while b"TORCHELASTIC_RUN_ID=" in Path(f"/proc/{process}/environ").read_bytes():
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
    except (OSError, ValueError):
        # No Linux, or not our process
        return os.getppid()
    return process


def launcher_start() -> float | None:
    """Return when torchrun was started, in seconds since 1970, or None where the system does not say."""
    try:
        ticks = int(Path(f"/proc/{launcher_process()}/stat").read_text().rpartition(")")[2].split()[19])
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, AttributeError):
        return None
    return time.time() - age
