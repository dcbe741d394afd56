"""Where and how a run was started: versions, device, commit, command line."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path

import numpy as np


def environment(mode: str, world_size: int, device: str) -> dict:
    """Return versions, device, commit and command line, so that the run can be repeated."""
    import torch
    import transformers

    root = Path(__file__).resolve().parents[2]
    git = (
        subprocess.run(["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
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
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "commit": git.stdout.strip() if git and git.returncode == 0 else None,
        "platform": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }


def launcher_id() -> str | None:
    """Return what is the same for all processes, first and restarted, of one torchrun job, or None outside of torchrun."""
    run_id = os.environ.get("TORCHELASTIC_RUN_ID")
    return f"{platform.node()}:{os.getppid()}" if run_id == "none" else run_id
